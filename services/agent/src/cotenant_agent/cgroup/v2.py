"""Version 2: one hierarchy, from its real root or from a subtree delegated to this user."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cotenant_agent.cgroup.files import (
    PROCS,
    STAT_FILES,
    V2_CONTROLLERS,
    V2_CPUSET_EFFECTIVE,
    V2_EVENTS,
    V2_SUBTREE,
    V2_WANTED,
    Stat,
    Version,
)
from cotenant_agent.cgroup.hierarchy import HierarchyTree
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.cgroup.writer import write_file

_SELF_GROUP = "cotenant-self"


class V2Tree(HierarchyTree):
    def __init__(self, base: Path, root: str) -> None:
        super().__init__(root)
        self._base = base
        available = _words(base / V2_CONTROLLERS)
        self._controllers = tuple(name for name in V2_WANTED if name in available)

    @property
    def version(self) -> Version:
        return Version.V2

    def bases(self) -> Sequence[Path]:
        return (self._base,)

    def controller_base(self, controller: str) -> Path | None:
        return self._base if controller in self._controllers else None

    def create(self, group: str) -> None:
        parent = self._base
        for relative in self._levels(group):
            self._enable(parent)
            try:
                (self._base / relative).mkdir(exist_ok=True)
            except OSError as error:
                raise CgroupError(f"cannot create {self._base / relative}: {error}") from error
            parent = self._base / relative

    def _enable(self, directory: Path) -> None:
        missing = [name for name in self._controllers if name not in _words(directory / V2_SUBTREE)]
        if not missing:
            return
        if directory == self._base:
            _make_room(directory)
        for name in missing:
            with suppress(OSError):  # a controller that a parent withholds is reported as unsupported later
                write_file(directory / V2_SUBTREE, f"+{name}")

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        name = STAT_FILES[stat].v2
        return None if name is None else self._directory(self._base, group) / name

    def effective_cpus(self, group: str) -> tuple[int, ...] | None:
        return self._cpus_from(self._directory(self._base, group) / V2_CPUSET_EFFECTIVE)

    def kill_base(self) -> Path:
        return self._base


def _make_room(base: Path) -> None:
    """Controllers cannot be handed down from a group that holds processes, so those step into a leaf.

    Only the true root is exempt, and only it has no `cgroup.events`.
    """
    if not (base / V2_EVENTS).exists():
        return
    leaf = base / _SELF_GROUP
    for pid in _words(base / PROCS):
        leaf.mkdir(exist_ok=True)
        with suppress(OSError):
            write_file(leaf / PROCS, pid)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
