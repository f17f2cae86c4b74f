# ruff: noqa: PTH118, PTH120, PTH123
"""Clocks and what /proc and the group files say."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # typing itself would cost each container 650 KiB and 10 ms
if TYPE_CHECKING:
    from typing import Any

    Fields = dict[str, Any]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/<pid>/stat; counted from the last ')' because a command name may hold anything."""
    return int(read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])


def oom_kills(cgroup_procs: list[str]) -> int | None:
    """Processes the kernel killed in these groups for lack of memory; None where no group says."""
    counts = []
    for procs in cgroup_procs:
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = read_text(os.path.join(os.path.dirname(procs), name)).splitlines()
            except OSError:
                continue
            counts += [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return sum(counts) if counts else None
