"""Any table of jobs: ``--format columns --column submit=arrival --column duration=runtime --column cpu=cores``."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from cotenant_common.model.quantity import ceil
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.gpus import GPU
from cotenant_simulator.replay.model import Band, Defaults, Item, Job, Site, TraceError
from cotenant_simulator.replay.tables import BrokenRowError, Row, converted

NAME: Final = "columns"
FIELDS: Final = ("submit", "duration", "cpu", "memory", "gpu", "members", "gang", "band")
"""Seconds, seconds, cores, bytes, whole GPUs, a count, anything but 0 or empty, prod | mid | batch."""
_BANDS: Final[Sequence[Band]] = ("prod", "mid", "batch")


def read(path: Path, site: Site) -> Iterator[Item]:
    """Raise TraceError when ``site.columns`` says too little."""
    named = site.columns
    for field in ("submit", "duration", "cpu"):
        if field not in named:
            raise TraceError(f"--format {NAME} needs --column {field}=NAME; fields are {', '.join(FIELDS)}")
    yield from converted(path, named.values(), site.left_out, partial(_job, named))


def _job(named: Mapping[str, str], row: Row) -> Job:
    requests = {CPU: ceil(row.amount(named["cpu"]) * 1_000)}
    if "memory" in named:
        requests[MEMORY] = ceil(row.amount(named["memory"]))
    if "gpu" in named and row.whole(named["gpu"]):
        requests[GPU] = row.whole(named["gpu"])
    return Job(
        name=f"job-{row.line}",
        submit_ms=row.seconds_ms(named["submit"]),
        duration_ms=row.seconds_ms(named["duration"]),
        requests=requests,
        members=row.whole(named["members"], 1) if "members" in named else 1,
        gang="gang" in named and row.text(named["gang"]) not in ("", "0"),
        band=_band(row, named.get("band")),
    )


def _band(row: Row, column: str | None) -> Band:
    written = "batch" if column is None else row.text(column)
    for band in _BANDS:
        if band == written:
            return band
    raise BrokenRowError(f"{column} is none of {', '.join(_BANDS)}")


FAMILY: Final = Family(
    NAME,
    (),
    read,
    Defaults(nodes=8, node_cpu_milli=32_000, node_memory_bytes=128 << 30, limit=200, devices={GPU: 8}),
)
