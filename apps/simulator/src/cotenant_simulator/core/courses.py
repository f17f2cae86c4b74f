"""Demand that changes by a table: the value of a row holds until the next one."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from cotenant_common.model import quantity


@dataclass(frozen=True, slots=True)
class TraceRef:
    """A column of a table, as an annotation names it. ``unit_of_one`` is what 1 in the column stands for: milli-cores
    or bytes. Rows follow each other by ``interval_ms``, or at the seconds that the column ``time`` gives.
    """

    file: str
    column: str
    unit_of_one: Fraction
    time: str | None = None
    interval_ms: int | None = None
    offset_ms: int = 0
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """``values[i]`` holds from ``times_ms[i]`` on, None: not said. After ``length_ms`` the last value holds, or all of
    it comes again. Before the first row nothing is said.
    """

    times_ms: Sequence[int]
    values: Sequence[int | None]
    length_ms: int
    offset_ms: int = 0
    repeat: bool = False

    def at(self, t_ms: int) -> int | None:
        """``t_ms`` counts from the start of the scenario, whenever the pod began: the hour is the same for all."""
        inside_ms = self._inside(t_ms + self.offset_ms)
        row = bisect_right(self.times_ms, inside_ms) - 1
        again = inside_ms != t_ms + self.offset_ms
        return self.values[row] if row >= 0 or again else None

    def _inside(self, t_ms: int) -> int:
        return t_ms % self.length_ms if self.repeat and self.length_ms > 0 else t_ms

    def changes(self, until_ms: int) -> Iterator[int]:
        """Every instant after 0 at which another row begins."""
        first = 0
        while True:
            for row, at_ms in enumerate(self.times_ms):
                t_ms = first + at_ms - self.offset_ms
                if t_ms > until_ms:
                    return
                if t_ms > 0 and self._differs(row):
                    yield t_ms
            if not self.repeat or self.length_ms <= 0:
                return
            first += self.length_ms

    def _differs(self, row: int) -> bool:
        before = row - 1 if row else (len(self.values) - 1 if self.repeat else None)
        return before is None or self.values[before] != self.values[row]


Courses = Mapping[TraceRef, Course]


class CourseError(ValueError):
    """A cell or a column that cannot be used; ``line`` is that of the table, the header being line 1."""

    def __init__(self, line: int | None, column: str, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(slots=True)
class CourseBuilder:
    """Takes the rows of a table one by one, so that nobody has to hold the table."""

    ref: TraceRef
    _times_ms: list[int] = field(default_factory=list)
    _values: list[int | None] = field(default_factory=list)

    def add(self, line: int, value: str, time: str | None = None) -> None:
        """An empty cell says nothing, so what was said before holds. Raise CourseError."""
        self._times_ms.append(self._time(line, time))
        text = value.strip()
        before = self._values[-1] if self._values else None
        self._values.append(self._amount(line, text) if text else before)

    def _time(self, line: int, text: str | None) -> int:
        if self.ref.interval_ms is not None:
            return len(self._times_ms) * self.ref.interval_ms
        column = self.ref.time or ""
        at_ms = int(_number(line, column, text or "") * 1_000)
        if self._times_ms and at_ms <= self._times_ms[-1]:
            raise CourseError(line, column, f"expected seconds that rise from row to row, got {text!r}")
        return at_ms

    def _amount(self, line: int, text: str) -> int:
        found = _number(line, self.ref.column, text)
        if found < 0:
            raise CourseError(line, self.ref.column, f"expected a number that is not negative, got {text!r}")
        return quantity.ceil(found * self.ref.unit_of_one)

    def course(self) -> Course:
        """Raise CourseError for a table without rows."""
        if not self._times_ms:
            raise CourseError(None, self.ref.column, "expected at least one row under the header, got none")
        last_step = self._times_ms[-1] - self._times_ms[-2] if len(self._times_ms) > 1 else 0
        length_ms = self._times_ms[-1] + (self.ref.interval_ms or last_step)
        if self.ref.repeat and length_ms <= self._times_ms[-1]:
            raise CourseError(None, self.ref.column, "a single row without interval cannot repeat")
        return Course(tuple(self._times_ms), tuple(self._values), length_ms, self.ref.offset_ms, self.ref.repeat)


def _number(line: int, column: str, text: str) -> Fraction:
    try:
        return quantity.parse_quantity(text.strip())
    except quantity.QuantityError:
        raise CourseError(line, column, f"expected a number, got {text[:40]!r}") from None
