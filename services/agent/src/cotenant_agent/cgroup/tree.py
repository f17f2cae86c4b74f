"""The agent's own subtree of the kernel's groups, whatever cgroup version holds it.

Group names are relative to the agent's root: `node-a/be/pod<uid>`. No name can leave the root, so nothing here
touches a level that another manager owns.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cotenant_agent.cgroup.files import Knob, KnobValue, Stat, Version

_PART = re.compile(r"[A-Za-z0-9_.:@-]+")


class CgroupError(Exception):
    """A cgroup operation that the kernel or the layout refused."""


class GroupMissingError(CgroupError):
    """The group is gone: its pod ended, or somebody removed it."""

    def __init__(self, group: str) -> None:
        super().__init__(f"cgroup {group!r} does not exist; create it first or drop it from the snapshot")
        self.group = group


class GroupBusyError(CgroupError):
    """The group still holds processes or children."""

    def __init__(self, group: str) -> None:
        super().__init__(f"cgroup {group!r} still holds processes; kill them and try again")
        self.group = group


class KnobUnsupportedError(CgroupError):
    """This kernel or layout has no such file."""

    def __init__(self, knob: Knob) -> None:
        super().__init__(f"this layout has no file for {knob.value}; the setting is left out")
        self.knob = knob


class KnobRefusedError(CgroupError):
    """The kernel said no to a write."""

    def __init__(self, group: str, knob: Knob, value: KnobValue, errno: int) -> None:
        super().__init__(f"the kernel refused {knob.value}={value} on {group!r} with errno {errno}")
        self.group = group
        self.knob = knob
        self.value = value
        self.errno = errno


def check_group(group: str) -> tuple[str, ...]:
    parts = tuple(group.split("/")) if group else ()
    for part in parts:
        if part in {".", ".."} or not _PART.fullmatch(part):
            raise CgroupError(f"a group name is made of [A-Za-z0-9_.:@-] parts; got {group!r}")
    return parts


def parent_of(group: str) -> str | None:
    if not group:
        return None
    return group.rpartition("/")[0]


def is_within(group: str, ancestor: str) -> bool:
    return not ancestor or group == ancestor or group.startswith(f"{ancestor}/")


class CgroupTree(Protocol):
    """Reads and single writes. Order, journal and skipping belong to `KnobWriter`."""

    @property
    def version(self) -> Version: ...

    def create(self, group: str) -> None:
        """Make the group and its parents, ready to take processes. Existing is success."""

    def remove(self, group: str) -> None:
        """Remove the group and everything under it. Missing is success; `GroupBusyError` while it holds pids."""

    def exists(self, group: str) -> bool: ...

    def children(self, group: str) -> Sequence[str]: ...

    def pids(self, group: str) -> Sequence[int]:
        """Processes of the group and of everything under it."""

    def procs_files(self, group: str) -> Sequence[Path]:
        """Files that a process writes itself into to join, one per hierarchy; none in a tree of no kernel."""

    def attach(self, group: str, pid: int) -> None: ...

    def kill(self, group: str) -> int:
        """SIGKILL to every process of the subtree; how many were there."""

    def supports(self, knob: Knob) -> bool:
        """Whether the layout has a controller and a file name for it; the kernel may still refuse."""

    def read(self, group: str, knob: Knob) -> KnobValue | None:
        """None when the file cannot be read."""

    def write(self, group: str, knob: Knob, value: KnobValue) -> None:
        """One write, no ordering. Raises one of the errors above."""

    def effective_cpus(self, group: str) -> tuple[int, ...] | None: ...

    def oom_kills(self, group: str) -> int | None: ...


class StatPaths(Protocol):
    """A tree whose statistics are real files, to be held open by a collector."""

    @property
    def version(self) -> Version: ...

    def stat_path(self, group: str, stat: Stat) -> Path | None: ...
