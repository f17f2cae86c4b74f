"""Version 1: one hierarchy per controller; on a hybrid host an empty version 2 beside them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cotenant_agent.cgroup.files import (
    STAT_FILES,
    V1_CPUSET_EFFECTIVE,
    Stat,
    Version,
)
from cotenant_agent.cgroup.hierarchy import HierarchyTree
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.cgroup.writer import write_file


class V1Tree(HierarchyTree):
    """`controllers` maps a controller to the directory under which the root group lives.

    `unified` is the empty version 2 hierarchy of a hybrid host: no knobs, but per-group pressure and an atomic kill.
    """

    def __init__(self, controllers: Mapping[str, Path], root: str, unified: Path | None = None) -> None:
        super().__init__(root)
        self._controllers = dict(controllers)
        self._unified = unified
        # cpu and cpuacct are often one directory behind two names; attach to it once.
        distinct = {path.resolve(): path for path in self._controllers.values()}
        beside: tuple[Path, ...] = () if unified is None else (unified,)
        self._bases: tuple[Path, ...] = (*distinct.values(), *beside)

    @property
    def version(self) -> Version:
        return Version.V1

    def bases(self) -> Sequence[Path]:
        return self._bases

    def controller_base(self, controller: str) -> Path | None:
        return self._controllers.get(controller)

    def create(self, group: str) -> None:
        cpuset = self._controllers.get("cpuset")
        for relative in self._levels(group):
            for base in self._bases:
                try:
                    (base / relative).mkdir(exist_ok=True)
                except OSError as error:
                    raise CgroupError(f"cannot create {base / relative}: {error}") from error
            if cpuset is not None:
                _inherit_cpuset(cpuset / relative)

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        file = STAT_FILES[stat]
        if file.controller == "unified":
            return None if self._unified is None else self._directory(self._unified, group) / str(file.v2)
        base = self._controllers.get(file.controller)
        return None if base is None or file.v1 is None else self._directory(base, group) / file.v1

    def effective_cpus(self, group: str) -> tuple[int, ...] | None:
        base = self._controllers.get("cpuset")
        if base is None:
            return None
        directory = self._directory(base, group)
        return self._cpus_from(directory / V1_CPUSET_EFFECTIVE) or self._cpus_from(directory / "cpuset.cpus")

    def kill_base(self) -> Path:
        return self._bases[-1]


def _inherit_cpuset(directory: Path) -> None:
    """A new v1 cpuset is empty and takes no process (ENOSPC) until it has cpus and memory nodes."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        with suppress(FileNotFoundError):
            if not (directory / name).read_text().strip():
                write_file(directory / name, (directory.parent / name).read_text().strip())
