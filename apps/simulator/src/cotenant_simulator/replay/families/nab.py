"""Series of the Numenta benchmark: each is one service. CPU percent keeps its size, everything else its shape."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

from cotenant_simulator.replay.families.rates import PERCENT, following, timestamp_ms
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.model import Defaults, Item, Site
from cotenant_simulator.replay.tables import BrokenRowError, label, rows

COLUMNS: Final = ("timestamp", "value")
_DAY_MS: Final = 86_400_000
_IN_PERCENT: Final = "cpu_utilization"
_NO_DEMAND: Final = ("latency",)


def read(path: Path, site: Site) -> Iterator[Item]:
    points: list[tuple[int, Fraction]] = []
    first = 0
    for row in rows(path, COLUMNS, site.left_out):
        try:
            at_ms, value = timestamp_ms(row, "timestamp"), row.amount("value")
            first = first if points else at_ms
            if points and at_ms - first <= points[-1][0]:
                raise BrokenRowError("timestamp is not after the one before")  # noqa: TRY301 - counted like the others
            points.append((at_ms - first, value))
        except BrokenRowError as problem:
            site.left_out.add(f"{path.name}:{row.line}", f"broken row: {problem}")
    step_ms = points[-1][0] - points[-2][0] if len(points) > 1 else 0
    whole = PERCENT if _IN_PERCENT in path.name else None
    yield following(label(path.name.partition(".csv")[0], "series"), points, step_ms=step_ms, whole=whole)


def _demands(files: Sequence[Path]) -> Sequence[Path]:
    return [file for file in files if not any(word in file.name for word in _NO_DEMAND)]


FAMILY: Final = Family(
    "nab-series",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=4, node_cpu_milli=64_000, node_memory_bytes=256 << 30, limit=12, for_ms=_DAY_MS, backlog=True),
    choose=_demands,
)
