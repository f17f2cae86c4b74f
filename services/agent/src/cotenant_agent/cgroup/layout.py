"""Which kind of cgroup tree this machine has, and where the agent may build its own. Reads only."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cotenant_agent.cgroup.files import PROCS, V1_CONTROLLERS, V2_CONTROLLERS, V2_SUBTREE, Version
from cotenant_agent.cgroup.hierarchy import HierarchyTree
from cotenant_agent.cgroup.v1 import V1Tree
from cotenant_agent.cgroup.v2 import V2Tree

CGROUP_FS = Path("/sys/fs/cgroup")
PROC_FS = Path("/proc")


class LayoutKind(StrEnum):
    V1 = "v1"
    HYBRID = "hybrid"
    V2 = "v2"
    V2_DELEGATED = "v2-delegated"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Layout:
    kind: LayoutKind
    reason: str
    controllers: Mapping[str, Path] = field(default_factory=dict)
    unified: Path | None = None

    @property
    def version(self) -> Version | None:
        if self.kind is LayoutKind.NONE:
            return None
        return Version.V1 if self.kind in {LayoutKind.V1, LayoutKind.HYBRID} else Version.V2


def detect_layout(cgroup_fs: Path = CGROUP_FS, proc_fs: Path = PROC_FS) -> Layout:
    if (cgroup_fs / V2_CONTROLLERS).exists():
        return _detect_v2(cgroup_fs, proc_fs)
    present = {name: cgroup_fs / name for name in V1_CONTROLLERS if (cgroup_fs / name / PROCS).exists()}
    writable = {name: path for name, path in present.items() if _may_build(path)}
    if not present:
        return Layout(LayoutKind.NONE, f"no cgroup controllers are mounted under {cgroup_fs}")
    if not writable:
        return Layout(LayoutKind.NONE, "the cgroup v1 controllers belong to root; run as root for full control")
    unified = cgroup_fs / "unified"
    if (unified / PROCS).exists() and _may_build(unified):
        return Layout(
            LayoutKind.HYBRID,
            f"cgroup v1 controllers ({', '.join(writable)}) with an empty v2 beside them for pressure and kill",
            writable,
            unified,
        )
    return Layout(LayoutKind.V1, f"cgroup v1 controllers ({', '.join(writable)})", writable)


def _detect_v2(cgroup_fs: Path, proc_fs: Path) -> Layout:
    if _may_build(cgroup_fs):
        return Layout(LayoutKind.V2, f"cgroup v2 at {cgroup_fs}", unified=cgroup_fs)
    own = own_v2_group(proc_fs)
    if own is not None:
        directory = cgroup_fs / own.lstrip("/")
        if _may_build(directory) and os.access(directory / V2_SUBTREE, os.W_OK):
            return Layout(LayoutKind.V2_DELEGATED, f"cgroup v2, delegated at {directory}", unified=directory)
    return Layout(
        LayoutKind.NONE,
        "cgroup v2 belongs to root and nothing is delegated to this user; "
        "run as root or under: systemd-run --user --scope -p Delegate=yes",
    )


def own_v2_group(proc_fs: Path = PROC_FS) -> str | None:
    try:
        lines = (proc_fs / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((line[3:] for line in lines if line.startswith("0::")), None)


def open_tree(layout: Layout, root: str) -> HierarchyTree | None:
    """The tree for a layout; None when the machine gives no rights to groups."""
    if layout.kind is LayoutKind.NONE:
        return None
    if layout.version is Version.V1:
        return V1Tree(layout.controllers, root, layout.unified)
    assert layout.unified is not None  # noqa: S101 - both v2 kinds carry their base
    return V2Tree(layout.unified, root)


def _may_build(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK) and os.access(directory / PROCS, os.W_OK)
