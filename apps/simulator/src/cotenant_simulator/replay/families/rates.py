"""Series of one number: requests, mentions, CPU percent. A service follows it; where the number has no size of its own,
its peak in the window stands for everything that the service has requested.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from cotenant_common.model.quantity import ceil
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.model import Series, Service, TraceError
from cotenant_simulator.replay.tables import BrokenRowError, Row

SERVICE_CPU_MILLI: Final = 16_000
SERVICE_MEMORY_BYTES: Final = 32 << 30
PERCENT: Final = Fraction(100)
Point = tuple[int, Fraction]
"""Time in milliseconds, value."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST_TIME: Final = len("2023-11-16 18:17:03")


def timestamp_ms(row: Row, column: str) -> int:
    """``2023-11-16 18:17:03.9799600``, UTC; digits past the microsecond are cut. Raise BrokenRowError."""
    text = row.text(column)
    # A date alone would pass for its midnight.
    if len(text) < _SHORTEST_TIME:
        raise BrokenRowError(f"{column} is no time such as 2023-11-16 18:17:03")
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise BrokenRowError(f"{column} is no time such as 2023-11-16 18:17:03") from None
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def later(points: Sequence[Point], at_ms: int, column: str) -> int:
    """``at_ms``, when it comes after all of these. Raise BrokenRowError."""
    if points and at_ms <= points[-1][0]:
        raise BrokenRowError(f"{column} is not after the one before")
    return at_ms


@dataclass(slots=True)
class Sums:
    """Values added up in slots of equal length. A slot in which nothing came is zero: these are counts."""

    slot_ms: int
    found: dict[int, Fraction] = field(default_factory=dict)

    def add(self, at_ms: int, value: Fraction) -> None:
        slot = at_ms // self.slot_ms
        self.found[slot] = self.found.get(slot, Fraction(0)) + value

    def points(self) -> Iterator[Point]:
        """From 0 at the first slot."""
        if self.found:
            first, last = min(self.found), max(self.found)
            for slot in range(first, last + 1):
                yield (slot - first) * self.slot_ms, self.found.get(slot, Fraction(0))


def following(
    name: str,
    points: Sequence[Point],
    *,
    step_ms: int,
    whole: Fraction | None = None,
    resource: str = CPU,
    amount: int = SERVICE_CPU_MILLI,
) -> Service:
    """A service that wants ``amount`` when the series shows ``whole`` (None: its peak). Raise TraceError."""
    if not points:
        raise TraceError(f"{name}: expected at least one value, got none")
    full = max(value for _, value in points) if whole is None else whole
    values = [0 if full == 0 else ceil(value / full * amount) for _, value in points]
    series = Series([at for at, _ in points], values, points[-1][0] + step_ms)
    requests = {CPU: SERVICE_CPU_MILLI, MEMORY: SERVICE_MEMORY_BYTES} | {resource: amount}
    return Service(name, requests, _with_memory({resource: series}, requests, series.end_ms))


def _with_memory(demand: dict[str, Series], requests: Mapping[str, int], end_ms: int) -> dict[str, Series]:
    half = Series((0,), (requests[MEMORY] // 2,), end_ms)
    return {MEMORY: half} | demand
