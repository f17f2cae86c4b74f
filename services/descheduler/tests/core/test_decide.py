from cotenant_common.model import labels
from cotenant_common.model.pod import parse_pod
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import BATCH_CPU, CPU
from cotenant_descheduler.core.classify import Cause, Heat, Thresholds, Verdict
from cotenant_descheduler.core.decide import Limits, decide, workload
from cotenant_descheduler.core.victims import Candidate, Kept, Target

LINES = Thresholds(total={CPU: 95.0})


def batch_pod(name: str, **extra_labels: str) -> Candidate:
    manifest = {
        "metadata": {"name": name, "namespace": "default", "labels": {labels.QOS_CLASS: "BE", **extra_labels}},
        "spec": {
            "priority": 5500,
            "containers": [{"name": "main", "resources": {"requests": {BATCH_CPU: "1000"}}}],
        },
    }
    return Candidate(parse_pod(manifest, uid=name), {CPU: 1000})


def hot(node: str, heat: Heat = Heat.HOT) -> Verdict:
    return Verdict(node, heat, (Cause("cpu usage", CPU, 97.0, 95.0, 100),))


def target(node: str, used: int = 0) -> Target:
    return Target(node, {CPU: 4000}, {CPU: used}, {BATCH_CPU: 4000})


def test_a_hot_node_moves_one_pod_to_the_coolest_place() -> None:
    pods = {"n1": [batch_pod("a"), batch_pod("b")]}
    (report,) = decide([hot("n1")], pods, [target("n2", 2000), target("n3")], LINES, {}, 0, Limits())
    assert report.removal is not None
    assert (report.removal.mode, report.removal.landing) == ("move", ("n3", "n2"))
    assert report.removal.reason is ReasonCode.NODE_HOT
    assert report.removal.numbers["causes"]


def test_nothing_leaves_a_hot_node_without_a_landing_place() -> None:
    (report,) = decide([hot("n1")], {"n1": [batch_pod("a")]}, [target("n2", 3500)], LINES, {}, 0, Limits())
    assert report.removal is None
    assert report.reason is ReasonCode.NO_LANDING_PLACE
    assert {r.pod: r.kept for r in report.rejections} == {"n2": Kept.TOO_HOT, "default/a": Kept.NO_LANDING_PLACE}


def test_a_node_in_danger_gives_up_a_pod_without_a_landing_place() -> None:
    (report,) = decide([hot("n1", Heat.DANGER)], {"n1": [batch_pod("a")]}, [], LINES, {}, 0, Limits())
    assert report.removal is not None
    assert (report.removal.mode, report.removal.reason) == ("reclaim", ReasonCode.NODE_PRESSURE)


def test_a_hot_node_is_no_target() -> None:
    reports = decide(
        [hot("n1"), hot("n2")],
        {"n1": [batch_pod("a")], "n2": [batch_pod("b")]},
        [target("n1"), target("n2")],
        LINES,
        {},
        0,
        Limits(),
    )
    assert [report.removal for report in reports] == [None, None]


def test_a_workload_that_just_moved_stays() -> None:
    pods = {"n1": [batch_pod("a")]}
    moved = {workload(pods["n1"][0]): 0}
    early, late = (
        decide([hot("n1")], pods, [target("n2")], LINES, moved, now, Limits(cool_down_ms=1000))[0]
        for now in (999, 1000)
    )
    assert early.removal is None
    assert late.removal is not None


def test_a_pod_that_wants_no_second_life_is_not_moved() -> None:
    pods = {"n1": [batch_pod("a", **{labels.REQUEUE: "false"})]}
    (report,) = decide([hot("n1")], pods, [target("n2")], LINES, {}, 0, Limits())
    assert report.removal is None


def test_the_cap_per_cycle_holds_and_danger_is_served_first() -> None:
    reports = decide(
        [hot("n1"), hot("n2", Heat.DANGER)],
        {"n1": [batch_pod("a")], "n2": [batch_pod("b")]},
        [target("n3")],
        LINES,
        {},
        0,
        Limits(per_cycle=1),
    )
    assert [(r.node, r.removal is not None) for r in reports] == [("n2", True), ("n1", False)]
    assert reports[1].reason is ReasonCode.BUDGET_EXCEEDED
