from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_simulator.core.courses import Course, CourseBuilder, CourseError, TraceRef


def steps(values: list[str], **more: object) -> Course:
    fields: dict[str, object] = {"interval_ms": 1_000, **more}
    builder = CourseBuilder(TraceRef("t.csv", "web", Fraction(10), **fields))  # type: ignore[arg-type]
    for line, value in enumerate(values, start=2):
        builder.add(line, value)
    return builder.course()


def test_a_table_that_begins_late_holds_its_last_value_between_two_rounds():
    ref = TraceRef("t.csv", "web", Fraction(1), time="t_s", repeat=True)
    builder = CourseBuilder(ref)
    builder.add(2, "5", "1")
    builder.add(3, "6", "2")
    course = builder.course()
    assert [course.at(t_ms) for t_ms in (0, 1_000, 2_000, 3_000, 4_000)] == [None, 5, 6, 6, 5]


def test_a_value_holds_until_the_next_row_and_the_last_one_for_good():
    course = steps(["1", "2.55"])
    assert [course.at(t_ms) for t_ms in (0, 999, 1_000, 60_000)] == [10, 10, 26, 26]


def test_an_empty_cell_is_not_zero():
    course = steps(["", "3", "", "0"])
    assert [course.at(t_ms) for t_ms in (0, 1_000, 2_000, 3_000)] == [None, 30, 30, 0]


def test_a_table_that_repeats_begins_again():
    course = steps(["1", "2"], repeat=True)
    assert [course.at(t_ms) for t_ms in (1_999, 2_000, 3_000, 4_500)] == [20, 10, 20, 10]


def test_an_offset_starts_in_the_middle():
    assert steps(["1", "2"], offset_ms=1_000).at(0) == 20


def test_rows_may_name_their_seconds():
    builder = CourseBuilder(TraceRef("t.csv", "web", Fraction(1), time="t_s"))
    builder.add(2, "5", "0.5")
    builder.add(3, "6", "2")
    course = builder.course()
    assert [course.at(t_ms) for t_ms in (0, 500, 1_999, 2_000)] == [None, 5, 5, 6]


@pytest.mark.parametrize(
    ("rows", "line", "says"),
    [
        ([("1", "0"), ("2", "0")], 3, "rise from row to row"),
        ([("much", "0")], 2, "expected a number"),
        ([("-1", "0")], 2, "not negative"),
        ([("1", "soon")], 2, "expected a number"),
        ([], None, "at least one row"),
    ],
)
def test_a_bad_cell_names_its_line(rows: list[tuple[str, str]], line: int | None, says: str):
    builder = CourseBuilder(TraceRef("t.csv", "web", Fraction(1), time="t_s"))
    with pytest.raises(CourseError, match=says) as caught:
        _filled(builder, rows)
    assert caught.value.line == line


def _filled(builder: CourseBuilder, rows: list[tuple[str, str]]) -> Course:
    for number, (value, time) in enumerate(rows, start=2):
        builder.add(number, value, time)
    return builder.course()


@given(
    values=st.lists(st.integers(0, 4).map(str), min_size=1, max_size=6),
    offset_ms=st.integers(0, 36).map(lambda quarters: quarters * 250),
    repeat=st.booleans(),
)
def test_the_value_never_moves_between_two_changes(values: list[str], offset_ms: int, repeat: bool):
    course = steps(values, offset_ms=offset_ms, repeat=repeat)
    changes = {0, *course.changes(20_000)}
    held = course.at(0)
    for t_ms in range(0, 20_000, 250):
        if t_ms in changes:
            held = course.at(t_ms)
        assert course.at(t_ms) == held
