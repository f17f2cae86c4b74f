import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_simulator.core.statistics import Difference, marked, median_of, paired, t_below, t_quantile

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (19, 2.09302), (99, 1.98422)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float):
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-4)
    assert t_below(quantile, freedom) == pytest.approx(0.975, abs=1e-5)


def test_half_of_it_lies_below_zero():
    assert t_below(0.0, 7) == pytest.approx(0.5)


@given(VALUES)
def test_the_interval_holds_the_median_and_lies_within_the_values(values):
    found = median_of(values)
    assert found is not None
    assert found == median_of(values), "the same values give the same numbers"
    if len(values) > 1:
        assert min(values) <= found.low <= found.value <= found.high <= max(values)


def test_one_value_has_no_interval_and_none_has_nothing():
    assert median_of([]) is None
    one = median_of([3.0])
    assert one is not None
    assert (one.value, one.low, one.high) == (3.0, None, None)


def test_pairs_are_compared_seed_by_seed():
    found = paired([1.0, 10.0, 100.0, 5.0], [2.0, 11.5, 101.0, None])
    assert found is not None
    assert found.pairs == 3
    assert found.mean == pytest.approx(3.5 / 3)
    assert found.low < 1.0 < found.high


def test_the_same_everywhere_is_no_difference_and_the_same_shift_everywhere_is_one():
    same, shifted = paired([1.0, 2.0], [1.0, 2.0]), paired([1.0, 2.0], [4.0, 5.0])
    assert (same.mean, same.p) == (0, 1)
    assert (shifted.low, shifted.high, shifted.p) == (3, 3, 0)


def test_nothing_to_pair_is_no_difference_of_zero():
    assert paired([None, 1.0], [1.0, None]) is None
    assert paired([1.0], [2.0]).p is None


def test_many_figures_ask_for_more_evidence():
    def difference(p: float) -> Difference:
        return Difference(1.0, 0.5, 1.5, 5, p)

    found = marked({"a": difference(0.001), "b": difference(0.03), "c": difference(0.04)})
    assert [name for name, one in found.items() if one.notable] == ["a"], "0.03 is more than 0.05 / 2"
    assert marked({"b": difference(0.03)})["b"].notable
