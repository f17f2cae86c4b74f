import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.demo import stats
from cotenant.demo.plan import Arm
from cotenant.demo.stats import Work


def test_percentile_is_a_value_that_was_seen():
    assert stats.nearest_rank([3, 1, 2, 4], 50) == 2
    assert stats.nearest_rank([3, 1, 2, 4], 99) == 4
    assert stats.nearest_rank(range(1, 1001), 99.9) == 999


def test_no_samples_have_no_percentile():
    assert stats.nearest_rank([], 99) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_at_least_that_many_values_are_not_above_the_percentile(values, percent):
    found = stats.nearest_rank(values, percent)

    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-6


def test_work_of_different_kinds_is_summed_in_core_seconds():
    work = {"compress": Work(400, 2.1), "hash": Work(300, 3.0)}

    assert stats.work_core_seconds(work, {"compress": 200.0, "hash": 100.0}) == 5.0


def test_rates_come_from_cpu_time_and_not_from_wall_time():
    assert stats.unit_rates({"hash": Work(300, 1.5), "sort": Work(0, 0.0)}) == {"hash": 200.0}


def test_leftover_is_what_service_load_generator_and_system_did_not_use(build):
    # 20 core-seconds, 8 for the service, 1 for the load generator; busy 19 of which 9 were batch: 1 is the system's.
    segment = build.segment()

    assert stats.other_cpu_s(segment) == 1.0
    assert stats.leftover_core_seconds(segment) == 10.0


def test_work_share_is_work_done_over_work_that_leftover_cpu_could_do(build):
    found = stats.summarise(Arm.COTENANT, [build.segment()], build.RATES)

    assert found.work_share == pytest.approx(0.9)  # 1800 units at 200 a core-second, of 10 core-seconds
    assert found.cpu_share == pytest.approx(0.9)
    assert found.work_per_s == 180.0


def test_rounding_of_ticks_never_makes_the_system_use_less_than_nothing(build):
    segment = build.segment(busy_cpu_s=17.9)

    assert stats.other_cpu_s(segment) == 0.0


def test_rounds_are_pooled_by_sample_and_not_by_averaging_percentiles(build):
    calm = build.segment(samples=build.samples([1.0] * 99))
    rough = build.segment(samples=build.samples([100.0]), round=2)

    found = stats.summarise(Arm.COTENANT, [calm, rough], build.RATES)

    assert found.samples == 100
    assert found.p99_ms == 1.0
    assert found.p999_ms == 100.0
    assert found.busy == pytest.approx(0.95)


def test_other_arms_do_not_leak_in(build):
    found = stats.summarise(Arm.ALONE, [build.segment(Arm.COTENANT)], build.RATES)

    assert found.samples == 0
    assert found.p99_ms is None
    assert found.work_share is None


def test_errors_count_with_their_latency(build):
    late = build.samples([2000.0] * 5, ok=False)
    found = stats.summarise(Arm.COTENANT, [build.segment(samples=build.samples([1.0] * 5) + late)], build.RATES)

    assert found.errors == 5
    assert found.p99_ms == 2000.0


def test_memory_over_grant_is_not_made_up_for_by_modest_neighbours():
    over = stats.memory_over_grant({"greedy": 900, "modest": 10}, {"greedy": 100, "modest": 100})

    assert over == 800


def test_the_arms_that_hold_nothing_back_tell_what_a_core_second_can_do(build):
    done = ((Arm.UNCONTROLLED, 80), (Arm.WEIGHTS, 90), (Arm.COTENANT, 500))
    segments = [build.segment(arm=arm, work={"hash": Work(units, 1.0)}) for arm, units in done]

    pooled = stats.full_machine_work({"hash": Work(100, 1.0)}, segments)

    assert stats.unit_rates(pooled) == {"hash": 90.0}
