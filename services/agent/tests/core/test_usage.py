from dataclasses import replace

from cotenant_agent.core.usage import GroupCounters, NodeCounters, group_usage, measure

SECOND_US = 1_000_000


def at(seconds, cpu_us, **more):
    return NodeCounters(at_us=seconds * SECOND_US, cpu_us=cpu_us, **more)


def test_the_first_sample_has_memory_but_no_cpu():
    usage = measure(None, at(1, 500, memory_bytes=7))
    assert (usage.cpu_milli, usage.memory_bytes) == (None, 7)


def test_cpu_is_the_delta_over_the_real_interval():
    assert measure(at(0, 0), at(2, 3 * SECOND_US)).cpu_milli == 1_500


def test_system_use_is_what_no_pod_accounts_for():
    before = at(0, 0, pods={"a": GroupCounters(cpu_us=0)})
    now = at(1, 1_500_000, pods={"a": GroupCounters(cpu_us=1_000_000)})
    assert measure(before, now).system_cpu_milli == 500


def test_system_use_is_never_negative():
    before = at(0, 0, pods={"a": GroupCounters(cpu_us=0)})
    now = at(1, 900_000, pods={"a": GroupCounters(cpu_us=1_000_000)})
    assert measure(before, now).system_cpu_milli == 0


def test_system_use_is_unknown_while_a_pod_is_unknown():
    now = at(1, 900_000, pods={"new": GroupCounters(cpu_us=5)})
    assert measure(at(0, 0), now).system_cpu_milli is None


def test_group_totals_keep_the_system_known_while_pods_come_and_go():
    group = {"be": GroupCounters(cpu_us=0)}
    before = at(0, 0, groups=group)
    now = at(1, 900_000, groups={"be": GroupCounters(cpu_us=600_000)}, pods={"new": GroupCounters(cpu_us=5)})
    assert measure(before, now).system_cpu_milli == 300


def test_a_counter_that_went_back_is_unknown():
    old = GroupCounters(cpu_us=100, memory_bytes=1)
    assert group_usage(old, replace(old, cpu_us=50), SECOND_US).cpu_milli is None


def test_throttling_is_throttled_over_elapsed_periods_and_zero_without_periods():
    old = GroupCounters(periods=10, throttled_periods=2)
    assert group_usage(old, GroupCounters(periods=20, throttled_periods=7), SECOND_US).throttled_ratio == 0.5
    assert group_usage(old, old, SECOND_US).throttled_ratio == 0.0


def test_wait_is_given_per_second_and_per_scheduling():
    old = GroupCounters(wait_us=0, slices=0)
    usage = group_usage(old, GroupCounters(wait_us=40_000, slices=10), 2 * SECOND_US)
    assert (usage.wait_ms_per_s, usage.wait_ms_per_slice) == (20.0, 4.0)


def test_a_pod_that_was_never_scheduled_has_no_mean_wait():
    same = GroupCounters(wait_us=5, slices=3)
    assert group_usage(same, same, SECOND_US).wait_ms_per_slice is None
