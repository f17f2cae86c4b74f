"""A virtual machine a row: ``vm,t0..tN``, CPU in percent of the VM's own size, a value each 5 minutes."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

from cotenant_common.model.quantity import ceil
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.model import Defaults, Item, Series, Service, Site
from cotenant_simulator.replay.tables import Row, converted, label

STEP_MS: Final = 300_000
VM_CPU_MILLI: Final = 1_000
VM_MEMORY_BYTES: Final = 1 << 30
_MEMORY_SHARE_PERCENT: Final = 50
_DEFAULTS: Final = Defaults(
    nodes=3, node_cpu_milli=20_000, node_memory_bytes=40 << 30, limit=60, backlog=True
)  # 20 VMs of one core on a machine of 20: limits say that it is full


def read(path: Path, site: Site) -> Iterator[Item]:
    yield from converted(path, ("vm", "t0", "t1"), site.left_out, partial(_vm, path))


def _vm(path: Path, row: Row) -> Service:
    columns = [name for name in row.cells if name != "vm"]
    values = [_milli(row, column) for column in columns]
    times = range(0, STEP_MS * len(values), STEP_MS)
    name = f"{label(path.name.partition('.')[0], 'vm')}-{label(row.text('vm'), 'vm')}"
    return Service(
        name,
        {CPU: VM_CPU_MILLI, MEMORY: VM_MEMORY_BYTES},
        {
            CPU: Series(times, values, STEP_MS * len(values)),
            MEMORY: Series((0,), (VM_MEMORY_BYTES * _MEMORY_SHARE_PERCENT // 100,), STEP_MS * len(values)),
        },
    )


def _milli(row: Row, column: str) -> int | None:
    if not row.text(column):
        return None
    return ceil(row.amount(column) * Fraction(VM_CPU_MILLI, 100))


def _one_day(files: Sequence[Path]) -> Sequence[Path]:
    """VMs of one day are not those of another."""
    return files[:1]


def _numbered(first: Mapping[str, str]) -> bool:
    """``vm0000``: names given when PlanetLab's files were joined; Google's are a job and a day."""
    return first.get("vm", "").startswith("vm")


_COLUMNS: Final = (frozenset({"vm", "t0", "t1"}),)
PLANETLAB: Final = Family("planetlab-cpu-2011", _COLUMNS, read, _DEFAULTS, choose=_one_day, first_row=_numbered)
GCD: Final = Family("google-gcd-vms-2011", _COLUMNS, read, _DEFAULTS)
