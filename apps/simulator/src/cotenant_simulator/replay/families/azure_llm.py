"""Requests to Azure's language models: tokens a 10 s slot, as the demand of one inference service."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from cotenant_simulator.replay.families.rates import Point, Sums, following, timestamp_ms
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.model import Defaults, Item, LeftOut, Site
from cotenant_simulator.replay.tables import Row, converted, label, rows

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SLOT_MS: Final = 10_000


def read(path: Path, site: Site) -> Iterator[Item]:
    tokens = Sums(SLOT_MS)
    for at_ms, wanted in converted(path, COLUMNS, site.left_out, _request):
        tokens.add(at_ms, wanted)
    yield following(label(path.name.partition(".")[0], "service"), list(tokens.points()), step_ms=SLOT_MS)


def _request(row: Row) -> Point:
    wanted = row.whole("ContextTokens") + row.whole("GeneratedTokens")
    return timestamp_ms(row, "TIMESTAMP"), Fraction(wanted)


def told(files: Sequence[Path]) -> Mapping[str, Any]:
    return {"requests": {file.name: sum(1 for _ in rows(file, COLUMNS, LeftOut())) for file in files}}


FAMILY: Final = Family(
    "azure-llm-2023",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=2, node_cpu_milli=32_000, node_memory_bytes=128 << 30, limit=20, backlog=True),
    told=told,
)
