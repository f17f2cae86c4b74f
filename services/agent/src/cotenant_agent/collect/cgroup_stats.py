"""Counters of one group from descriptors that stay open for its life."""

from pathlib import Path
from typing import Final

from cotenant_agent.cgroup.files import Stat, Version
from cotenant_agent.cgroup.tree import StatPaths
from cotenant_agent.collect.files import HeldFile, field, hold
from cotenant_agent.collect.psi import some_avg10
from cotenant_agent.collect.schedstat import WaitReader
from cotenant_agent.core.usage import GroupCounters

# v1 shows the group alone under the plain name and the subtree under total_.
_V1_MEMORY: Final = (b"total_inactive_anon", b"total_active_anon", b"total_unevictable")
_V2_MEMORY: Final = (b"inactive_anon", b"active_anon", b"unevictable")


class GroupReader:
    """`waits` adds run-queue waits and pressure: only for pods whose latency matters."""

    def __init__(self, tree: StatPaths, group: str, *, waits: bool = False, proc: Path = Path("/proc")) -> None:
        self._v2 = tree.version is Version.V2
        self._usage = hold(tree.stat_path(group, Stat.CPU_USAGE))
        self._throttle = self._usage if self._v2 else hold(tree.stat_path(group, Stat.CPU_THROTTLE))
        self._memory = hold(tree.stat_path(group, Stat.MEMORY))
        self._pressure = hold(tree.stat_path(group, Stat.PSI_CPU)) if waits else None
        self._memory_pressure = hold(tree.stat_path(group, Stat.PSI_MEMORY)) if waits else None
        threads = tree.stat_path(group, Stat.THREADS) if waits else None
        self._waits = None if threads is None else WaitReader(threads, proc)

    def read(self) -> GroupCounters:
        usage = _data(self._usage, 512)
        throttle = usage if self._v2 else _data(self._throttle, 512)
        memory = _data(self._memory, 8_192)
        waits = None if self._waits is None else self._waits.read()
        return GroupCounters(
            cpu_us=_cpu_us(usage, self._v2),
            memory_bytes=_memory_bytes(memory, self._v2),
            periods=None if throttle is None else field(throttle, b"nr_periods"),
            throttled_periods=None if throttle is None else field(throttle, b"nr_throttled"),
            run_us=None if waits is None else waits.run_us,
            wait_us=None if waits is None else waits.wait_us,
            slices=None if waits is None else waits.slices,
            cpu_pressure_some=some_avg10(_data(self._pressure, 256)),
            memory_pressure_some=some_avg10(_data(self._memory_pressure, 256)),
        )

    def close(self) -> None:
        for file in (self._usage, self._throttle, self._memory, self._pressure, self._memory_pressure):
            if file is not None:
                file.close()
        if self._waits is not None:
            self._waits.close()


def _data(file: HeldFile | None, size: int) -> bytes | None:
    return None if file is None else file.read(size)


def _cpu_us(data: bytes | None, v2: bool) -> int | None:
    if data is None:
        return None
    if v2:
        return field(data, b"usage_usec")
    try:
        return int(data) // 1_000
    except ValueError:
        return None


def _memory_bytes(data: bytes | None, v2: bool) -> int | None:
    if data is None:
        return None
    total = 0
    for name in _V2_MEMORY if v2 else _V1_MEMORY:
        value = field(data, name)
        if value is None:
            return None
        total += value
    return total
