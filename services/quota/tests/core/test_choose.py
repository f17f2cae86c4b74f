from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from cotenant_quota.core.choose import Unit, choose, choose_part, frees


def _unit(name: str, cpu: int, priority: int, since_ms: int = 0, floors: tuple[str, ...] = ("q",)) -> Unit:
    return Unit((), {"cpu": cpu}, floors, (priority, 0, 0, -since_ms, name))


def _names(units: tuple[Unit, ...]) -> list[str]:
    return sorted(unit.rank[-1] for unit in units)


def _chosen(needed: int, *units: Unit, spare: int | None = None) -> list[str]:
    return _names(choose(units, {"cpu": needed}, None if spare is None else {"q": {"cpu": spare}}))


def test_the_least_important_go_first() -> None:
    units = [_unit(f"p{priority}", 4, priority) for priority in (5, 6, 7, 8)]
    assert _chosen(6, *units) == ["p5", "p6"]


def test_one_that_frees_enough_alone_goes_alone() -> None:
    assert _chosen(4, _unit("low", 6, 1), _unit("mid", 1, 2), _unit("high", 7, 3)) == ["low"]


def test_what_a_later_choice_makes_unnecessary_is_given_back() -> None:
    assert _chosen(4, _unit("low", 1, 1), _unit("mid", 6, 2), _unit("high", 7, 3)) == ["mid"]


def test_of_equals_the_newest_goes() -> None:
    assert _chosen(1, _unit("old", 1, 1, since_ms=1), _unit("new", 1, 1, since_ms=9)) == ["new"]


def test_of_equals_the_smallest_that_suffices_goes() -> None:
    assert _chosen(2, _unit("big", 8, 1, since_ms=9), _unit("small", 2, 1)) == ["small"]


def test_a_smaller_choice_that_keeps_the_min_comes_before_importance() -> None:
    units = [_unit("low", 6, 1), _unit("a", 1, 2), _unit("b", 1, 3), _unit("c", 4, 4)]
    assert _chosen(2, *units, spare=2) == ["a", "b"]
    assert _chosen(2, *units) == ["low"]


def test_the_first_pick_is_taken_back_when_it_leads_nowhere() -> None:
    assert _chosen(3, _unit("two", 2, 1), _unit("three", 3, 2), spare=4) == ["three"]


def test_nothing_is_chosen_when_no_choice_is_enough() -> None:
    assert _chosen(9, _unit("a", 4, 1), _unit("b", 4, 2)) == []
    assert _chosen(2, _unit("a", 6, 1), spare=2) == []


def test_part_of_it_can_go_without_touching_the_min() -> None:
    units = [_unit("one", 1, 1), _unit("seven", 7, 2), _unit("other", 7, 3)]
    assert _names(choose_part(units, {"cpu": 5}, {"q": {"cpu": 5}})) == ["one"]


def test_many_pods_are_chosen_from_in_bounded_time() -> None:
    units = [_unit(f"p{index:04}", 3, 1) for index in range(3000)]
    assert choose(units, {"cpu": 1501}, {"q": {"cpu": 1502}}) == (), "501 of them would be one too many for the min"


_UNITS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=7).map(
    lambda rows: [_unit(f"p{i}", cpu, priority, i) for i, (cpu, priority) in enumerate(rows)]
)


@given(_UNITS, st.integers(1, 20), st.integers(0, 20))
def test_a_choice_is_found_whenever_there_is_one_and_none_of_it_could_stay(
    units: list[Unit], needed: int, spare: int
) -> None:
    wanted = {"cpu": needed}
    chosen = choose(units, wanted, {"q": {"cpu": spare}})
    possible = [
        some
        for size in range(1, len(units) + 1)
        for some in combinations(units, size)
        if needed <= sum(one.amounts["cpu"] for one in some) <= spare
    ]
    assert bool(chosen) == bool(possible)
    if chosen:
        assert needed <= sum(one.amounts["cpu"] for one in chosen) <= spare
        assert not any(frees([one for one in chosen if one is not unit], wanted) for unit in chosen)


@given(_UNITS, st.integers(1, 20), st.randoms(use_true_random=False))
def test_the_order_of_the_units_does_not_matter(units: list[Unit], needed: int, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(units)
    random.shuffle(shuffled)
    assert _chosen(needed, *units) == _chosen(needed, *shuffled)
