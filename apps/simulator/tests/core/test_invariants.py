from cotenant_common.contracts.messages.state import Binding
from cotenant_simulator.core import invariants


def binding(uid: str, node: str = "n1", cpu: int = 1000, quota: str | None = None) -> Binding:
    return Binding(
        uid=uid, namespace="default", name=uid, node=node, attempt=1, epoch=1, spec_digest="x",
        requests={"cpu": cpu}, quota=quota, quota_chain=[quota] if quota else [], bound_ms=0,
    )  # fmt: skip


def test_a_pod_on_two_nodes_is_bound_twice():
    assert invariants.bound_twice([binding("a"), binding("b", "n2")]) == []
    assert invariants.bound_twice([binding("a"), binding("a", "n2")]) == ["pod a is bound to n1, n2"]


def test_a_node_holds_no_more_than_it_has():
    room = {"n1": {"cpu": 2000, "pods": 2}}
    assert invariants.over_allocatable([binding("a"), binding("b")], room) == []
    assert "3 of cpu" in invariants.over_allocatable([binding("a"), binding("b", cpu=2000)], room)[0]
    assert "3 of pods" in invariants.over_allocatable([binding(uid, cpu=0) for uid in "abc"], room)[0]
    assert invariants.over_allocatable([binding("a", "gone")], room) == [], "of a node that left nothing is known"


def test_a_quota_uses_no_more_than_its_max():
    limits = {"team": {"cpu": 1500}}
    assert invariants.over_quota([binding("a", quota="team"), binding("b")], limits) == []
    assert invariants.over_quota([binding("a", quota="team"), binding("b", quota="team")], limits) == [
        "quota team uses 2 of cpu, its max is 1500m"
    ]


def test_a_pod_runs_in_one_place_and_leaves_with_a_word():
    assert invariants.running_twice({"n1": ["a"], "n2": ["b"]}) == []
    assert invariants.running_twice({"n1": ["a"], "n2": ["a"]}) == ["pod a runs on n1, n2"]
    assert invariants.vanished(["x", "y"], ["x"], ["y"]) == []
    assert invariants.vanished(["x"], [], []) == ["pod x is gone and nobody said why"]


def test_who_waits_knows_why():
    pods = {
        "a": {"phase": "Pending", "reason": "InsufficientResource", "message": ""},
        "b": {"phase": "Running", "reason": "Started", "message": None},
    }
    assert invariants.unaccounted(pods) == []
    pods["c"] = {"phase": "Pending", "reason": "Queued", "message": "waiting"}
    assert len(invariants.unaccounted(pods)) == 1


def test_a_ledger_equals_its_bindings():
    assert invariants.drifted({"team": {"cpu": 2000}}, {"team": {"cpu": 2000}, "other": {"cpu": 1}}) == []
    assert "believes 3 of cpu" in invariants.drifted({"team": {"cpu": 3000}}, {"team": {"cpu": 2000}})[0]
