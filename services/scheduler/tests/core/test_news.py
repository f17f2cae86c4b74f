"""Who is woken by what: a change of one node wakes those that this node would take, and nobody else."""

import pytest

from cotenant_scheduler.core.charge import charge_of
from cotenant_scheduler.core.estimate import LoadPolicy, Thresholds

HOT = LoadPolicy(thresholds=Thresholds(plain={"cpu": 50}))


def attempts(world, ms=0) -> int:
    return len(world.later(ms))


@pytest.fixture
def hot(make_world):
    """Two nodes too hot for anybody, fifty different pods waiting for them to cool down."""
    world = make_world(HOT)
    for name in ("n", "m"):
        world.node(name, cpu="10", memory="64Gi")
        world.metric(name, "9", "1Gi")
    for i in range(50):
        world.submit(f"p{i:02}", cpu=f"{1000 + i}m", memory="1Gi")
    world.run()
    return world


def test_reports_of_nodes_that_stay_hot_wake_nobody(hot):
    for second in range(20):
        hot.metric("n", f"{8000 + second}m", "1Gi")
        assert attempts(hot, 1_000) == 0


def test_a_report_of_a_node_that_cooled_down_wakes_at_once_those_it_takes(hot):
    hot.metric("m", "3", "1Gi")
    placed = hot.placed(hot.run())
    assert placed[:1] == ["p00"]
    assert {hot.where(name) for name in placed} == {"m"}


def test_room_on_a_hot_node_wakes_nobody(hot):
    pod = hot.request("other", cpu="1")
    hot.engine.put_charge(charge_of(pod, "n", hot.now_ms))
    hot.run()
    hot.engine.release(pod.uid)
    assert attempts(hot, 2_000) == 0


def test_thousands_that_wait_do_not_all_ask_when_a_node_is_cordoned(world):
    world.node("n", cpu="1")
    for i in range(300):
        world.submit(f"p{i:03}", cpu=f"{2000 + i}m")
    world.run()
    world.node("n", cpu="1", unschedulable=True)
    assert 0 < attempts(world, 1_000) <= 64
    assert attempts(world, 5_000) == 300 - 64


def test_a_signal_wakes_nobody_and_changes_who_is_chosen(make_world):
    world = make_world()
    world.node("n", cpu="1")
    world.submit("a", cpu="2")
    world.run()
    world.engine.set_signal("interference/prod", "n", 5)
    assert attempts(world, 2_000) == 0


def test_a_metric_that_expires_late_is_noticed_though_an_older_one_was_due_earlier(make_world):
    world = make_world(LoadPolicy(thresholds=Thresholds(plain={"cpu": 50}), expiration_ms=10_000))
    world.node("n", cpu="10")
    start = world.now_ms
    for step in range(5):
        world.now_ms = start + 4_000 * step
        world.metric("n", "1", "1Gi")
        world.run()
    world.now_ms = start + 4_000 * 4 + 9_999
    world.submit("early", cpu="1")
    assert world.placed(world.run()) == ["early"]
    world.now_ms += 1
    world.submit("late", cpu="1", priority=1)
    assert world.placed(world.run()) == []
