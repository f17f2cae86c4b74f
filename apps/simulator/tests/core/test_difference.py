from typing import Any

from cotenant_simulator.core.difference import Looks, difference

CHANGED_MS = 1_000


def pod(phase: str = "Running", node: str | None = "a", **fields: Any) -> dict[str, Any]:
    filled = {"reason": None, "message": None, "incarnation": 0, "quota": None, "reservation": None}
    return {"phase": phase, "node": node, **filled, "cpuset": None, "qos": "LS", **fields}


def outcome(pods: Any = (), events: Any = (), quotas: Any = (), nodes: Any = ()) -> dict[str, Any]:
    return {"pods": dict(pods), "events": list(events), "quotas": dict(quotas), "nodes": dict(nodes)}


def event(kind: str, name: str, t_ms: int = 2_000, reason: str = "NodeHot") -> dict[str, Any]:
    return {"t_ms": t_ms, "type": kind, "object": f"Pod/{name}", "reason": reason, "message": "because", "data": {}}


def node(batch: int | None = 500, heat: str | None = None) -> dict[str, Any]:
    return {"batch": {"cpu": batch, "memory": 1}, "requested": {}, "usage": {"cpu": 1}, "classification": heat}


def fates(before: dict[str, Any], after: dict[str, Any], *, events: Any = (), named: Any = ()) -> dict[str, list[Any]]:
    looks = Looks(outcome(before), outcome(after, events), CHANGED_MS, named)
    return {key: rows for key, rows in difference(looks).items() if rows}


def test_a_new_pod_lands_where_it_is_bound_and_when():
    found = fates({}, {"x/new": pod(node="b", quota="team")}, events=[event("pod.bound", "x/new", 1_250)])
    (row,) = found["lands"]
    assert (row["node"], row["quota"], row["after_ms"], row["waited"]) == ("b", "team", 250, False)


def test_a_new_pod_that_waits_does_not_fit():
    found = fates({}, {"x/new": pod("Pending", None, reason="InsufficientResource")})
    assert [(row["ran_on"], row["reason"]) for row in found["does_not_fit"]] == [(None, "InsufficientResource")]


def test_one_that_ran_and_waits_afterwards_does_not_fit_any_more():
    found = fates({"x/a": pod()}, {"x/a": pod("Pending", None, incarnation=1)})
    assert [row["ran_on"] for row in found["does_not_fit"]] == ["a"]


def test_one_that_waited_and_waits_is_listed_apart_unless_it_is_named():
    waiting = {"x/a": pod("Pending", None)}
    assert list(fates(waiting, waiting)) == ["waits"]
    assert list(fates(waiting, waiting, named=["x/a"])) == ["does_not_fit"]


def test_a_move_carries_the_reason_of_the_removal():
    found = fates({"x/a": pod()}, {"x/a": pod(node="b", incarnation=1)}, events=[event("pod.evicted", "x/a")])
    assert found["moves"] == [
        {"pod": "x/a", "from": "a", "to": "b", "what": "pod.evicted", "reason": "NodeHot", "message": "because"}
    ]


def test_preemption_is_told_before_the_deletion_that_follows_from_it():
    events = [event("pod.deleted", "x/a", reason="Deleted"), event("pod.preempted", "x/a", reason="Preempted")]
    (row,) = fates({"x/a": pod()}, {"x/a": pod("Deleted")}, events=events)["goes"]
    assert (row["what"], row["reason"]) == ("pod.preempted", "Preempted")


def test_what_happened_before_the_change_is_no_reason():
    (row,) = fates({"x/a": pod()}, {}, events=[event("pod.evicted", "x/a", CHANGED_MS - 1)])["goes"]
    assert row["reason"] is None


def test_another_life_on_the_same_node_is_a_restart():
    assert list(fates({"x/a": pod()}, {"x/a": pod(incarnation=1)})) == ["restarts"]


def test_what_was_over_before_is_no_news():
    over = {"x/a": pod("Succeeded"), "x/b": pod("Failed"), "x/c": pod("Deleted")}
    assert fates(over, over) == {}


def test_a_pod_that_fails_is_told_with_its_node():
    (row,) = fates({"x/a": pod()}, {"x/a": pod("Failed", reason="OOMKilled")})["fails"]
    assert (row["node"], row["reason"]) == ("a", "OOMKilled")


def test_quotas_are_compared_by_resource_and_unset_is_not_zero():
    before = outcome(quotas={"team": {"max": {"cpu": 4_000}, "runtime": {"cpu": 1_000}, "used": {"cpu": 0}}})
    after = outcome(quotas={"team": {"max": {"cpu": 4_000}, "runtime": {"cpu": 2_000}, "used": {"cpu": 0}}})
    (row,) = difference(Looks(before, after, CHANGED_MS))["quotas"]
    assert (row["runtime"], row["max"], row["min"]) == ([1_000, 2_000], [4_000, 4_000], [None, None])


def test_nodes_that_do_not_change_are_left_out_and_hot_ones_are_named():
    before = outcome(nodes={"a": node(), "b": node(), "c": node(None)})
    after = outcome(nodes={"a": node(), "b": node(0), "c": node(None, "hot")})
    found = difference(Looks(before, after, CHANGED_MS))
    assert [(row["node"], row["batch_cpu"]) for row in found["nodes"]] == [("b", [500, 0]), ("c", [None, None])]
    assert found["hot"] == ["c"]
