"""Batch tasks of Alibaba's 2018 cluster: a task is a job, its instances are the members, each may start by itself."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from cotenant_common.model.quantity import ceil
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.model import Defaults, Item, Job, Site
from cotenant_simulator.replay.tables import BrokenRowError, Row, converted

COLUMNS: Final = ("submit_time", "duration", "cpu", "memory", "job_id", "task_id", "instances_num")
_MILLI: Final = 1_000


def read(path: Path, site: Site) -> Iterator[Item]:
    yield from converted(path, COLUMNS, site.left_out, partial(_task, site))


def _task(site: Site, row: Row) -> Job:
    if row.amount("cpu") == 0:
        raise BrokenRowError("cpu is zero")
    return Job(
        name=f"job{row.whole('job_id')}-task{row.whole('task_id')}-{row.line}",
        submit_ms=row.seconds_ms("submit_time"),
        duration_ms=row.seconds_ms("duration"),
        # The trace gives memory as a share of a machine, whose size it keeps to itself.
        requests={
            CPU: ceil(row.amount("cpu") * _MILLI),
            MEMORY: ceil(row.amount("memory") * site.node_memory_bytes),
        },
        members=row.whole("instances_num", 1),
    )


FAMILY: Final = Family(
    "alibaba-batch-2018",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=8, node_cpu_milli=32_000, node_memory_bytes=128 << 30, limit=100, most_members=20),
)
