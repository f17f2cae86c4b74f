"""Vectors of Koordinator's LoadAwareScheduling: a node of 96 cores and 512 GiB."""

import numpy as np
import pytest

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.estimate import Aggregation, LoadPolicy, NodeMetric, PodMetric, Thresholds
from cotenant_scheduler.core.plugins.load_aware import LoadAware

GI = 1 << 30
PLUGIN = LoadAware()
ON = Thresholds(plain={"cpu": 65, "memory": 95})
LARGE = {"cpu": "16", "memory": "32Gi", "limits": {"cpu": "16", "memory": "32Gi"}}
NONE = {"limits": {"cpu": "1m", "memory": "1"}}


def big(world, **fields) -> None:
    world.node("n", cpu="96", memory="512Gi", **fields)


def passes(world, pod) -> bool:
    rows = np.array([world.engine.cluster.rows["n"]])
    return bool(PLUGIN.passes(pod.shape, world.engine.cluster, rows)[0])


def score(world, pod) -> int:
    world.engine.cluster.expire_metrics(world.now_ms)
    rows = np.array([world.engine.cluster.rows["n"]])
    return int(PLUGIN.score(pod.shape, world.engine.cluster, rows)[0])


def refusal(world, pod):
    return PLUGIN.refuse(pod.shape, world.engine.cluster, world.engine.cluster.rows["n"])


@pytest.mark.parametrize(
    ("cpu", "memory", "code"), [("60", "256Gi", None), ("70", "256Gi", "cpu"), ("60", "500Gi", "memory")]
)
def test_usage_against_thresholds(make_world, cpu, memory, code):
    world = make_world(LoadPolicy(thresholds=ON))
    big(world)
    world.metric("n", cpu, memory)
    pod = world.request("a", **NONE)
    assert passes(world, pod) == (code is None)
    if code:
        assert refusal(world, pod).code is ReasonCode.LOAD_THRESHOLD_EXCEEDED
        assert refusal(world, pod).numbers["resource"] == code


def test_equal_to_the_threshold_passes(make_world):
    world = make_world(LoadPolicy(thresholds=Thresholds(plain={"cpu": 65})))
    big(world)
    world.metric("n", "62400m", "0")
    assert passes(world, world.request("a", **NONE))
    world.metric("n", "62900m", "0")
    assert not passes(world, world.request("a", **NONE))


def test_thresholds_are_off_by_default(world):
    big(world)
    world.metric("n", "96", "512Gi")
    assert passes(world, world.request("a", **LARGE))


def test_a_percentile_over_the_threshold_refuses_though_the_mean_is_low(make_world):
    thresholds = Thresholds(aggregated={"cpu": 65}, aggregation=Aggregation("p95"))
    world = make_world(LoadPolicy(thresholds=thresholds))
    big(world)
    world.metric("n", "30", "10Gi", aggregated={Aggregation("p95", 300_000): (70_000, 10 * GI)})
    pod = world.request("a", **NONE)
    assert not passes(world, pod)
    assert "aggregated" in refusal(world, pod).message


def test_a_wanted_percentile_that_does_not_exist_is_replaced_by_the_sum_of_estimates(make_world):
    thresholds = Thresholds(aggregated={"cpu": 65}, aggregation=Aggregation("p95", 300_000))
    world = make_world(LoadPolicy(thresholds=thresholds))
    big(world)
    world.metric("n", "90", "10Gi")
    assert passes(world, world.request("a", **NONE))
    world.submit("filler", cpu="70")
    world.run()
    assert not passes(world, world.request("a", cpu="6"))


def test_daemon_sets_are_not_held_back(make_world):
    world = make_world(LoadPolicy(thresholds=ON))
    big(world)
    world.metric("n", "70", "10Gi")
    assert passes(world, world.request("a", owner_kind="DaemonSet", **NONE))


def test_a_threshold_of_zero_is_off(make_world):
    world = make_world(LoadPolicy(thresholds=Thresholds(plain={"cpu": 65, "memory": 0})))
    big(world)
    world.metric("n", "10", "500Gi")
    assert passes(world, world.request("a", **NONE))


def test_a_node_may_have_its_own_thresholds(make_world):
    world = make_world(LoadPolicy(thresholds=ON))
    big(world, thresholds=Thresholds(plain={"memory": 60}))
    world.metric("n", "10", "316Gi")
    assert not passes(world, world.request("a", **NONE))


def test_own_thresholds_of_one_set_leave_the_others_alone(make_world):
    world = make_world(LoadPolicy(thresholds=Thresholds(plain={"cpu": 65}, prod={"cpu": 50})))
    big(world, thresholds=Thresholds(plain={"cpu": 90}))
    world.metric("n", "70", "1Gi")
    assert passes(world, world.request("a", band="batch", qos="BE", **NONE))
    prod = world.request("b", band="prod", cpu="60", memory="1Gi")
    assert not passes(world, prod)
    assert refusal(world, prod).numbers["view"] == "prod usage"


def test_prod_pods_are_judged_by_prod_usage(make_world):
    world = make_world(LoadPolicy(thresholds=Thresholds(plain={"cpu": 65}, prod={"cpu": 65})))
    big(world)
    world.metric("n", "80", "1Gi")
    assert passes(world, world.request("a", band="prod", **NONE))
    assert not passes(world, world.request("b", band="batch", qos="BE", **NONE))


def test_system_usage_joins_the_prod_view_when_asked(make_world):
    policy = LoadPolicy(thresholds=Thresholds(prod={"cpu": 65}), prod_usage_includes_system=True)
    world = make_world(policy)
    big(world)
    world.metric("n", "80", "1Gi", system=(70_000, 0))
    assert not passes(world, world.request("a", band="prod", **NONE))


def test_real_capacity_judges_an_amplified_node(make_world):
    world = make_world(LoadPolicy(thresholds=ON))
    big(world, load_capacity={"cpu": 48_000, "memory": 512 * GI})
    world.metric("n", "40", "1Gi")
    assert not passes(world, world.request("a", **NONE))


def test_a_node_without_metrics_passes_and_scores_nothing(make_world):
    world = make_world(LoadPolicy(thresholds=ON))
    big(world)
    pod = world.request("a", **LARGE)
    assert passes(world, pod)
    assert score(world, pod) == 0


@pytest.mark.parametrize(
    ("policy", "ok"),
    [
        (LoadPolicy(thresholds=ON), False),
        (LoadPolicy(thresholds=ON, schedule_when_expired=True), True),
        (LoadPolicy(thresholds=ON, filter_expired=False), True),
        (LoadPolicy(), True),
    ],
)
def test_expired_metrics_follow_the_policy(make_world, policy, ok):
    world = make_world(policy)
    big(world)
    world.metric("n", "10", "10Gi", update_ms=world.now_ms - 180_000)
    world.engine.cluster.expire_metrics(world.now_ms)
    pod = world.request("a", **NONE)
    assert passes(world, pod) == ok
    if not ok:
        assert refusal(world, pod).code is ReasonCode.METRICS_EXPIRED


def test_expired_values_are_used_as_they_are_when_not_filtered(make_world):
    world = make_world(LoadPolicy(thresholds=ON, filter_expired=False))
    big(world)
    world.metric("n", "70", "10Gi", update_ms=world.now_ms - 180_000)
    world.engine.cluster.expire_metrics(world.now_ms)
    assert not passes(world, world.request("a", **NONE))


def test_a_fresh_report_ends_the_expiry(make_world):
    world = make_world(LoadPolicy(thresholds=ON))
    big(world)
    world.metric("n", "90", "10Gi", update_ms=world.now_ms - 600_000)
    world.submit("a", cpu="1")
    world.run()
    assert world.verdict("a").reason is ReasonCode.METRICS_EXPIRED
    world.metric("n", "5", "10Gi")
    world.later(1000)
    assert world.where("a") == "n"


def test_score_of_an_empty_node(world):
    big(world)
    world.metric("n", "0", "0")
    assert score(world, world.request("a", **LARGE)) == 90


def test_score_of_a_loaded_node(world):
    big(world)
    world.metric("n", "32", "10Gi")
    assert score(world, world.request("a", **LARGE)) == 72


def test_score_counts_a_pod_that_was_just_placed(world):
    big(world)
    world.metric("n", "32", "10Gi")
    world.submit("first", **LARGE)
    world.run()
    assert score(world, world.request("a", **LARGE)) == 63


def test_score_with_a_dominant_weight(make_world):
    world = make_world(LoadPolicy(dominant_weight=10))
    big(world)
    world.metric("n", "0", "0")
    assert score(world, world.request("a", **LARGE)) == 85


def test_score_of_a_pod_that_asks_for_nothing(world):
    big(world)
    world.metric("n", "0", "0")
    assert score(world, world.request("a")) == 99


def test_score_of_an_expired_report_is_zero(world):
    big(world)
    world.metric("n", "0", "0", update_ms=world.now_ms - 180_000)
    assert score(world, world.request("a", **LARGE)) == 0


def test_score_by_request_and_limit(world):
    big(world)
    world.metric("n", "0", "0")
    pod = world.request("a", cpu="8", memory="16Gi", limits={"cpu": "16", "memory": "32Gi"})
    assert score(world, pod) == 90


def test_score_by_prod_usage(make_world):
    """16,000 cores leave the CPU part at 0; memory holds 100 GiB reported and 22.4 GiB estimated: 76 of 100."""
    world = make_world(LoadPolicy(score_by_prod_usage=True))
    big(world)
    world.submit("assigned", band="prod", **LARGE)
    world.run()
    reported = {"uid-assigned": PodMetric((30_000, 100 * GI), is_prod=True)}
    world.engine.set_metric("n", NodeMetric(world.now_ms, 60_000, (0, 0), pods=reported))
    new = world.request("b", band="prod", cpu="16000", memory="32Gi")
    assert score(world, new) == 38


def test_a_batch_pod_scores_like_its_native_twin(world):
    big(world)
    world.metric("n", "0", "0")
    assert score(world, world.request("a", band="batch", qos="BE", cpu="16", memory="32Gi")) == 90


def test_a_herd_within_one_report_interval_stops_at_the_threshold(make_world):
    """40 % used, limit 65 %, pods of 5 %: five land, whatever the order of report and placement."""
    policy = LoadPolicy(thresholds=Thresholds(plain={"cpu": 65}), scaling_factors={"cpu": 100, "memory": 100})
    world = make_world(policy)
    world.node("n", cpu="100", memory="100Gi")
    world.metric("n", "40", "1Gi")
    for i in range(20):
        world.submit(f"p{i:02}", cpu="5", memory="1Mi")
    assert len(world.placed(world.run())) == 5
    assert world.verdict("p19").reason is ReasonCode.LOAD_THRESHOLD_EXCEEDED


def test_a_pod_that_ended_no_longer_counts(make_world):
    policy = LoadPolicy(thresholds=Thresholds(plain={"cpu": 65}), scaling_factors={"cpu": 100, "memory": 100})
    world = make_world(policy)
    world.node("n", cpu="100", memory="100Gi")
    world.metric("n", "40", "1Gi")
    world.submit("a", cpu="25")
    world.submit("b", cpu="25")
    world.run()
    assert world.where("b") is None
    world.end("a")
    world.later(1000)
    assert world.where("b") == "n"
