"""Node-wide numbers from procfs, for the cpus of the agent's slice."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant_agent.collect.files import hold
from cotenant_agent.collect.psi import some_avg10
from cotenant_agent.core.cpuset import parse_cpuset
from cotenant_agent.core.suppress import Cpu

# /proc/stat's interrupt line grows with the machine; the cpu lines are always the first ones.
_STAT_BYTES: Final = 65_536
_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ = 1, 2, 3, 6, 7


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int
    available_bytes: int


def busy_ticks(stat: bytes, cpus: Collection[int] | None = None) -> int | None:
    """user + nice + system + irq + softirq of the whole machine, or of some cpus. iowait and steal are not use."""
    total = None
    for line in stat.split(b"\n"):
        if not line.startswith(b"cpu"):
            break
        words = line.split()
        whole = words[0] == b"cpu"
        if whole if cpus is None else (not whole and int(words[0][3:]) in cpus):
            ticks = (words[_USER], words[_NICE], words[_SYSTEM], words[_IRQ], words[_SOFTIRQ])
            total = (total or 0) + sum(map(int, ticks))
            if cpus is None:
                break
    return total


def parse_meminfo(data: bytes) -> Memory | None:
    found: dict[bytes, int] = {}
    for line in data.split(b"\n", 8):
        name, _, rest = line.partition(b":")
        if name in {b"MemTotal", b"MemAvailable"}:
            found[name] = int(rest.split(b"k", 1)[0]) * 1_024
    if len(found) < 2:
        return None
    return Memory(found[b"MemTotal"], found[b"MemAvailable"])


class ProcReader:
    """`cpus` None counts the whole machine."""

    def __init__(self, proc: Path = Path("/proc"), cpus: Collection[int] | None = None) -> None:
        self._cpus = None if cpus is None else frozenset(cpus)
        self._stat = hold(proc / "stat")
        self._meminfo = hold(proc / "meminfo")
        self._pressure = {name: hold(proc / "pressure" / name) for name in ("cpu", "memory", "io")}
        self._tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")

    def cpu_us(self) -> int | None:
        data = None if self._stat is None else self._stat.read(_STAT_BYTES)
        ticks = None if data is None else busy_ticks(data, self._cpus)
        return None if ticks is None else ticks * self._tick_us

    def memory(self) -> Memory | None:
        data = None if self._meminfo is None else self._meminfo.read()
        return None if data is None else parse_meminfo(data)

    def pressure_some(self, resource: str) -> float | None:
        file = self._pressure[resource]
        return None if file is None else some_avg10(file.read(256))

    def close(self) -> None:
        for file in (self._stat, self._meminfo, *self._pressure.values()):
            if file is not None:
                file.close()


def online_cpus(sys: Path = Path("/sys")) -> tuple[int, ...]:
    try:
        return parse_cpuset((sys / "devices/system/cpu/online").read_text())
    except (OSError, ValueError):
        return tuple(range(os.cpu_count() or 1))


def cpu_topology(cpus: Collection[int], sys: Path = Path("/sys")) -> tuple[Cpu, ...]:
    """Core, socket and NUMA node of each cpu; a machine that hides them is one flat socket."""
    numa_of = _numa_of(sys)
    found = []
    for cpu in sorted(cpus):
        topology = sys / f"devices/system/cpu/cpu{cpu}/topology"
        core = _number(topology / "core_id", cpu)
        found.append(Cpu(cpu, core, max(_number(topology / "physical_package_id", 0), 0), numa_of.get(cpu, 0)))
    return tuple(found)


def _numa_of(sys: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in sorted((sys / "devices/system/node").glob("node[0-9]*")):
        try:
            cpus = parse_cpuset((node / "cpulist").read_text())
        except (OSError, ValueError):
            continue
        found.update(dict.fromkeys(cpus, int(node.name[4:])))
    return found


def _number(path: Path, default: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return default
