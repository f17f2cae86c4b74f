"""What this machine allows, in data and in sentences. A probe reads; it changes nothing."""

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cotenant_agent.cgroup.files import KNOB_FILES, Knob, Version
from cotenant_agent.cgroup.layout import CGROUP_FS, PROC_FS, Layout, LayoutKind, detect_layout

# First mainline release with the file; used where no group exists yet whose files could be looked at.
_SINCE: Mapping[Knob, tuple[int, int]] = {
    Knob.CPU_IDLE: (5, 15),
    Knob.CPU_BURST: (5, 14),
}


class Level(StrEnum):
    FULL = "full"
    REDUCED = "reduced"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    kernel: str
    layout: LayoutKind
    layout_reason: str
    root: bool
    delegated: bool
    can_delegate: bool
    """A systemd user manager runs and could delegate a subtree to a fresh scope."""
    knobs: Mapping[str, bool]
    cgroup_version: Version | None

    def has(self, name: str) -> bool:
        return self.knobs.get(name, False)

    @property
    def idle_class(self) -> bool:
        return self.has("cpu_idle")

    def as_data(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "cgroup_version": None if self.cgroup_version is None else self.cgroup_version.value,
            "layout": self.layout.value,
            "root": self.root,
            "delegated": self.delegated,
            "can_delegate": self.can_delegate,
            "level": outlook(self).level.value,
            **dict(self.knobs),
        }


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the user will get here. `lines` are whole sentences, the most important first."""

    level: Level
    summary: str
    lines: tuple[str, ...]


def probe(cgroup_fs: Path = CGROUP_FS, proc_fs: Path = PROC_FS, sys_fs: Path = Path("/sys")) -> Capabilities:
    layout = detect_layout(cgroup_fs, proc_fs)
    release = platform.release()
    return Capabilities(
        kernel=release,
        layout=layout.kind,
        layout_reason=layout.reason,
        root=os.geteuid() == 0,
        delegated=layout.kind is LayoutKind.V2_DELEGATED,
        can_delegate=_can_delegate(cgroup_fs),
        knobs=_probe_knobs(layout, release) | _probe_signals(layout, proc_fs, sys_fs),
        cgroup_version=layout.version,
    )


def _probe_knobs(layout: Layout, release: str) -> dict[str, bool]:
    names = {
        "cpu_weight": Knob.CPU_SHARES,
        "cpu_idle": Knob.CPU_IDLE,
        "cpu_quota": Knob.CPU_QUOTA,
        "cpu_burst": Knob.CPU_BURST,
        "cpuset": Knob.CPUSET_CPUS,
        "memory_limit": Knob.MEMORY_MAX,
        "memory_high": Knob.MEMORY_HIGH,
        "pids": Knob.PIDS_MAX,
    }
    return {name: _has_knob(layout, knob, release) for name, knob in names.items()}


def _has_knob(layout: Layout, knob: Knob, release: str) -> bool:
    file = KNOB_FILES[knob]
    version = layout.version
    name = None if version is None else file.name(version)
    if version is None or name is None:
        return False
    base = layout.controllers.get(file.controller) if version is Version.V1 else layout.unified
    if base is None or (version is Version.V2 and not _v2_offers(base, file.controller)):
        return False
    if knob not in _SINCE:
        return True
    # Root groups of version 2 show no limits, so look at any group below.
    if (base / name).exists() or any((child / name).exists() for child in _some_children(base)):
        return True
    return version is Version.V2 and _release_of(release) >= _SINCE[knob] and not _some_children(base)


def _v2_offers(base: Path, controller: str) -> bool:
    try:
        return controller in (base / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def _some_children(base: Path) -> list[Path]:
    try:
        return sorted(path for path in base.iterdir() if path.is_dir())[:20]
    except OSError:
        return []


def _release_of(release: str) -> tuple[int, int]:
    numbers = release.replace("-", ".").split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        return 0, 0


def _probe_signals(layout: Layout, proc_fs: Path, sys_fs: Path) -> dict[str, bool]:
    schedstat = _first_line(proc_fs / "self" / "schedstat").split()
    return {
        "psi": bool(_first_line(proc_fs / "pressure" / "cpu")),
        "psi_group": layout.unified is not None and bool(_first_line(proc_fs / "pressure" / "cpu")),
        "schedstat": len(schedstat) == 3 and schedstat != ["0", "0", "0"],
        "sched_idle": hasattr(os, "SCHED_IDLE"),
        "resctrl": (sys_fs / "fs/resctrl/schemata").exists(),
        "perf": _has_counters(sys_fs) and _may_count(proc_fs),
    }


def _has_counters(sys_fs: Path) -> bool:
    """A virtual machine often has the interface and no counters behind it."""
    devices = sys_fs / "bus/event_source/devices"
    return any(next(devices.glob(pattern), None) is not None for pattern in ("cpu*", "arm*"))


def _may_count(proc_fs: Path) -> bool:
    """Counting another user's processes needs root or a permissive setting."""
    level = _first_line(proc_fs / "sys/kernel/perf_event_paranoid")
    if not level:
        return False
    return os.geteuid() == 0 or int(level) <= 0


def _can_delegate(cgroup_fs: Path) -> bool:
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    manager = Path(runtime_dir) / "systemd" / "private"
    has_v2 = (cgroup_fs / "cgroup.controllers").exists()
    return has_v2 and shutil.which("systemd-run") is not None and manager.exists()


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0]
    except OSError:
        return ""


_WITHOUT: Mapping[str, str] = {
    "cpu_idle": "no idle class: batch gets the smallest weight, and is sold and suppressed at a 65% line",
    "cpu_quota": "no cpu quota: batch cannot be capped, only outweighed",
    "cpuset": "no cpuset: cores cannot be bound",
    "memory_limit": "no memory limits: a pod can take any memory until eviction sees it",
    "pids": "no process limits: a fork bomb reaches the whole node",
    "schedstat": "no run-queue waits: the latency guard has pressure and targets only",
    "psi": "no pressure information: hotness is judged by use alone",
}


def outlook(found: Capabilities) -> Outlook:
    if not hasattr(os, "sched_setscheduler"):
        return Outlook(Level.NONE, "none: this is not Linux", ("Cotenant enforces through the Linux kernel only.",))
    if found.cgroup_version is None:
        return _without_groups(found)
    lacking = tuple(text for name, text in _WITHOUT.items() if not found.has(name))
    where = f"Groups: {found.layout_reason}."
    if not lacking:
        return Outlook(Level.FULL, "full: every means of isolation this version uses is there", (where,))
    summary = f"reduced: {lacking[0]}" + (f", and {len(lacking) - 1} more" if len(lacking) > 1 else "")
    return Outlook(Level.REDUCED, summary, (*(f"{text[0].upper()}{text[1:]}." for text in lacking), where))


def _without_groups(found: Capabilities) -> Outlook:
    lines = [
        f"No groups: {found.layout_reason}.",
        "Batch runs under SCHED_IDLE with nice 19 and a cpu affinity; it can be neither capped nor limited in memory.",
    ]
    if found.can_delegate:
        lines.append("More is within reach without root: systemd-run --user --scope -p Delegate=yes cotenant up")
    return Outlook(Level.REDUCED, "reduced: no cgroup rights, scheduling class and affinity only", tuple(lines))
