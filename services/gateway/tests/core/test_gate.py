from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model import labels
from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core import gate
from cotenant_gateway.core.budgets import Budget
from cotenant_gateway.core.gate import decide
from cotenant_gateway.core.observe import Observing
from cotenant_gateway.core.records import PodState, Put
from cotenant_gateway.core.removal import (
    Caps,
    Decision,
    GateSettings,
    Held,
    Ledger,
    MoveLimits,
    Place,
    Removal,
    Request,
    Victim,
    Workload,
)
from cotenant_gateway.core.tell import of_change
from cotenant_gateway.testing import ended, leaving, pending, running

OWNER = "Deployment/default/w"
SETTINGS = GateSettings()


def ledger(*pods: PodState, **fields: Any) -> Ledger:
    fields.setdefault("places", {"n9": Place()})
    return Ledger({pod.spec.uid: pod for pod in pods}, **fields)


def request(*pods: PodState, kind: str = "drain", **fields: Any) -> Request:
    needs = {"preempt": {"beneficiary": "q"}, "reclaim": {"beneficiary": "q"}, "move": {"landing_node": "n9"}}
    victims = tuple(Victim(p.spec.uid, p.spec.namespace or "", p.spec.name, p.node) for p in pods)
    defaults = {"id": "c1", "requested_by": "t", "reason": "NodeHot", "message": "m", **needs.get(kind, {})}
    return Request(kind=kind, victims=victims, **{**defaults, **fields})


def ask(asked: Request, known: Ledger, settings: GateSettings = SETTINGS, now_ms: int = 1_000_000) -> Decision:
    return decide(asked, known, settings, now_ms)


def replicas(count: int, **fields: Any) -> list[PodState]:
    return [running(f"w-{n}", owner=OWNER, node=f"n{n}", **fields) for n in range(count)]


def test_a_plain_drain_is_granted_with_one_mark_and_one_event():
    pod = running()
    decision = ask(request(pod), ledger(pod))
    assert decision.granted
    (change,) = decision.changes
    mark = change.spec.deletion
    assert mark is not None
    assert (mark.kind, mark.requeue, mark.command_id, mark.data["node"]) == ("drain", True, "c1", "n1")
    assert [fact.type for fact in of_change(change)] == ["pod.evicted"]
    assert of_change(change)[0].reason == "NodeHot"


def test_the_same_command_again_is_the_same_answer_and_no_write():
    pod = running()
    first = ask(request(pod), ledger(pod))
    marked = PodState(first.changes[0].spec, pod.seen, pod.node)
    again = ask(request(pod), ledger(marked))
    assert (again.granted, again.replay, again.changes) == (True, True, ())


def test_a_command_is_remembered_by_the_successor():
    from dataclasses import replace

    from cotenant_gateway.core.lifecycle import decide as follow

    pod = running()
    marked = ask(request(pod), ledger(pod)).changes[0].spec
    gone = PodState(marked, ended().seen, None)
    change = follow(gone, lost_reason=None, owner_exists=True, now_ms=5, seed="s")
    assert isinstance(change, Put)
    successor = PodState(change.spec, replace(running().seen, uid=change.spec.uid), "n2")
    assert ask(request(pod), ledger(successor)).replay


def test_all_victims_or_none():
    good, finished = running("a"), ended("b")
    decision = ask(request(good, finished), ledger(good, finished))
    assert not decision.granted
    assert decision.changes == ()
    assert all(verdict.refusal is not None for verdict in decision.verdicts)
    assert decision.reason is ReasonCode.NOT_EVICTABLE


@pytest.mark.parametrize(
    ("pod", "reason"),
    [(pending(), ReasonCode.NOT_EVICTABLE), (ended(), ReasonCode.NOT_EVICTABLE)],
)
def test_what_does_not_run_is_not_evicted(pod, reason):
    assert ask(request(pod), ledger(pod)).reason is reason


def test_a_pod_that_is_gone_is_not_found():
    assert ask(request(running()), ledger()).reason is ReasonCode.NOT_FOUND


def test_a_victim_that_leaves_already_is_granted_without_a_second_event():
    pod = leaving(running(), command_id="other")
    decision = ask(request(pod), ledger(pod))
    assert (decision.granted, decision.changes) == (True, ())


@pytest.mark.parametrize("kind", ["preempt", "reclaim"])
def test_room_is_taken_only_for_somebody(kind):
    pod = running()
    assert not ask(request(pod, kind=kind, beneficiary=None), ledger(pod)).granted
    assert ask(request(pod, kind=kind), ledger(pod)).granted


def test_a_move_needs_a_landing_place_elsewhere():
    pod = running()
    assert ask(request(pod, kind="move", landing_node=None), ledger(pod)).reason is ReasonCode.NO_LANDING_PLACE
    assert ask(request(pod, kind="move", landing_node="n1"), ledger(pod)).reason is ReasonCode.NO_LANDING_PLACE
    assert ask(request(pod, kind="move"), ledger(pod)).granted


@pytest.mark.parametrize("kind", ["move", "preempt", "reclaim", "emergency", "drain"])
def test_a_freeze_stops_every_kind(kind):
    pod = running()
    decision = ask(request(pod, kind=kind), ledger(pod, frozen="launch day"))
    assert decision.reason is ReasonCode.FROZEN
    assert "launch day" in decision.message


def test_a_command_past_its_deadline_is_too_late():
    pod = running()
    assert not ask(request(pod, deadline_ms=999_999), ledger(pod)).granted
    assert ask(request(pod, deadline_ms=1_000_001), ledger(pod)).granted


def test_what_is_protected_stays():
    critical = running("a", priority=2_000_000_000)
    kept = running("b", extra_labels={labels.QUOTA_PREEMPTIBLE: "false"})
    never = running("c", annotations={labels.EVICTION_COST: str(2**31 - 1)})
    for pod in (critical, kept, never):
        assert ask(request(pod, kind="preempt"), ledger(pod)).reason is ReasonCode.NOT_EVICTABLE
        assert ask(request(pod), ledger(pod)).granted
    assert ask(request(kept, kind="move"), ledger(kept)).granted


def budget(**spec: Any) -> Budget:
    return Budget("default", "b", {"selector": {}, **spec})


@pytest.mark.parametrize("kind", ["drain", "preempt", "reclaim", "move"])
def test_budgets_bind_every_kind(kind):
    pods = [running("a", node="n1"), running("b", node="n2")]
    decision = ask(request(pods[0], kind=kind), ledger(*pods, budgets=[budget(minAvailable=2)]))
    assert decision.reason is ReasonCode.BUDGET_EXCEEDED
    assert "wants 2 healthy pods; 2 are" in decision.message


def test_two_victims_that_each_fit_a_budget_alone_do_not_fit_together():
    pods = [running(f"p{n}") for n in range(3)]
    known = ledger(*pods, budgets=[budget(minAvailable=2)])
    assert ask(request(pods[0]), known).granted
    assert not ask(request(pods[0], pods[1]), known).granted


def test_a_pod_on_its_way_out_uses_up_the_budget():
    pods = [running(f"p{n}") for n in range(3)]
    known = ledger(leaving(pods[0], command_id="x"), *pods[1:], budgets=[budget(minAvailable=2)])
    assert not ask(request(pods[1]), known).granted


def test_missing_replicas_count_against_a_budget():
    pods = replicas(2)
    known = ledger(*pods, budgets=[budget(maxUnavailable=1)], workloads={OWNER: Workload(OWNER, 3)})
    assert not ask(request(pods[0]), known).granted


def test_an_emergency_overrides_a_budget_one_at_a_time():
    pods = [running("a"), running("b")]
    guarded = {"budgets": [budget(minAvailable=2)]}
    assert not ask(request(*pods, kind="emergency"), ledger(*pods, **guarded)).granted
    first = ask(request(pods[0], kind="emergency"), ledger(*pods, **guarded))
    assert first.granted
    assert first.changes[0].spec.deletion.data["override"] is True
    assert [fact.type for fact in of_change(first.changes[0])] == ["pod.evicted", "emergency.used"]
    after = ledger(PodState(first.changes[0].spec, pods[0].seen, "n1"), pods[1], **guarded)
    second = ask(request(pods[1], kind="emergency", id="c2"), after, now_ms=1_000_500)
    assert (second.granted, second.reason) == (False, ReasonCode.BUDGET_EXCEEDED)


def test_an_emergency_that_fits_the_budget_is_no_override():
    pod = running()
    assert "override" not in ask(request(pod, kind="emergency"), ledger(pod)).changes[0].spec.deletion.data


def test_an_agents_report_is_booked_once():
    pod = ended("a")
    asked = request(pod, kind="emergency", id="r1")
    change = gate.reported(pod, asked, 5)
    assert change is not None
    assert change.spec.tells == ("pod.evicted", "emergency.used")
    assert gate.reported(PodState(change.spec, pod.seen), asked, 6) is None


@pytest.mark.parametrize(
    "caps", [Caps(per_node=1), Caps(per_namespace=1), Caps(per_workload=1), Caps(total=1)], ids=str
)
def test_configured_caps_count_what_happened_in_the_window(caps):
    first, second = replicas(2)[0], running("w-1", owner=OWNER, node="n0")
    settings = GateSettings(caps=caps)
    evicted = leaving(first, at_ms=1_000_000, kind="drain", command_id="x")
    assert ask(request(first), ledger(first, second), settings).granted
    assert not ask(request(second), ledger(evicted, second), settings, 1_030_000).granted
    assert ask(request(second), ledger(evicted, second), settings, 1_061_000).granted


def move(pod: PodState, *pods: PodState, count: int, now_ms: int = 1_000_000, **limits: Any) -> Decision:
    known = ledger(*pods, workloads={OWNER: Workload(OWNER, count)})
    return ask(request(pod, kind="move"), known, GateSettings(moves=MoveLimits(**limits)), now_ms)


def test_moves_of_one_workload_cool_down():
    pods = replicas(6)
    moved = leaving(pods[0], at_ms=900_000, command_id="x")
    decision = move(pods[1], moved, *pods[1:], count=6)
    assert decision.reason is ReasonCode.COOL_DOWN
    assert "moved 100 s ago; 200 s to go" in decision.message
    assert move(pods[1], moved, *pods[1:], count=6, now_ms=1_300_000).granted


def test_the_cool_down_binds_moves_only():
    pods = replicas(6)
    moved = leaving(pods[0], at_ms=999_000, command_id="x")
    assert ask(request(pods[1], kind="preempt"), ledger(moved, *pods[1:])).granted


@pytest.mark.parametrize(("count", "granted"), [(1, False), (2, True), (3, True)])
def test_a_workload_that_one_move_could_empty_is_never_moved(count, granted):
    pods = replicas(count)
    assert move(pods[0], *pods, count=count).granted is granted


def test_expected_replicas_can_be_switched_off():
    (pod,) = replicas(1)
    assert move(pod, pod, count=1, expected_replicas=False).granted


def test_unavailable_pods_use_up_the_move_limit():
    pods = [*replicas(5), running("w-5", owner=OWNER, ready=False), running("w-6", owner=OWNER, ready=False)]
    assert "2 pods of Deployment/default/w are unavailable" in move(pods[0], *pods, count=7).message
    assert move(pods[0], *pods, count=7, max_unavailable=3).granted


def test_migrating_pods_use_up_the_move_limit():
    pods = replicas(12)
    migrating = leaving(pods[0], at_ms=0, command_id="x")
    decision = move(pods[1], migrating, *pods[1:], count=12, max_unavailable=6)
    assert "1 pods of Deployment/default/w are migrating; 1 may" in decision.message


def test_moves_away_from_one_node_are_limited():
    pods = [running(f"bare-{n}") for n in range(3)]
    known = ledger(*(leaving(p, at_ms=0, command_id="x") for p in pods[:2]), pods[2])
    assert "2 pods are being moved from node n1" in ask(request(pods[2], kind="move"), known).message


def test_drains_are_paced():
    pods = [running(f"p{n}") for n in range(3)]
    known = ledger(leaving(pods[0], kind="drain", command_id="x"), *pods[1:])
    assert not ask(request(pods[1]), known, GateSettings(drains_per_node=1)).granted


@given(st.integers(1, 8), st.integers(0, 8), st.data())
def test_granted_removals_never_break_a_budget(count, least, data):
    pods = [running(f"p{n}", node=f"n{n}") for n in range(count)]
    known = {pod.spec.uid: pod for pod in pods}
    guard = budget(minAvailable=least)
    for step in range(count):
        chosen = data.draw(st.lists(st.sampled_from(pods), min_size=1, max_size=3, unique_by=lambda p: p.spec.uid))
        decision = ask(request(*chosen, id=f"c{step}"), Ledger(known, [guard]))
        for change in decision.changes:
            known[change.spec.uid] = PodState(change.spec, known[change.spec.uid].seen, known[change.spec.uid].node)
        staying = sum(not pod.leaving for pod in known.values())
        assert staying >= min(least, count)


def test_an_id_used_again_for_other_victims_is_another_command():
    first, second = running("a"), running("b")
    marked = leaving(first, command_id="c1")
    decision = ask(request(second, id="c1"), ledger(marked, second))
    assert (decision.granted, decision.replay, len(decision.changes)) == (True, False, 1)


def test_one_large_drain_is_paced_like_many_small_ones():
    pods = [running(f"p{n}") for n in range(3)]
    assert not ask(request(*pods), ledger(*pods), GateSettings(drains_per_node=2)).granted
    assert ask(request(*pods[:2]), ledger(*pods), GateSettings(drains_per_node=2)).granted


def test_more_victims_than_one_write_holds_are_refused_at_once():
    pods = [running(f"p{n}", node=f"n{n}") for n in range(gate.MAX_VICTIMS + 1)]
    decision = ask(request(*pods), ledger(*pods))
    assert "go into one write" in decision.message


@given(
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from(["minAvailable", "maxUnavailable"]),
    st.integers(0, 6) | st.integers(0, 100).map(lambda n: f"{n}%"),
    st.integers(1, 6),
)
def test_no_grant_ever_leaves_fewer_healthy_pods_than_a_budget_wants(ready, broken, field, value, count):
    pods = [running(f"r{n}", extra_labels={"app": "x"}) for n in range(ready)]
    pods += [running(f"b{n}", ready=False, extra_labels={"app": "x"}) for n in range(broken)]
    budget = Budget("default", "b", {field: value, "selector": {"matchLabels": {"app": "x"}}})
    victims = pods[:count]
    if victims and ask(request(*victims), ledger(*pods, budgets=[budget])).granted:
        serving = sum(pod.ready for pod in victims)
        assert serving == 0 or ready - serving >= budget.wanted_healthy(len(pods))


@pytest.mark.parametrize(
    ("closed", "words"), [("is cordoned", "which is cordoned"), ("is not ready", "which is not ready")]
)
def test_a_move_does_not_land_on_a_closed_node(closed, words):
    pod = running()
    decision = ask(request(pod, kind="move"), ledger(pod, places={"n9": Place(closed)}))
    assert (decision.reason, words in decision.message) == (ReasonCode.NO_LANDING_PLACE, True)
    assert ask(request(pod, kind="move"), ledger(pod, places={})).reason is ReasonCode.NO_LANDING_PLACE


@pytest.mark.parametrize(
    ("held", "granted"),
    [(Held("Available", "n9"), True), (Held("Pending"), False), (Held("Available", "n2"), False), (None, False)],
)
def test_a_reservation_that_is_named_must_hold_the_place(held, granted):
    pod = running()
    known = ledger(pod, reservations={} if held is None else {"r": held})
    decision = ask(request(pod, kind="move", landing_reservation="r"), known)
    assert (decision.granted, decision.reason) == (granted, None if granted else ReasonCode.NO_LANDING_PLACE)


def test_freed_room_is_promised_with_a_deadline():
    pod = running()
    asked = request(pod, kind="preempt", beneficiary="Pod/default/big", grace_ms=5_000)
    decision = ask(asked, ledger(pod), GateSettings(promise_ms=60_000))
    mark = decision.changes[0].spec.deletion
    assert mark is not None
    assert (mark.data["beneficiary"], mark.data["promised_until_ms"]) == ("Pod/default/big", 1_065_000)
    assert decision.numbers["promise_ms"] == 60_000


def test_room_is_promised_to_one_only():
    pod = running()
    first = ask(request(pod, kind="preempt", beneficiary="a"), ledger(pod))
    marked = PodState(first.changes[0].spec, pod.seen, pod.node)
    second = ask(request(pod, kind="preempt", beneficiary="b", id="c2"), ledger(marked))
    assert (second.reason, second.numbers) == (ReasonCode.NOT_EVICTABLE, {"promised_to": "a"})
    assert ask(request(pod, kind="preempt", beneficiary="a", id="c3"), ledger(marked)).granted


def test_room_that_is_nobodys_goes_to_the_first_who_asks():
    pod = leaving(running(), kind="drain", command_id="other")
    decision = ask(request(pod, kind="reclaim", beneficiary="q"), ledger(pod))
    (change,) = decision.changes
    assert change.spec.deletion is not None
    assert (change.spec.deletion.data["beneficiary"], change.spec.deletion.command_id) == ("q", "other")
    assert of_change(change) == []


def test_a_refusal_has_numbers_and_says_when_to_ask_again():
    pods = [running("a"), running("b")]
    short = ask(request(pods[0]), ledger(*pods, budgets=[budget(minAvailable=2)]))
    assert short.numbers == {
        "budget": "default/b", "wanted_healthy": 2, "healthy": 2, "victims": 1, "expected": 2
    }  # fmt: skip
    assert short.refusal is not None
    assert short.refusal.retry_ms is None
    gone = leaving(running("c"), kind="drain", at_ms=990_000)
    capped = ask(request(pods[0]), ledger(*pods, gone), GateSettings(Caps(total=1, window_ms=60_000)))
    assert capped.refusal is not None
    assert capped.refusal.retry_ms == 50_000


def test_a_removed_pod_that_never_comes_back_still_counts():
    pod = running()
    past = Removal("old", "c0", "reclaim", "n1", "default", "Pod/default/x", 990_000)
    capped = GateSettings(Caps(per_node=1))
    assert ask(request(pod), ledger(pod, past=[past]), capped).reason is ReasonCode.BUDGET_EXCEEDED
    assert ask(request(pod), ledger(pod, past=[past]), capped, now_ms=1_060_000).granted


def test_a_command_is_remembered_when_nothing_else_remembers_it():
    pod = running()
    past = Removal(pod.spec.uid, "c1", "reclaim", "n1", "default", "Pod/default/a", 990_000)
    assert ask(request(pod), ledger(past=[past])).replay


@pytest.mark.parametrize("limit", [{"per_namespace": 1}, {"total": 1}])
def test_moves_are_limited_by_namespace_and_in_total(limit):
    under_way = leaving(running("x", node="n5"), kind="move")
    pod = running("y")
    settings = GateSettings(moves=MoveLimits(cool_down_ms=0, **limit))
    decision = ask(request(pod, kind="move"), ledger(under_way, pod), settings)
    assert (decision.reason, decision.numbers["limit"]) == (ReasonCode.BUDGET_EXCEEDED, 1)
    assert ask(request(pod, kind="reclaim"), ledger(under_way, pod), settings).granted


def test_what_is_only_observed_says_what_would_have_been_done():
    pod, other = running("a", node="n1"), running("b", node="n2")
    known = ledger(pod, other, observing=Observing(nodes=("n1",)))
    decision = ask(request(pod, kind="reclaim", numbers={"used": 95}), known)
    assert (decision.reason, decision.changes) == (ReasonCode.OBSERVE_ONLY, ())
    assert "would be 1 of 1 granted" in decision.message
    assert decision.numbers == {"used": 95, "would_evict": ["default/a"], "kind": "reclaim"}
    assert ask(request(other, kind="reclaim"), known).granted


def test_a_limit_is_told_even_where_only_observed():
    pods = [running("a"), running("b")]
    known = ledger(*pods, budgets=[budget(minAvailable=2)], observing=Observing(everything=True))
    assert ask(request(pods[0]), known).reason is ReasonCode.BUDGET_EXCEEDED


def test_a_victim_named_twice_is_one_victim():
    pods = [running("a"), running("b")]
    decision = ask(request(pods[0], pods[0]), ledger(*pods, budgets=[budget(minAvailable=1)]))
    assert (decision.granted, len(decision.changes)) == (True, 1)
