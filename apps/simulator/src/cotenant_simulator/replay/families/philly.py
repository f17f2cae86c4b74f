"""Deep-learning jobs of Microsoft's Philly: gangs of whole GPUs, eight to a node."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.gpus import GPU, GPUS_PER_NODE
from cotenant_simulator.replay.model import Defaults, Item, Job, LeftOut, Site
from cotenant_simulator.replay.tables import Row, converted, rows

COLUMNS: Final = ("submit_s", "duration_s", "num_gpus", "vc")
_DAY_MS: Final = 86_400_000


def read(path: Path, site: Site) -> Iterator[Item]:
    yield from converted(path, COLUMNS, site.left_out, partial(_job, site))


def _job(site: Site, row: Row) -> Job:
    gpus = row.whole("num_gpus", 1)
    members = -(-gpus // GPUS_PER_NODE)
    each = -(-gpus // members)
    return Job(
        name=f"job-{row.line}",
        submit_ms=row.seconds_ms("submit_s"),
        duration_ms=row.seconds_ms("duration_s"),
        # CPU and memory are not in the trace: each GPU brings its share of half the node.
        requests={
            GPU: each,
            CPU: each * site.node_cpu_milli // (2 * GPUS_PER_NODE),
            MEMORY: each * site.node_memory_bytes // (2 * GPUS_PER_NODE),
        },
        members=members,
        gang=members > 1,
    )


def told(files: Sequence[Path]) -> Mapping[str, Any]:
    gpu_ms = sum(
        row.seconds_ms("duration_s") * row.whole("num_gpus") for path in files for row in rows(path, COLUMNS, LeftOut())
    )
    return {"gpu_hours": gpu_ms // 3_600_000}


FAMILY: Final = Family(
    "philly-jobs-2017",
    (frozenset(COLUMNS),),
    read,
    Defaults(
        nodes=8,
        node_cpu_milli=64_000,
        node_memory_bytes=512 << 30,
        limit=200,
        from_ms=30 * _DAY_MS,  # the cluster fills up for a month before that
        devices={GPU: GPUS_PER_NODE},
    ),
)
