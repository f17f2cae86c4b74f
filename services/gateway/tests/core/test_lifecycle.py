from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model import labels
from cotenant_gateway.core import lifecycle
from cotenant_gateway.core.lifecycle import Retention, expired, stop
from cotenant_gateway.core.records import MAX_EVICTIONS_KEPT, PodState, Put, Remove
from cotenant_gateway.core.tell import of_lost_removal, of_put
from cotenant_gateway.testing import ended, leaving, pending, pod_spec, running, seen


def decide(pod: PodState, *, lost: str | None = None, owner: bool = True, now_ms: int = 1000):
    return lifecycle.decide(pod, lost_reason=lost, owner_exists=owner, now_ms=now_ms, seed="s")


def test_a_running_pod_needs_nothing():
    assert decide(running()) is None


def test_deleting_a_pod_that_was_never_bound_removes_it_at_once():
    assert isinstance(stop(pending(), "m", "user", 5), Remove)


def test_deleting_a_running_pod_marks_it_with_its_own_grace():
    change = stop(running(spec={"terminationGracePeriodSeconds": 7}), "m", "user", 5)
    assert isinstance(change, Put)
    assert change.spec.deletion is not None
    assert (change.spec.deletion.grace_ms, change.spec.deletion.requeue, change.spec.tells) == (7000, False, ())


def test_force_does_not_wait_for_the_node():
    assert isinstance(stop(running(), "m", "user", 5, force=True), Remove)


def test_a_binding_that_the_agent_refused_counts_as_none():
    spec = pod_spec()
    refused = PodState(spec, seen(spec, "Failed", rejected=True))
    assert isinstance(stop(refused, "m", "user", 5), Remove)
    assert decide(refused) is None


def test_a_users_delete_outranks_an_eviction_under_way():
    change = stop(leaving(running()), "m", "user", 5)
    assert isinstance(change, Put)
    assert change.spec.deletion is not None
    assert change.spec.deletion.requeue is False
    assert stop(PodState(change.spec, running().seen, "n1"), "m", "user", 6) is None


def test_a_marked_pod_stays_until_its_node_says_it_ended():
    assert decide(leaving(running())) is None


def test_an_evicted_pod_is_replaced_in_one_write():
    pod = leaving(ended(phase="Deleted"), command_id="c1")
    change = decide(pod)
    assert isinstance(change, Put)
    assert change.old is pod.spec
    new = change.spec
    assert (new.incarnation, new.requeued_from, new.deletion, new.generation) == (1, pod.spec.uid, None, 1)
    assert new.uid != pod.spec.uid
    assert new.tells == ("pod.queued",)
    (past,) = new.evicted
    assert (past.uid, past.reason, past.data["command_id"], past.data["kind"]) == (
        pod.spec.uid,
        "NodeHot",
        "c1",
        "move",
    )


def test_after_a_users_delete_nothing_follows():
    assert isinstance(decide(leaving(ended(), requeue=False, kind=None)), Remove)


def test_work_that_succeeded_before_the_mark_is_not_run_again():
    spec = pod_spec()
    done = PodState(spec, seen(spec, "Succeeded", finished_ms=5), "n1")
    assert isinstance(decide(leaving(done, at_ms=10)), Remove)
    late = PodState(spec, seen(spec, "Succeeded", finished_ms=15), "n1")
    assert isinstance(decide(leaving(late, at_ms=10)), Put)


def test_a_marked_pod_whose_binding_is_gone_and_never_started_ends():
    spec = pod_spec()
    change = decide(leaving(PodState(spec)))
    assert isinstance(change, Put)
    assert change.spec.incarnation == 1


def test_the_end_of_a_pod_is_noted_once():
    change = decide(ended())
    assert isinstance(change, Put)
    assert change.spec.terminal_ms == 1000
    assert decide(replace(ended(), spec=change.spec)) is None


def test_a_pod_that_its_node_let_go_of_is_queued_again():
    change = decide(ended(phase="Deleted"))
    assert isinstance(change, Put)
    assert change.spec.incarnation == 1
    assert change.spec.tells == ("pod.evicted", "pod.queued")


def test_an_agents_own_emergency_is_told_even_without_its_report():
    spec = pod_spec()
    killed = PodState(spec, seen(spec, "Deleted", reason="NodePressure"), "n1")
    assert decide(killed).spec.tells == ("pod.evicted", "emergency.used", "pod.queued")


def test_a_lost_node_requeues_bare_pods_too():
    change = decide(running(), lost="NodeLost")
    assert isinstance(change, Put)
    assert (change.spec.requeue_reason, change.spec.tells) == ("NodeLost", ("pod.evicted", "pod.queued"))


def test_requeue_false_ends_with_the_node():
    pod = running(annotations={labels.REQUEUE: "false"})
    change = decide(pod, lost="NodeLost")
    assert isinstance(change, Put)
    # A removal could not tell of the eviction after a crash: its value is gone.
    assert [(fact.type, fact.reason) for fact in of_put(change.spec)] == [("pod.evicted", "NodeLost")]
    assert isinstance(decide(replace(pod, spec=change.spec), lost="NodeLost"), Remove)


def test_a_marked_pod_on_a_lost_node_does_not_wait_for_its_agent():
    assert isinstance(decide(leaving(running()), lost="NodeLost"), Put)
    assert isinstance(decide(leaving(running(), requeue=False), lost="NodeLost"), Remove)


def test_pods_of_a_deleted_controller_follow_it():
    assert isinstance(decide(pending(owner="Deployment/default/w"), owner=False), Remove)
    assert isinstance(decide(running(owner="Deployment/default/w"), owner=False), Put)


def test_the_story_of_evictions_is_bounded():
    pod = running()
    for _ in range(MAX_EVICTIONS_KEPT + 5):
        change = decide(replace(pod, seen=seen(pod.spec), bound_node="n1"), lost="NodeLost")
        pod = PodState(change.spec)
    assert len(pod.spec.evicted) == MAX_EVICTIONS_KEPT
    assert pod.spec.incarnation == MAX_EVICTIONS_KEPT + 5


def test_finished_pods_leave_by_age_and_by_number():
    pods = [ended(f"p{n}", noted_ms=n) for n in range(5)]
    assert [r.spec.name for r in expired(pods, 4, Retention(max_age_ms=3, max_count=9))] == ["p0", "p1"]
    assert [r.spec.name for r in expired(pods, 4, Retention(max_age_ms=99, max_count=2))] == ["p0", "p1", "p2"]
    assert expired([running()], 10**9) == []


@given(st.integers(min_value=0, max_value=50), st.text(max_size=5))
def test_successors_never_share_an_identity(incarnation, seed):
    spec = replace(pod_spec(), incarnation=incarnation)
    first = lifecycle.successor(spec, "NodeHot", 0, seed)
    second = lifecycle.successor(first, "NodeHot", 0, seed)
    assert len({spec.uid, first.uid, second.uid}) == 3


def test_an_evicted_pod_of_a_deleted_controller_has_no_successor():
    pod = leaving(ended(phase="Deleted", owner="Job/default/j"))
    assert isinstance(decide(pod, owner=False), Remove)
    assert isinstance(decide(pod), Put)


def test_a_removal_found_after_a_crash_tells_what_every_removal_of_its_kind_tells():
    assert [fact.type for fact in of_lost_removal("Node", "Node/-/n1")] == ["node.lost", "object.deleted"]
    assert [fact.type for fact in of_lost_removal("Pod", "Pod/default/a")] == ["pod.deleted"]


def test_an_emergency_that_only_the_status_tells_of_is_counted_as_one():
    spec = pod_spec()
    change = decide(PodState(spec, seen(spec, "Deleted", reason="NodePressure"), "n1"))
    assert isinstance(change, Put)
    assert change.spec.evicted[-1].data["kind"] == "emergency"
