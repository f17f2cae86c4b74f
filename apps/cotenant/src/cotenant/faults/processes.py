"""What the kernel says: which pods have processes, and in which groups."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = "COTENANT_FAULT_POD"
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class PodProcess:
    pid: int
    start_ticks: int
    cgroups: str
    """All of ``/proc/PID/cgroup``."""


def pod_processes(run: str) -> dict[str, list[PodProcess]]:
    """By name of the pod. A process that carries the mark is a workload: shims do not inherit it."""
    wanted = f"{MARK}={run}/".encode()
    found: dict[str, list[PodProcess]] = {}
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        try:
            environment = (_PROC / entry.name / "environ").read_bytes()
            name = next((v[len(wanted) :] for v in environment.split(b"\0") if v.startswith(wanted)), None)
            if name is None:
                continue
            # Between fork and exec the child still is its parent, environment and all.
            stat = (_PROC / entry.name / "stat").read_text()
            fields = stat.rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            groups = (_PROC / entry.name / "cgroup").read_text()
        except OSError:
            continue
        process = PodProcess(int(entry.name), int(fields[19]), groups)
        found.setdefault(name.decode(), []).append(process)
    return found
