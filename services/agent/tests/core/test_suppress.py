import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_agent.core.suppress import (
    IDLE_CLASS_RAISE_PERCENT,
    Cpu,
    SuppressInputs,
    be_target,
    choose_cpus,
    next_cpu_count,
    next_quota_us,
    pick_cpus,
)

CORE = 1_000


def target(node, non_be, be, *, capacity=20, threshold=70, **more):
    inputs = SuppressInputs(
        capacity_milli=capacity * CORE,
        threshold_percent=threshold,
        node_milli=None if node is None else node * CORE,
        non_be_milli=non_be * CORE,
        be_milli=be * CORE,
        **more,
    )
    found = be_target(inputs)
    return None if found is None else found.limit_milli


def test_a_raise_in_the_idle_class_takes_larger_steps():
    assert next_quota_us(10 * 100_000, 80 * CORE, 80 * CORE, IDLE_CLASS_RAISE_PERCENT) == 50 * 100_000


def test_a_pod_of_unknown_class_counts_as_latency_sensitive():
    assert target(11, 8, 4) == 6 * CORE


def test_room_is_the_line_less_services_and_system():
    assert target(12, 8, 2) == 4 * CORE


def test_a_best_effort_host_application_is_not_charged_to_the_system():
    assert target(12, 8, 3) == 5 * CORE


def test_the_reserve_is_a_floor_of_the_system_share():
    assert target(11, 8, 4, reserved_milli=2_000) == 4 * CORE


def test_a_minimum_keeps_best_effort_alive():
    assert target(20, 14, 4, min_percent=10) == 2 * CORE


def test_an_unmeasured_node_gives_no_target():
    assert target(None, 8, 4) is None


@given(
    st.integers(0, 100), st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 100)
)
def test_the_target_never_falls_below_its_floor(threshold, node, non_be, be, min_percent):
    inputs = SuppressInputs(64_000, threshold, node, non_be, be, 0, min_percent)
    found = be_target(inputs)
    assert found is not None
    assert found.limit_milli >= 64_000 * min_percent // 100


@pytest.mark.parametrize(
    ("current_cores", "target_cores", "written_us"),
    [
        (10, 20, 1_800_000),
        (19, 20, 2_000_000),
        (24, 20, 2_000_000),
        (19.8, 20, None),
        (0.8, 0.001, 2_000),
    ],
)
def test_quota_steps_on_an_80_core_node(current_cores, target_cores, written_us):
    current_us = int(current_cores * 100_000)
    assert next_quota_us(current_us, int(target_cores * CORE), 80 * CORE) == written_us


def test_the_first_cap_is_applied_in_one_step():
    assert next_quota_us(-1, 20 * CORE, 80 * CORE) == 2_000_000


@given(st.integers(2_000, 8_000_000), st.integers(0, 100_000), st.integers(1_000, 100_000))
def test_a_quota_grows_by_at_most_a_tenth_and_never_falls_under_the_minimum(current, limit, capacity):
    written = next_quota_us(current, limit, capacity)
    if written is not None:
        assert written >= 2_000
        assert written <= current + capacity * 100 // 10


def test_at_least_two_cpus_and_growth_by_a_tenth_of_the_node():
    assert next_cpu_count(100, 4, 8) == 2
    assert next_cpu_count(7_500, 4, 8) == 5
    assert next_cpu_count(2_100, 8, 8) == 3


def spread(total, *, per_core, per_bucket, interleaved=False):
    """Cpus of cores with two threads, either next to each other or half the machine apart."""
    half = total // 2
    cpus = []
    for cpu in range(total):
        core = cpu % half if interleaved else cpu // per_core
        bucket = (core * per_core) // per_bucket
        cpus.append(Cpu(cpu, core, bucket, bucket))
    return cpus


def test_distant_siblings_come_first_then_the_next_socket():
    assert pick_cpus(3, spread(8, per_core=2, per_bucket=4, interleaved=True)) == (0, 4, 2)


def test_adjacent_siblings_come_first_then_the_next_socket():
    assert pick_cpus(3, spread(8, per_core=2, per_bucket=4)) == (0, 1, 4)


def test_the_choice_does_not_depend_on_input_order():
    cpus = spread(16, per_core=2, per_bucket=4)
    assert pick_cpus(5, cpus) == pick_cpus(5, cpus[::-1]) == (0, 1, 4, 5, 8)


def test_nothing_wanted_or_nothing_there_gives_nothing():
    assert pick_cpus(0, spread(8, per_core=2, per_bucket=4)) == ()
    assert pick_cpus(3, []) == ()
    assert choose_cpus(3, [], []) == ()


@pytest.mark.parametrize(
    ("reserved", "chosen"),
    [({3}, {0, 4, 5}), ({0, 1, 5, 6}, {2, 3, 4}), ({1, 2, 3, 4, 5, 6}, set())],
)
def test_reserved_cpus_are_left_out_and_too_few_keeps_the_old_set(reserved, chosen):
    cpus = [cpu for cpu in spread(8, per_core=2, per_bucket=4) if cpu.cpu not in reserved]
    assert set(choose_cpus(3, cpus)) == chosen


def test_lsr_cpus_are_lent_in_proportion():
    cpus = spread(8, per_core=2, per_bucket=4)
    chosen = choose_cpus(4, cpus[4:], cpus[:4])
    assert len([cpu for cpu in chosen if cpu < 4]) == 2


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=32))
def test_a_pick_has_exactly_the_wanted_cpus_or_none(count, places):
    cpus = [Cpu(number, number // 2, socket, numa) for number, (socket, numa) in enumerate(places)]
    picked = pick_cpus(count, cpus)
    assert len(set(picked)) == len(picked)
    assert len(picked) == (count if 0 < count <= len(cpus) else 0)
