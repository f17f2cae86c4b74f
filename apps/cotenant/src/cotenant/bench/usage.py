"""CPU and memory of processes over an interval, from procfs."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_percent: float
    """Of one core."""
    resident_bytes: int


def over(pids: Iterable[int], seconds: float) -> Usage:
    """Blocking. Shared pages count in every process that maps them, so the sum is an upper bound."""
    found = each({str(pid): pid for pid in pids}, seconds).values()
    return Usage(sum(one.cpu_percent for one in found), sum(one.resident_bytes for one in found))


def each(pids: Mapping[str, int], seconds: float) -> dict[str, Usage]:
    """The same for processes by name, all over one interval. Blocking."""
    before, started = {name: cpu_ticks(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - started
    return {
        name: Usage(100 * (cpu_ticks(pid) - before[name]) / _TICKS_PER_S / elapsed_s, resident_bytes(pid))
        for name, pid in pids.items()
    }


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
