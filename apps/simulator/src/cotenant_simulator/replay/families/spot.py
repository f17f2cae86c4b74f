"""The inventory of Alibaba's spot GPU cluster. Its job file is not public here, so the work on it is generated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.gpus import GPU, GPU_MODEL
from cotenant_simulator.replay.model import Defaults, Item, Machine, Site
from cotenant_simulator.replay.tables import Row, converted, label

COLUMNS: Final = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
_MEMORY_PER_CORE_BYTES: Final = 4 << 30


def read(path: Path, site: Site) -> Iterator[Item]:
    yield from converted(path, COLUMNS, site.left_out, _machine)


def _machine(row: Row) -> Machine:
    cores = row.whole("cpu_num", 1)
    return Machine(
        f"node-{label(row.text('node_name'), str(row.line))}",
        {CPU: cores * 1_000, MEMORY: cores * _MEMORY_PER_CORE_BYTES, GPU: row.whole("gpu_capacity_num", 1)},
        {GPU_MODEL: row.text("gpu_model")},
    )


FAMILY: Final = Family(
    "alibaba-spot-gpu-2026",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=16, node_cpu_milli=128_000, node_memory_bytes=512 << 30, limit=120),
    notes=("the trace names machines only; the jobs are generated: two of three in band batch (spot), one prod",),
)
