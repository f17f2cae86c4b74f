import pytest

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.snapshot import Sold


def test_native_resources_fit_up_to_the_last_milli_core(world):
    world.node("n", cpu="1500m", memory="1Gi")
    world.submit("a", cpu="1")
    world.submit("b", cpu="500m")
    world.submit("c", cpu="1m")
    assert world.placed(world.run()) == ["a", "b"]
    assert world.verdict("c").reason is ReasonCode.INSUFFICIENT_RESOURCE


def test_the_sentence_names_the_nearest_node_and_what_is_missing(world):
    world.node("near", cpu="4")
    world.node("far", cpu="2")
    world.submit("holder", cpu="3900m", spec={"nodeName": "near"})
    world.submit("other", cpu="2", spec={"nodeName": "far"})
    world.run()
    world.submit("a", cpu="500m")
    world.run()
    (group,) = world.verdict("a").groups
    assert (group.nodes, group.example_node) == (2, "near")
    assert "needs 500m, node near has 100m left of 4 allocatable" in group.message
    assert group.helps == "400m of cpu freed on near (held by default/holder 3900m)"


def test_batch_resources_come_from_what_is_sold(world):
    world.node("n", sold={"kubernetes.io/batch-cpu": 1600, "kubernetes.io/batch-memory": 1 << 30})
    world.submit("a", band="batch", qos="BE", cpu="1480m")
    world.submit("b", band="batch", qos="BE", cpu="500m")
    assert world.placed(world.run()) == ["a"]
    message = world.verdict("b").groups[0].message
    assert "kubernetes.io/batch-cpu: needs 500m, node n has 120m left of 1600m sold" in message


def test_batch_does_not_eat_native_room(world):
    world.node("n", cpu="1", sold={"kubernetes.io/batch-cpu": 1000})
    world.submit("be", band="batch", qos="BE", cpu="1")
    world.submit("ls", cpu="1")
    assert sorted(world.placed(world.run())) == ["be", "ls"]


def test_not_sold_is_refused_with_the_reason_of_the_seller(world):
    world.node("n", sold=Sold({}, degraded="MetricsMissing", message="no usage from n for 90 s"))
    world.submit("a", band="batch", qos="BE", cpu="1")
    world.run()
    message = world.verdict("a").groups[0].message
    assert "node n sells none: no usage from n for 90 s" in message


def test_nothing_published_yet_is_said_so(world):
    world.node("n")
    world.submit("a", band="mid", qos="LS", cpu="1")
    world.run()
    assert "nothing was published for it yet" in world.verdict("a").message


def test_allocatable_of_the_node_cannot_stand_in_for_what_is_sold(world):
    world.node("n", extra={"kubernetes.io/batch-cpu": 9000})
    world.submit("a", band="batch", qos="BE", cpu="1")
    assert world.placed(world.run()) == []


def test_sold_zero_is_short_not_missing(world):
    world.node("n", sold={"kubernetes.io/batch-cpu": 0})
    world.submit("a", band="batch", qos="BE", cpu="1")
    world.run()
    assert "has 0m left of 0m sold" in world.verdict("a").message


def test_extended_resources_are_counted(world):
    world.node("n", extra={"nvidia.com/gpu": 2})
    world.node("plain")
    for name in ("a", "b", "c"):
        world.submit(name, requests={"nvidia.com/gpu": "1"})
    assert world.placed(world.run()) == ["a", "b"]
    messages = [group.message for group in world.verdict("c").groups]
    assert any("node plain has no such resource" in message for message in messages)
    assert any("node n has 0 left of 2" in message for message in messages)


def test_the_pod_count_is_a_resource(world):
    world.node("n", pods=1)
    world.submit("a")
    world.submit("b")
    assert world.placed(world.run()) == ["a"]


def test_a_node_without_a_pod_count_sets_no_limit(world):
    world.node("n", allocatable={"cpu": 4000})
    world.submit("a")
    assert world.placed(world.run()) == ["a"]


def test_a_request_larger_than_the_node_says_so(world):
    world.node("n", cpu="2")
    world.submit("a", cpu="3")
    world.run()
    assert "a smaller request (2 at most on n)" in world.verdict("a").helps[0]


def test_a_cut_below_what_runs_admits_nobody_and_shows_the_overdraft(world):
    world.cut = {"kubernetes.io/batch-cpu"}
    world.node("n", sold={"kubernetes.io/batch-cpu": 2000})
    world.submit("a", band="batch", qos="BE", cpu="2")
    world.run()
    world.node("n", sold={"kubernetes.io/batch-cpu": 500})
    world.submit("b", band="batch", qos="BE", cpu="100m")
    assert world.placed(world.run()) == []
    assert "−1500m left of 500m sold" in world.verdict("b").message


@pytest.mark.parametrize("first", ["empty", "full"])
def test_the_emptier_node_wins(world, first):
    for name in sorted(["empty", "full"], key=lambda each: each != first):
        world.node(name, cpu="8", memory="16Gi")
    world.submit("filler", cpu="4", memory="8Gi", spec={"nodeName": "full"})
    world.run()
    world.submit("a", cpu="1", memory="2Gi")
    world.run()
    assert world.where("a") == "empty"


def test_balance_breaks_a_tie_of_room(world):
    """Both have half of their room left on average; on one of them it is the wrong half."""
    world.node("skewed", cpu="10", memory="10Gi")
    world.node("even", cpu="10", memory="10Gi")
    world.submit("s", cpu="8", memory="2Gi", spec={"nodeName": "skewed"})
    world.submit("e", cpu="5", memory="5Gi", spec={"nodeName": "even"})
    world.run()
    world.submit("a", cpu="1", memory="1Gi")
    world.run()
    assert world.where("a") == "even"
