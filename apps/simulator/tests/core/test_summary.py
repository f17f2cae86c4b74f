from typing import Any

from cotenant_simulator.core.summary import (
    FIGURES,
    Integrals,
    PodFacts,
    RunOfPod,
    Wait,
    figure,
    flattened,
    summarise,
    waits,
)

BATCH = PodFacts("batch", 10_000)


def event(t_ms: int, kind: str, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"t_ms": t_ms, "type": kind, "object": f"Pod/default/{name}", "reason": None, "data": {}, **more}


def summary(*events: dict[str, Any], runs: tuple[RunOfPod, ...] = (), **facts: PodFacts) -> dict[str, float | None]:
    sums = Integrals(runs=runs)
    sums.capacity.update(cpu=1_000.0, memory=1_000.0)
    return flattened(summarise(sums, events, {f"default/{name}": one for name, one in facts.items()}, ()))


def test_waiting_is_from_each_queueing_to_its_binding():
    events = [event(0, "pod.queued"), event(5, "pod.bound"), event(10, "pod.queued"), event(10, "pod.queued", "b")]
    found = waits([*events, event(30, "pod.bound")])
    assert found == [
        Wait("default/a", 0, 5),
        Wait("default/a", 10, 30),
        Wait("default/b", 10, None),
    ]


def test_an_instant_in_which_a_pod_ends_and_comes_back_is_read_in_that_order():
    events = [event(0, "pod.queued"), event(0, "pod.bound")]
    events += [event(9, "pod.bound"), event(9, "pod.queued"), event(9, "pod.finished")]
    assert [one.bound_ms for one in waits(events)] == [0, 9]


def test_a_pod_that_leaves_the_queue_unbound_stops_waiting():
    (one,) = waits([event(0, "pod.queued"), event(7, "pod.deleted")])
    assert (one.bound_ms, one.end_ms) == (None, 7)


def test_waiting_is_told_by_class_and_never_bound_apart():
    found = summary(
        event(0, "pod.queued"), event(4_000, "pod.bound"), event(0, "pod.queued", "b"), a=BATCH, b=PodFacts("prod")
    )
    assert found["waiting.batch.p95_s"] == 4
    assert found["waiting.batch.never_bound"] == 0
    assert found["waiting.prod.p95_s"] is None, "nobody was bound: not known, not zero"
    assert found["waiting.prod.never_bound"] == 1
    assert found["waiting.all.count"] == 1


def test_of_nothing_nothing_is_known():
    nothing = flattened(summarise(Integrals(), (), {}, ()))
    assert tuple(nothing) == FIGURES
    for name in ("utilisation_percent.cpu.total", "pressure_minutes", "node_hours_used", "batch_work.done_cpu_milli_s"):
        assert nothing[name] is None
    assert nothing["quota_lent_core_minutes"] is None
    assert nothing["evictions.total"] == 0, "counted"


def test_a_class_nobody_measured_is_unknown_while_the_others_are_told():
    sums = Integrals()
    sums.capacity.update(cpu=1_000.0, memory=1_000.0)
    sums.used["cpu"] = {"prod": 250.0}
    found = flattened(summarise(sums, (), {}, ()))
    assert found["utilisation_percent.cpu.prod"] == 25
    assert found["utilisation_percent.cpu.system"] is None


def test_work_is_wasted_when_something_took_it_away_before_it_was_done():
    evicted = RunOfPod("default/a", BATCH, 0, 8_000, 5_000_000)
    completed = RunOfPod("default/b", BATCH, 0, 9_000, 7_000_000)
    deleted = RunOfPod("default/c", BATCH, 0, 9_000, 1_000_000)
    running = RunOfPod("default/a", BATCH, 9_000, None, 2_000_000)
    found = summary(
        event(7_000, "pod.evicted", reason="NodeHot", data={"kind": "move"}),
        event(9_000, "pod.finished", "b", data={"phase": "Succeeded"}),
        event(8_500, "pod.deleted", "c"),
        runs=(evicted, completed, deleted, running),
    )
    assert found["batch_work.done_cpu_milli_s"] == 15_000
    assert found["batch_work.wasted_cpu_milli_s"] == 5_000


def test_services_do_no_batch_work():
    found = summary(runs=(RunOfPod("default/a", PodFacts("prod"), 0, None, 5_000_000),))
    assert found["batch_work.done_cpu_milli_s"] == 0


def test_delay_is_what_completion_took_beyond_the_duration():
    found = summary(
        event(1_000, "pod.queued"),
        event(4_000, "pod.bound"),
        event(16_000, "pod.finished", data={"phase": "Succeeded"}),
        a=BATCH,
    )
    assert found["batch_delay.mean_s"] == 5
    assert found["batch_slowdown_mean"] == 1.5


def test_evictions_are_counted_by_reason_and_those_for_others_as_preemptions():
    whole = summarise(
        Integrals(),
        [
            event(1, "pod.evicted", reason="NodeHot", data={"kind": "move"}),
            event(2, "pod.evicted", reason="Preempted", data={"kind": "preempt"}),
        ],
        {},
        (),
    )
    assert whole["evictions"] == {"total": 2, "by_reason": {"NodeHot": 1, "Preempted": 1}}
    assert whole["preemptions"] == 1
    assert figure(whole, "evictions.by_reason.NodeLost") == 0
