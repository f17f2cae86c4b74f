import pytest

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.queue import Queue
from cotenant_scheduler.core.verdict import Verdict, Waiting

NO = Verdict(Waiting.UNSCHEDULABLE, ReasonCode.INSUFFICIENT_RESOURCE, "no room")


@pytest.fixture
def pods(world):
    return [world.request(f"p{i}", created_ms=i) for i in range(4)]


def drain(queue):
    names = []
    while (pod := queue.pop()) is not None:
        names.append(pod.name)
    return names


def test_leaves_in_order_whatever_the_order_of_arrival(pods):
    queue = Queue()
    for pod in reversed(pods):
        queue.add(pod, "g")
    assert drain(queue) == ["p0", "p1", "p2", "p3"]


def test_a_removed_pod_is_never_popped(pods):
    queue = Queue()
    for pod in pods:
        queue.add(pod, "g")
    queue.remove(pods[0].uid)
    assert drain(queue) == ["p1", "p2", "p3"]


def test_a_newcomer_of_a_parked_group_gets_its_answer_at_once(pods):
    queue = Queue()
    queue.add(pods[0], "g")
    queue.pop()
    queue.park(pods[0].uid, NO, 0)
    assert queue.add(pods[1], "g") is NO
    assert queue.pop() is None


def test_members_popped_after_the_group_was_parked_are_answered(pods):
    queue = Queue()
    for pod in pods[:2]:
        queue.add(pod, "g")
    queue.park(queue.pop().uid, NO, 0)
    assert queue.answered(queue.pop().uid) is NO


def parked(pods):
    queue = Queue()
    for pod in pods:
        queue.add(pod, "g")
    queue.park(queue.pop().uid, NO, 0)
    while (pod := queue.pop()) is not None:
        queue.answered(pod.uid)
    return queue, queue.group_of(pods[0].uid)


def test_a_wake_lets_one_member_probe_and_success_lets_the_next(pods):
    queue, group = parked(pods)
    queue.wake(group, 0, at_once=True)
    assert drain(queue) == ["p0"]
    queue.placed(pods[0].uid)
    assert drain(queue) == ["p1"]


def test_a_probe_that_is_withdrawn_passes_its_turn_on(pods):
    queue, group = parked(pods)
    queue.wake(group, 0, at_once=True)
    queue.remove(pods[0].uid)
    assert drain(queue) == ["p1"]


def test_a_vague_wake_waits_for_the_back_off(pods):
    queue, group = parked(pods)
    queue.wake(group, 5, at_once=False)
    assert queue.pop() is None
    due = queue.next_timer_ms()
    assert due == 20
    queue.tick(due)
    assert drain(queue) == ["p0"]


def test_the_back_off_doubles_up_to_a_second(pods):
    queue, group = parked(pods)
    waits = []
    for _ in range(10):
        waits.append(group.not_before_ms)
        queue.wake(group, group.not_before_ms, at_once=False)
        queue.park(queue.pop().uid, NO, 0)
    assert waits[:4] == [20, 40, 80, 160]
    assert waits[-1] == 1000


def test_groups_without_members_leave_nothing(pods):
    queue, _ = parked(pods)
    for pod in pods:
        queue.remove(pod.uid)
    assert len(queue) == 0
    assert queue.parked_on(ReasonCode.INSUFFICIENT_RESOURCE) == []
    assert queue.parked_on("nodes") == []
