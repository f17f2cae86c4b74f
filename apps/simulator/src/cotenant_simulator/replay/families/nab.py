"""Series of the Numenta benchmark: each is one service. CPU percent keeps its size, everything else its shape."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from cotenant_simulator.replay.families.rates import PERCENT, Point, following, later, timestamp_ms
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.model import Defaults, Item, Site
from cotenant_simulator.replay.tables import Row, converted, label

COLUMNS: Final = ("timestamp", "value")
_DAY_MS: Final = 86_400_000
_IN_PERCENT: Final = "cpu_utilization"
_NO_DEMAND: Final = ("latency",)


def read(path: Path, site: Site) -> Iterator[Item]:
    points: list[Point] = []
    for point in converted(path, COLUMNS, site.left_out, partial(_value, points)):
        points.append(point)  # noqa: PERF402 - the next row is read against it
    step_ms = points[-1][0] - points[-2][0] if len(points) > 1 else 0
    whole = PERCENT if _IN_PERCENT in path.name else None
    from_start = [(at_ms - points[0][0], value) for at_ms, value in points]
    yield following(label(path.name.partition(".csv")[0], "series"), from_start, step_ms=step_ms, whole=whole)


def _value(before: Sequence[Point], row: Row) -> Point:
    at_ms, value = timestamp_ms(row, "timestamp"), row.amount("value")
    return later(before, at_ms, "timestamp"), value


def _demands(files: Sequence[Path]) -> Sequence[Path]:
    return [file for file in files if not any(word in file.name for word in _NO_DEMAND)]


FAMILY: Final = Family(
    "nab-series",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=4, node_cpu_milli=64_000, node_memory_bytes=256 << 30, limit=12, for_ms=_DAY_MS, backlog=True),
    choose=_demands,
)
