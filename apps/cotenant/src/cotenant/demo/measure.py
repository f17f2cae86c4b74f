"""Reads of procfs and of the files that the demo's programs write. Nothing is decided here."""

import contextlib
import csv
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotenant.demo.stats import Sample, Work

PROC: Final = Path("/proc")
_COUNTER: Final = struct.Struct("<QQQ")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """Seconds since boot over all cores. ``machine_s`` leaves out steal: that time was never ours to use."""

    busy_s: float
    machine_s: float


@dataclass(frozen=True, slots=True)
class Counter:
    """What a neighbour says of itself; ``pid`` 0 before its first unit."""

    work: Work
    pid: int


def machine_times(proc: Path = PROC) -> MachineTimes:
    fields = [int(word) for word in (proc / "stat").read_text().partition("\n")[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, _steal = fields
    busy = user + nice + system + irq + softirq
    return MachineTimes(busy / _TICKS_PER_S, (busy + idle + iowait) / _TICKS_PER_S)


def available_memory_bytes(proc: Path = PROC) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _stat_fields(pid: int, proc: Path) -> list[str]:
    """Fields 3 and up of ``/proc/<pid>/stat``; empty when the process is gone."""
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(pids: Iterable[int], proc: Path = PROC) -> float:
    """User and system time of the processes that still exist."""
    found = [fields for fields in (_stat_fields(pid, proc) for pid in pids) if fields]
    return sum(int(fields[11]) + int(fields[12]) for fields in found) / _TICKS_PER_S


def major_faults(pids: Iterable[int], proc: Path = PROC) -> int:
    """Pages that had to be read back from disk: the service's memory was taken and is missed."""
    return sum(int(fields[9]) for fields in (_stat_fields(pid, proc) for pid in pids) if fields)


def resident_bytes(pid: int, proc: Path = PROC) -> int:
    """Memory that only this process holds: libraries that others map too were not taken from anybody."""
    with contextlib.suppress(OSError, ValueError):
        _size, resident, shared, *_rest = (proc / str(pid) / "statm").read_text().split()
        return (int(resident) - int(shared)) * _PAGE_BYTES
    return 0


def pids_of(words: Iterable[str], proc: Path = PROC) -> list[int]:
    """Processes whose command line has every one of the words as an argument."""
    wanted = {word.encode() for word in words}
    found = []
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted <= set((entry / "cmdline").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return sorted(found)


def read_counter(path: Path) -> Counter:
    """A neighbour that has not finished a unit has no counter yet, and has done nothing."""
    try:
        units, cpu_ns, pid = _COUNTER.unpack(path.read_bytes()[: _COUNTER.size])
    except (OSError, struct.error):
        return Counter(Work(), 0)
    return Counter(Work(units, cpu_ns / 1e9), pid)


def read_samples(path: Path) -> list[Sample]:
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Sample(
                at_s=float(row["intended_s"]),
                latency_ms=float(row["latency_ms"]),
                late_ms=float(row["late_ms"]),
                ok=row["status"] == "200",
            )
            for row in csv.DictReader(file)
        ]


def resident_of(counters: Mapping[str, Counter]) -> dict[str, int]:
    return {name: resident_bytes(counter.pid) for name, counter in counters.items() if counter.pid}


def machine(cores: int, cpu_model: str | None) -> dict[str, Any]:
    """What figures must not be quoted without."""
    return {
        "cores": cores,
        "cpu_model": cpu_model,
        "memory_bytes": _PAGE_BYTES * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def machine_line(cores: int, cpu_model: str | None) -> str:
    return f"{cpu_model or platform.machine()}, {cores} cores, kernel {platform.release()}"
