import itertools
from collections import Counter

import pytest

from cotenant.demo import plan
from cotenant.demo.options import DemoOptions
from cotenant.demo.plan import Arm
from cotenant.errors import BadInputError


def test_every_round_has_every_arm_once():
    found = plan.segments(3)

    assert [segment.number for segment in found] == list(range(12))
    for number in (1, 2, 3):
        assert sorted(s.arm for s in found if s.round == number) == sorted(Arm)


def test_every_second_round_runs_backwards_so_that_drift_favours_no_arm():
    arms = [segment.arm for segment in plan.segments(2)]

    assert arms[4:] == arms[:4][::-1]


def test_cotenant_never_follows_an_arm_it_does_not_control():
    arms = [segment.arm for segment in plan.segments(4)]

    for before, after in itertools.pairwise(arms):
        assert after is not Arm.COTENANT or before in (Arm.ALONE, Arm.COTENANT)


def test_load_steps_are_10_40_20_percent_for_equal_times():
    assert plan.load_steps(12) == "10:4,40:4,20:4"


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 16, 96])
def test_neighbours_are_more_than_cores_and_ask_for_more_than_the_machine_has(cores):
    batch = plan.neighbours(cores)

    assert len(batch) > cores
    assert plan.requested_milli(batch) > cores * 1000
    assert len({neighbour.name for neighbour in batch}) == len(batch)


def test_only_the_second_neighbour_is_greedy_and_its_work_counts_as_compression():
    batch = plan.neighbours(4)

    assert [n.kind for n in batch].count(plan.GREEDY) == 1
    assert batch[1].kind == plan.GREEDY
    assert batch[1].work_kind == "compress"


@pytest.mark.parametrize("cores", [1, 2, 4, 6, 16])
def test_calibration_fills_every_core_with_each_kind_equally_often(cores):
    kinds = Counter(neighbour.kind for neighbour in plan.calibrators(cores))

    assert sum(kinds.values()) >= cores
    assert set(kinds) == set(plan.KINDS)
    assert len(set(kinds.values())) == 1


def test_the_balloon_is_a_quarter_of_what_is_available_and_never_above_2_gib():
    assert plan.balloon_bytes(1024 * plan.MIB) == 256 * plan.MIB
    assert plan.balloon_bytes(1 << 40) == 2048 * plan.MIB


def test_load_per_arm_does_not_depend_on_the_number_of_rounds():
    assert DemoOptions(rounds=2).segment_s * 2 == DemoOptions(rounds=4).segment_s * 4


def test_quick_is_one_short_round():
    quick = DemoOptions(rounds=5, quick=True).checked()

    assert quick.rounds == 1
    assert quick.segment_s < DemoOptions().segment_s


@pytest.mark.parametrize("options", [DemoOptions(rounds=0, arm_seconds=36), DemoOptions(rounds=50)])
def test_rounds_too_many_or_too_few_are_refused_with_what_is_possible(options):
    with pytest.raises(BadInputError, match="at least 1 round"):
        options.checked()


def test_options_survive_being_started_again_in_a_delegated_scope():
    arguments = DemoOptions(rounds=4, seed=7, yes=True).arguments()

    assert arguments[:4] == ["--rounds", "4", "--seed", "7"]
    assert "--yes" in arguments
    assert "--quick" not in arguments
