from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_scheduler.adapters.usage import UsageWindow
from cotenant_scheduler.core.estimate import Aggregation


def sample(second, cpu, memory=100, *, pods=(), system=None, interval_ms=1000):
    return NodeUsage(
        node="n",
        at_ms=second * 1000,
        interval_ms=interval_ms,
        usage=Usage(cpu_milli=cpu, memory_bytes=memory),
        system=Usage(cpu_milli=system, memory_bytes=system),
        pods=list(pods),
    )


def pod(uid, cpu, band="prod"):
    return PodUsage(uid=uid, namespace="default", name=uid, qos="LS", band=band, cpu_milli=cpu, memory_bytes=cpu)


def window(seconds=10, kept=100) -> UsageWindow:
    return UsageWindow(seconds * 1000, kept * 1000)


def test_plain_usage_is_the_mean_over_the_window():
    it = window()
    for second, cpu in enumerate([100, 200, 300], 1):
        assert it.add(sample(second, cpu))
    metric = it.metric(())
    assert (metric.usage, metric.update_ms, metric.interval_ms) == ((200, 100), 3000, 10_000)


def test_old_samples_leave_the_window():
    it = window(seconds=2)
    for second, cpu in enumerate([900, 100, 200], 1):
        it.add(sample(second, cpu))
    assert it.metric(()).usage[0] == 150


def test_longer_intervals_weigh_more():
    it = window()
    it.add(sample(1, 100))
    it.add(sample(4, 500, interval_ms=3000))
    assert it.metric(()).usage[0] == 400


def test_no_cpu_yet_is_no_sample():
    it = window()
    assert not it.add(sample(1, None))
    assert it.metric(()) is None


def test_a_late_sample_is_dropped():
    it = window()
    it.add(sample(5, 100))
    assert not it.add(sample(4, 900))
    assert not it.add(sample(5, 900))
    assert it.metric(()).usage[0] == 100


def test_a_pod_is_averaged_over_the_whole_window_like_its_node():
    """Half of the window without the pod: node 100 → 300, pod mean 100, so that an estimate of 200 adds 100."""
    it = window()
    it.add(sample(1, 100))
    it.add(sample(2, 300, pods=[pod("a", 200)]))
    metric = it.metric(())
    assert metric.usage[0] == 200
    assert metric.pods["a"].used[0] == 100


def test_a_pod_that_left_is_gone_with_its_last_sample():
    it = window(seconds=2)
    it.add(sample(1, 100, pods=[pod("a", 50)]))
    it.add(sample(2, 100))
    assert "a" in it.metric(()).pods
    it.add(sample(3, 100))
    assert "a" not in it.metric(()).pods


def test_bands_are_read_in_either_spelling():
    it = window()
    it.add(sample(1, 100, pods=[pod("a", 1), pod("b", 1, "koord-prod"), pod("c", 1, "batch")]))
    assert {uid: each.is_prod for uid, each in it.metric(()).pods.items()} == {"a": True, "b": True, "c": False}


def test_percentiles_are_nearest_rank_over_their_duration():
    it = window()
    for second in range(1, 21):
        it.add(sample(second, second * 10))
    p50, p95, recent = Aggregation("p50"), Aggregation("p95"), Aggregation("p95", 5_000)
    aggregated = it.metric((p50, p95, recent)).aggregated
    assert (aggregated[p50][0], aggregated[p95][0], aggregated[recent][0]) == (100, 190, 200)


def test_percentiles_reach_further_back_than_plain_usage():
    it = window(seconds=1, kept=100)
    it.add(sample(1, 900))
    it.add(sample(50, 100))
    assert it.metric((Aggregation("p99"),)).aggregated[Aggregation("p99")][0] == 900
    assert it.metric(()).usage[0] == 100


def test_system_usage_may_be_unknown():
    it = window()
    it.add(sample(1, 100))
    assert it.metric(()).system == (0, 0)
