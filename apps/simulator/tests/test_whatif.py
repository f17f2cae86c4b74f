import pytest

from cotenant_scheduler.app import SchedulerService
from cotenant_simulator.cluster import RefusedError
from cotenant_simulator.core.scenario import ObjectRef
from cotenant_simulator.errors import SimulationError
from cotenant_simulator.restore import SnapshotError, read_snapshot
from cotenant_simulator.testing import batch_pod, body_of, deployment, documents, node, pod, quota, snapshot_of
from cotenant_simulator.whatif import Question, ask, fits


def names(rows):
    return [row["pod"] for row in rows]


def test_nothing_changes_where_nothing_is_asked():
    answer = ask(snapshot_of(node("a"), pod("web")), Question())
    assert fits(answer)
    assert names(answer["stays"]) == ["default/web"]
    assert answer["settled"] == []
    assert not any(answer[key] for key in ("lands", "moves", "goes", "restarts", "does_not_fit", "quotas"))


def test_adopted_pods_keep_their_identity_and_their_node():
    live = snapshot_of(node("a"), node("b"), pod("web"), pod("db"))
    answer = ask(live, Question(documents(pod("new"))))
    assert names(answer["stays"]) == ["default/db", "default/web"]
    assert names(answer["lands"]) == ["default/new"]


def test_a_pod_that_fits_lands_with_its_node_and_quota():
    live = snapshot_of(node("a"), quota("team", "1", "4"))
    answer = ask(live, Question(documents(pod("new", quota="team"))))
    (row,) = answer["lands"]
    assert (row["node"], row["quota"], row["waited"]) == ("a", "team", False)
    assert row["after_ms"] < 5_000
    used = {row["resource"]: row["used"] for row in answer["quotas"] if row["quota"] == "team"}
    assert used["cpu"] == [0, 1_000]


def test_a_pod_that_does_not_fit_says_by_how_much_and_what_would_help():
    answer = ask(snapshot_of(node("a"), pod("web", "3")), Question(documents(pod("big", "2"))))
    assert not fits(answer)
    (row,) = answer["does_not_fit"]
    assert (row["pod"], row["ran_on"], row["reason"]) == ("default/big", None, "InsufficientResource")
    assert "needs 2" in row["message"]
    assert row["helps"]


def test_a_lowered_quota_refuses_what_its_maximum_had_room_for():
    live = snapshot_of(node("a"), quota("team", "1", "4"))
    answer = ask(live, Question(documents(quota("team", "100m", "500m"), pod("new", quota="team"))))
    (row,) = answer["does_not_fit"]
    assert row["reason"] == "QuotaExceeded"
    maxima = {row["resource"]: row["max"] for row in answer["quotas"]}
    assert maxima["cpu"] == [4_000, 500]


def test_a_drained_node_s_pods_move_where_there_is_room():
    live = snapshot_of(node("a"), node("b"), pod("web"))
    (row,) = ask(live, Question())["stays"]
    other = {"a": "b", "b": "a"}[row["node"]]
    answer = ask(live, Question(drain=[row["node"]]))
    assert fits(answer)
    assert [(row["pod"], row["to"], row["reason"]) for row in answer["moves"]] == [("default/web", other, "Drained")]
    assert answer["drains"] == [{"node": row["node"], "empty": True, "left": []}]


def test_a_drained_node_s_pods_that_find_no_other_place_do_not_fit():
    answer = ask(snapshot_of(node("a"), pod("web"), pod("db")), Question(drain=["a"]))
    assert not fits(answer)
    assert {(row["pod"], row["ran_on"], row["reason"]) for row in answer["does_not_fit"]} == {
        ("default/web", "a", "NodeUnschedulable"),
        ("default/db", "a", "NodeUnschedulable"),
    }


def test_a_budget_that_keeps_a_node_from_being_emptied_is_named():
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    answer = ask(snapshot_of(node("a"), node("b"), deployment("web", 2), budget), Question(drain=["a", "b"]))
    assert not fits(answer)
    left = [row for drain in answer["drains"] for row in drain["left"]]
    assert len(left) == 2
    assert all("keep" in row["message"] for row in left)


def test_a_deleted_pod_makes_room_for_one_that_waits():
    live = snapshot_of(node("a"), pod("early", "3"), pod("late", "2"))
    answer = ask(live, Question(delete=[ObjectRef("Pod", "default", "early")]))
    assert [(row["pod"], row["waited"]) for row in answer["lands"]] == [("default/late", True)]
    assert [(row["pod"], row["reason"]) for row in answer["goes"]] == [("default/early", "Deleted")]


def test_what_waits_already_is_not_the_change_s_fault():
    answer = ask(snapshot_of(node("a"), pod("big", "9")), Question(documents(pod("small"))))
    assert fits(answer)
    assert names(answer["waits"]) == ["default/big"]


def test_a_cordon_in_a_file_keeps_new_pods_off():
    cordoned = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"unschedulable": True}}
    answer = ask(snapshot_of(node("a"), pod("web")), Question(documents(cordoned, pod("new"))))
    assert names(answer["does_not_fit"]) == ["default/new"]
    assert names(answer["stays"]) == ["default/web"]


def test_a_new_machine_in_a_file_is_taken_as_up():
    answer = ask(snapshot_of(node("a"), pod("big", "9")), Question(documents(node("b", "16"))))
    assert [(row["pod"], row["node"]) for row in answer["lands"]] == [("default/big", "b")]


def test_a_changed_policy_changes_what_batch_may_have():
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 20}'},
    }
    live = snapshot_of(node("a"), pod("web", usage='{"cpu": "500m", "memory": "64Mi"}'), batch_pod("crunch", 1_500))
    answer = ask(live, Question(documents(config)))
    (row,) = answer["nodes"]
    was, becomes = row["batch_cpu"]
    assert was > 1_500 > becomes
    assert [usage["cpu"] for usage in row["usage"]] == [2_100, 2_100]  # what was measured, not what was asked for
    assert names(answer["stays"]) == ["default/crunch", "default/web"]


def test_time_can_be_set_and_is_kept():
    answer = ask(snapshot_of(node("a")), Question(documents(pod("new")), for_ms=7_000))
    assert (answer["virtual_ms"], answer["ended"]) == (7_000, "time")


def test_the_same_question_has_the_same_answer():
    live = snapshot_of(node("a"), node("b"), deployment("web", 3))
    question = Question(documents(deployment("web", 7)), drain=["a"])
    assert ask(live, question) == ask(live, question)


def test_a_change_that_the_gateway_refuses_is_refused():
    with pytest.raises(RefusedError):
        ask(snapshot_of(node("a")), Question(documents(pod("bad", "-1"))))


def test_a_node_without_a_heartbeat_stays_down_and_is_told():
    body = body_of(node("a"), node("b"))
    beats = body["buckets"]["heartbeats"]["entries"]
    body["buckets"]["heartbeats"]["entries"] = [one for one in beats if one["value"]["node"] != "b"]
    answer = ask(read_snapshot(body), Question(documents(pod("x", "3"), pod("y", "3"))))
    assert answer["snapshot"]["nodes_down"] == ["b"]
    assert any(note.startswith("no agent beats on b;") for note in answer["notes"])


def test_a_pod_that_nobody_measured_uses_its_request():
    body = body_of(node("a"), pod("web", "3"))
    body["usage"] = []
    answer = ask(read_snapshot(body), Question())
    assert answer["snapshot"]["pods_unmeasured"] == ["default/web"]


def test_a_service_that_dies_in_the_copy_leaves_no_answer(monkeypatch):
    async def die(self):
        raise ValueError("broken")

    monkeypatch.setattr(SchedulerService, "run", die)
    with pytest.raises(SimulationError, match=r"scheduler stopped.*broken"):
        ask(snapshot_of(node("a")), Question(documents(pod("new"))))


def test_what_is_no_snapshot_is_refused():
    with pytest.raises(SnapshotError, match="cannot be read"):
        read_snapshot({"buckets": {}})
