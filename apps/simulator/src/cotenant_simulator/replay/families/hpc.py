"""Jobs of HPC clusters (Wagap, HPC2N): each is a gang over as many nodes as its processors need."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.figures import spread
from cotenant_simulator.replay.model import Defaults, Item, Job, LeftOut, Site
from cotenant_simulator.replay.tables import Row, converted, header_of, rows

COLUMNS: Final = ("job", "submit_s", "wait_s", "run_s", "procs")
_MEMORY: Final = "req_mem_bytes"
_MILLI: Final = 1_000
_DEFAULT_MEMORY_BYTES: Final = 256 << 20


def read(path: Path, site: Site) -> Iterator[Item]:
    has_memory = _MEMORY in header_of(path)
    yield from converted(path, COLUMNS, site.left_out, partial(_job, site, has_memory))


def _job(site: Site, has_memory: bool, row: Row) -> Job:
    processors = row.whole("procs", 1)
    members = -(-processors * _MILLI // site.node_cpu_milli)
    # Members are alike, so the last milli-core of an uneven division is rounded up.
    cpu_milli = -(-processors * _MILLI // members)
    memory = row.whole(_MEMORY) if has_memory else processors * _DEFAULT_MEMORY_BYTES
    return Job(
        name=f"job-{row.whole('job')}",
        submit_ms=row.seconds_ms("submit_s"),
        duration_ms=row.seconds_ms("run_s"),
        requests={CPU: cpu_milli, MEMORY: -(-memory // members)},
        members=members,
        gang=members > 1,
        told_wait_ms=row.seconds_ms("wait_s"),
    )


def told(files: Sequence[Path]) -> Mapping[str, Any]:
    waits = [
        row.seconds_ms("wait_s")
        for path in files
        for row in rows(path, COLUMNS, LeftOut())
        if row.text("wait_s").isdigit()
    ]
    return {"jobs": len(waits), "wait_s": spread(waits)}


def _wagap(files: Sequence[Path]) -> Sequence[Path]:
    """One cluster at a time: the two logs are years and continents apart."""
    return [file for file in files if "wagap" in file.name] or files[:1]


FAMILY: Final = Family(
    "hpc-batch",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=8, node_cpu_milli=80_000, node_memory_bytes=504 << 30, limit=200),
    choose=_wagap,
    told=told,
)
