from cotenant_common.model.qos import PriorityBand
from cotenant_common.testing import builders
from cotenant_scheduler.core.estimate import (
    Aggregation,
    Estimate,
    LoadPolicy,
    NodeMetric,
    PlacedLoad,
    PodMetric,
    aggregated_usage,
    estimate_pod,
    share_of,
)
from cotenant_scheduler.core.request import read_shape

GI = 1 << 30
FACTORS = {"cpu": 85, "memory": 70}
PROD, BATCH, FREE = PriorityBand.PROD, PriorityBand.BATCH, PriorityBand.FREE


def test_a_pod_that_asks_for_nothing_gets_the_default():
    assert estimate_pod({}, {}, PROD, {"cpu": 100, "memory": 100}) == (250, 200 << 20)


def test_defaults_are_scaled_too():
    assert estimate_pod({}, {}, PROD, FACTORS) == (213, 146800640)


def test_a_guaranteed_pod():
    assert estimate_pod(both := {"cpu": 4000, "memory": 8 * GI}, both, PROD, FACTORS) == (3400, 6012954214)


def test_the_limit_counts_when_it_is_larger():
    assert estimate_pod({"cpu": 4000}, {"cpu": 8000}, PROD, FACTORS)[0] == 6800


def test_the_limit_caps_a_factor_over_100():
    assert estimate_pod({"cpu": 4000}, {"cpu": 4000}, PROD, {"cpu": 110})[0] == 4000


def test_batch_names_are_read_for_batch_pods():
    requests = {"kubernetes.io/batch-cpu": 4000, "kubernetes.io/batch-memory": 8 * GI}
    assert estimate_pod(requests, requests, BATCH, FACTORS) == (3400, 6012954214)


def test_a_request_alone_with_another_factor():
    assert estimate_pod({"cpu": 4000}, {}, PROD, {"cpu": 80})[0] == 3200


def test_free_pods_have_no_resource_mapping():
    assert estimate_pod({"cpu": 4000}, {}, FREE, FACTORS) == (0, 0)


def test_the_annotation_counts_only_where_customising_is_allowed():
    annotations = {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu":100}'}
    pod = builders.pod("a", cpu="4", annotations=annotations)
    assert read_shape(pod, LoadPolicy(allow_customize=True)).estimate.used[0] == 4000
    assert read_shape(pod, LoadPolicy()).estimate.used[0] == 3400


def test_a_malformed_annotation_changes_nothing():
    annotations = {"scheduling.koordinator.sh/load-estimated-scaling-factors": "nonsense"}
    pod = builders.pod("a", cpu="4", annotations=annotations)
    assert read_shape(pod, LoadPolicy(allow_customize=True)).estimate.used[0] == 3400


def placed(ms: int, *, is_prod: bool = False, used=(1000, GI), initialized_ms=None, **fields) -> PlacedLoad:
    return PlacedLoad("u", Estimate(used, **fields), is_prod, ms, initialized_ms)


def metric(update_ms: int, reported: PodMetric | None) -> NodeMetric:
    return NodeMetric(update_ms, 60_000, (0, 0), pods={} if reported is None else {"u": reported})


def test_an_unreported_pod_counts_in_full():
    assert share_of(placed(0), metric(100_000, None))[:2] == (1000, GI)


def test_a_pod_without_any_metric_counts_in_full():
    assert share_of(placed(0), None)[:2] == (1000, GI)


def test_a_pod_older_than_the_interval_counts_as_measured():
    assert share_of(placed(40_000), metric(100_000, PodMetric((10, 10))))[:2] == (0, 0)


def test_a_pod_younger_than_the_interval_counts_what_is_missing_to_its_estimate():
    assert share_of(placed(40_001), metric(100_000, PodMetric((400, GI))))[:2] == (600, 0)


def test_a_delta_never_subtracts():
    assert share_of(placed(90_000), metric(100_000, PodMetric((5000, 5 * GI))))[:2] == (0, 0)


def test_the_estimate_holds_until_its_deadline_after_scheduling():
    young = placed(0, after_scheduled_ms=100_001)
    assert share_of(young, metric(100_000, PodMetric((0, 0))))[:2] == (1000, GI)
    old = placed(0, after_scheduled_ms=100_000)
    assert share_of(old, metric(100_000, PodMetric((0, 0))))[:2] == (0, 0)


def test_the_deadline_after_initialisation_replaces_the_one_after_scheduling():
    pod = placed(0, after_scheduled_ms=1, initialized_ms=50_000, after_initialized_ms=60_000)
    assert share_of(pod, metric(100_000, PodMetric((0, 0))))[:2] == (1000, GI)


def test_prod_usage_counts_pods_that_are_prod_by_object_and_by_report():
    share = share_of(placed(0, is_prod=True), metric(100_000, PodMetric((300, 5), is_prod=True)))
    assert share[2:4] == (300, 5)


def test_a_prod_pod_reported_as_something_else_counts_its_estimate():
    share = share_of(placed(0, is_prod=True), metric(100_000, PodMetric((300, 5), is_prod=False)))
    assert share[2:4] == (1000, GI)


def test_other_pods_are_not_in_the_prod_view():
    assert share_of(placed(0), metric(100_000, PodMetric((300, 5), is_prod=True)))[2:4] == (0, 0)


def test_a_duration_of_zero_means_the_longest_window():
    report = NodeMetric(
        0, 0, (1, 1), aggregated={Aggregation("p95", 60_000): (2, 2), Aggregation("p95", 300_000): (3, 3)}
    )
    assert aggregated_usage(report, Aggregation("p95")) == (3, 3)


def test_without_percentiles_a_duration_of_zero_falls_back_to_plain_usage():
    assert aggregated_usage(NodeMetric(0, 0, (1, 1)), Aggregation("p95")) == (1, 1)


def test_a_named_window_without_data_has_no_usage():
    assert aggregated_usage(NodeMetric(0, 0, (1, 1)), Aggregation("p95", 60_000)) is None
