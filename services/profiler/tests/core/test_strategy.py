from cotenant_profiler.core.strategy import CalculatePolicy, EvictionBand, strategy_of


def test_with_the_idle_class_batch_is_sold_to_the_95_percent_line() -> None:
    assert strategy_of({}, idle_class=True).reclaim_percent == {"cpu": 95, "memory": 95}


def test_without_it_the_reference_lines_hold() -> None:
    assert strategy_of({}, idle_class=False).reclaim_percent == {"cpu": 60, "memory": 65}


def test_a_line_that_a_user_sets_holds() -> None:
    written = {"cpuReclaimThresholdPercent": 0, "memoryReclaimThresholdPercent": 120}
    assert strategy_of(written, idle_class=True).reclaim_percent == {"cpu": 0, "memory": 120}


def test_memory_is_not_sold_by_default_where_the_agent_would_evict_for_it() -> None:
    thresholds = {"memoryEvictThresholdPercent": 70}
    assert strategy_of({}, idle_class=True, thresholds=thresholds).reclaim_percent == {"cpu": 95, "memory": 65}
    switched_off = {**thresholds, "enable": False}
    assert strategy_of({}, idle_class=True, thresholds=switched_off).reclaim_percent["memory"] == 95


def test_eviction_ends_two_points_below_where_it_starts() -> None:
    strategy = strategy_of({}, idle_class=True, thresholds={"memoryEvictThresholdPercent": 97})
    assert strategy.eviction == {"memory": EvictionBand(97, 95)}


def test_reference_field_names_are_understood() -> None:
    strategy = strategy_of(
        {
            "enable": False,
            "cpuCalculatePolicy": "maxUsageRequest",
            "memoryCalculatePolicy": "request",
            "batchCPUThresholdPercent": 50,
            "degradeTimeMinutes": 5,
            "updateTimeThresholdSeconds": 60,
            "resourceDiffThreshold": 0.2,
            "midReclaimMode": "static",
            "midStaticCPUReservedPercent": 10,
            "midCPUThresholdPercent": 30,
            "midUnallocatedPercent": 5,
        },
        idle_class=True,
    )
    assert strategy.enable is False
    assert strategy.policy_of("cpu") is CalculatePolicy.MAX_USAGE_REQUEST
    assert strategy.policy_of("memory") is CalculatePolicy.REQUEST
    assert strategy.batch_threshold_percent == {"cpu": 50}
    assert (strategy.degrade_ms, strategy.refresh_ms, strategy.diff_ratio) == (300_000, 60_000, 0.2)
    assert (strategy.mid_static, strategy.mid_static_percent) == (True, {"cpu": 10})
    assert (strategy.mid_threshold_percent, strategy.mid_unallocated_percent) == ({"cpu": 30}, 5)
