"""What this machine allows and what a user will get on it. Reads only; nothing is changed."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from cotenant.errors import CotenantError
from cotenant.stack import ports
from cotenant.stack.home import StackHome, is_held, load_record

_KNOBS: Final[Mapping[str, str]] = {
    "cpu_idle": "idle class for batch (cpu.idle)",
    "cpu_weight": "relative CPU weight",
    "cpu_quota": "CPU cap (cfs quota)",
    "cpu_burst": "short excess over the cap (cfs burst)",
    "cpuset": "bound cores (cpuset)",
    "memory_limit": "memory limit",
    "memory_high": "memory throttling (memory.high)",
    "pids": "process limit",
}
_SIGNALS: Final[Mapping[str, str]] = {
    "psi": "pressure of the node (PSI)",
    "psi_group": "pressure of each pod",
    "schedstat": "run-queue wait (schedstat)",
    "sched_idle": "SCHED_IDLE",
    "perf": "hardware counters",
    "resctrl": "cache and memory bandwidth control (resctrl)",
}
_NEEDED_DISK_BYTES: Final = 256 << 20


class Mark(StrEnum):
    OK = "ok"
    MISSING = "missing"
    """Cotenant works, with less."""
    FAULT = "fault"
    """``cotenant up`` would fail."""
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    name: str
    value: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    level: str
    summary: str
    lines: tuple[str, ...]
    capabilities: dict[str, Any]

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.mark is Mark.FAULT)

    def as_data(self) -> dict[str, Any]:
        return {
            "ok": not self.faults,
            "level": self.level,
            "summary": self.summary,
            "you_get": list(self.lines),
            "findings": [asdict(finding) for finding in self.findings],
            "capabilities": self.capabilities,
        }


def examine(home: StackHome) -> Report:
    if sys.platform != "linux":
        line = "Cotenant enforces through the Linux kernel; use a Linux machine, a virtual machine or a container host."
        finding = Finding("machine", "system", platform.system(), Mark.FAULT)
        return Report((finding,), "none", f"none: this is {platform.system()}, not Linux", (line,), {})
    from cotenant_agent import capability  # noqa: PLC0415 - Linux only

    found = capability.probe()
    outlook = capability.outlook(found)
    rights = "root" if found.root else f"user {os.geteuid()}, not root"
    delegation = (
        "a subtree is delegated to this user"
        if found.delegated
        else "not needed as root" if found.root else "possible through systemd" if found.can_delegate else "none"
    )  # fmt: skip
    findings = [
        *_machine(),
        Finding("rights", "user", rights, Mark.INFO),
        Finding("rights", "cgroups", found.layout_reason, Mark.MISSING if found.cgroup_version is None else Mark.OK),
        Finding("rights", "delegation", delegation, Mark.INFO),
        *(_has("control", text, found.has(name)) for name, text in _KNOBS.items()),
        *(_has("signals", text, found.has(name)) for name, text in _SIGNALS.items()),
        *_stack(home),
    ]
    return Report(tuple(findings), outlook.level.value, outlook.summary, outlook.lines, found.as_data())


def _has(topic: str, name: str, present: bool) -> Finding:
    return Finding(topic, name, "yes" if present else "no", Mark.OK if present else Mark.MISSING)


def _machine() -> list[Finding]:
    import psutil  # noqa: PLC0415

    cpus = sorted(os.sched_getaffinity(0))
    memory = psutil.virtual_memory()
    python = platform.python_version()
    return [
        Finding("machine", "kernel", platform.release(), Mark.INFO),
        Finding(
            "machine",
            "cpu",
            f"{len(cpus)} of {os.cpu_count()} cores usable, {cpu_model() or 'model unknown'}",
            Mark.INFO,
        ),
        Finding("machine", "memory", f"{memory.total >> 20} MiB, {memory.available >> 20} MiB available", Mark.INFO),
        Finding("machine", "load", " ".join(f"{value:.2f}" for value in os.getloadavg()), Mark.INFO),
        Finding("machine", "python", python, Mark.OK if sys.version_info >= (3, 11) else Mark.FAULT),
    ]


def cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _stack(home: StackHome) -> list[Finding]:
    record = load_record(home)
    running = is_held(home)
    return [
        _checked("stack", "nats-server", _server),
        _checked("stack", "state directory", lambda: _writable(home.root)),
        _checked("stack", "loopback ports", _loopback),
        Finding(
            "stack",
            "running stack",
            f"pid {record.process.pid}, {record.gateway_url}" if running and record else "none",
            Mark.INFO,
        ),
        *([] if running or record is None else [_left_over(home)]),
    ]


def _left_over(home: StackHome) -> Finding:
    return Finding(
        "stack", "left over", f"a stack ended without `cotenant down` in {home.root}; up adopts, down cleans", Mark.INFO
    )


def _checked(topic: str, name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(topic, name, check(), Mark.OK)
    except (CotenantError, OSError) as error:
        return Finding(topic, name, str(error), Mark.FAULT)


def _server() -> str:
    from cotenant.stack.nats import find_server  # noqa: PLC0415

    return str(find_server())


def _loopback() -> str:
    return f"free ports on {ports.LOOPBACK}, for example {ports.choose('gateway', None, None)}"


def _writable(root: Path) -> str:
    """The nearest directory that exists decides; nothing is made to find out."""
    existing = next(path for path in (root, *root.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise CotenantError(f"{root}: may not write in {existing}; set COTENANT_HOME")
    free = shutil.disk_usage(existing).free
    if free < _NEEDED_DISK_BYTES:
        raise CotenantError(f"{root}: only {free >> 20} MiB free; {_NEEDED_DISK_BYTES >> 20} MiB are needed")
    return f"{root}, {free >> 20} MiB free"
