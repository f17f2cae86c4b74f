"""What both cgroup versions share: names to directories, reading, killing, removing."""

import errno
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cotenant_agent.cgroup.files import KNOB_FILES, PROCS, V2_KILL, Knob, KnobValue, Stat, Version
from cotenant_agent.cgroup.tree import (
    CgroupError,
    GroupBusyError,
    GroupMissingError,
    KnobRefusedError,
    KnobUnsupportedError,
    check_group,
)
from cotenant_agent.cgroup.writer import write_file
from cotenant_agent.core.cpuset import parse_cpuset
from cotenant_agent.core.usage import BE

_KILL_ROUNDS = 16
_BE_MARK = "-be-"


class HierarchyTree(ABC):
    """Groups that are directories in one or more kernel hierarchies."""

    def __init__(self, root: str) -> None:
        self._root = Path(*check_group(root))

    @property
    @abstractmethod
    def version(self) -> Version: ...

    @abstractmethod
    def bases(self) -> Sequence[Path]:
        """The directories that hold the root group, one per hierarchy; the first one answers for pids."""

    @abstractmethod
    def controller_base(self, controller: str) -> Path | None: ...

    @abstractmethod
    def create(self, group: str) -> None: ...

    @abstractmethod
    def stat_path(self, group: str, stat: Stat) -> Path | None: ...

    @abstractmethod
    def effective_cpus(self, group: str) -> tuple[int, ...] | None: ...

    @abstractmethod
    def kill_base(self) -> Path:
        """The hierarchy whose groups may have `cgroup.kill`."""

    def _relative(self, group: str) -> Path:
        """Where a group lies under each base. Best-effort groups stand beside the root, not in it.

        The kernel lets an idle group yield to its siblings only. Inside our root it would give way to our services,
        yet compete with full weight against everything else on the machine.
        """
        parts = check_group(group)
        if len(parts) >= 2 and parts[1] == BE:
            return Path(f"{self._root}{_BE_MARK}{parts[0]}", *parts[2:])
        return self._root.joinpath(*parts)

    def _directory(self, base: Path, group: str) -> Path:
        return base / self._relative(group)

    def _directories(self, base: Path, group: str) -> list[Path]:
        """Every directory that a group's name covers, its node's best-effort side included."""
        parts = check_group(group)
        own = self._directory(base, group)
        if not parts:
            return [own, *sorted(base.glob(f"{self._root}{_BE_MARK}*"))]
        return [own, self._directory(base, f"{group}/{BE}")] if len(parts) == 1 else [own]

    def _levels(self, group: str) -> list[Path]:
        """Root-relative paths from the root group down to this one."""
        parts = self._relative(group).parts
        return [Path(*parts[: depth + 1]) for depth in range(len(parts))]

    def exists(self, group: str) -> bool:
        return self._directory(self.bases()[0], group).is_dir()

    def children(self, group: str) -> Sequence[str]:
        # Of every hierarchy: a removal that was cut off leaves a group in some of them only.
        names = {name for base in self.bases() for name in _subdirectories(self._directory(base, group))}
        return tuple(f"{group}/{name}" if group else name for name in sorted(names))

    def pids(self, group: str) -> Sequence[int]:
        found: set[int] = set()
        for base in self.bases():
            for top in self._directories(base, group):
                for directory in _walk_up(top):
                    found.update(_read_pids(directory / PROCS))
        return tuple(sorted(found))

    def procs_files(self, group: str) -> Sequence[Path]:
        """What a process writes itself into, before it becomes somebody else's program."""
        return tuple(self._directory(base, group) / PROCS for base in self.bases())

    def attach(self, group: str, pid: int) -> None:
        for base in self.bases():
            try:
                write_file(self._directory(base, group) / PROCS, str(pid))
            except FileNotFoundError:
                raise GroupMissingError(group) from None
            except OSError as error:
                raise CgroupError(f"cannot move process {pid} into {group!r}: {error}") from error

    def kill(self, group: str) -> int:
        """A fork bomb outruns one pass over the pids, so pass until none is left or the rounds are used up."""
        first = [pid for pid in self.pids(group) if not _is_zombie(pid)]
        for directory in self._directories(self.kill_base(), group) if first else ():
            with suppress(OSError):  # kernels before 5.14 have no such file
                write_file(directory / V2_KILL, "1")
        for _ in range(_KILL_ROUNDS):
            pids = [pid for pid in self.pids(group) if not _is_zombie(pid)]
            if not pids:
                break
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        return len(first)

    def remove(self, group: str) -> None:
        for base in self.bases():
            for top in self._directories(base, group):
                for directory in _walk_up(top):
                    _remove(directory, group)

    def supports(self, knob: Knob) -> bool:
        file = KNOB_FILES[knob]
        return file.name(self.version) is not None and self.controller_base(file.controller) is not None

    def knob_path(self, group: str, knob: Knob) -> Path | None:
        file = KNOB_FILES[knob]
        name = file.name(self.version)
        base = self.controller_base(file.controller)
        return None if name is None or base is None else self._directory(base, group) / name

    def read(self, group: str, knob: Knob) -> KnobValue | None:
        path = self.knob_path(group, knob)
        if path is None:
            return None
        try:
            return KNOB_FILES[knob].decode(self.version, path.read_text())
        except (OSError, ValueError):
            return None

    def write(self, group: str, knob: Knob, value: KnobValue) -> None:
        path = self.knob_path(group, knob)
        if path is None:
            raise KnobUnsupportedError(knob)
        try:
            write_file(path, KNOB_FILES[knob].encode(self.version, value))
        except FileNotFoundError:
            if path.parent.is_dir():
                raise KnobUnsupportedError(knob) from None
            raise GroupMissingError(group) from None
        except OSError as error:
            raise KnobRefusedError(group, knob, value, error.errno or 0) from error

    def oom_kills(self, group: str) -> int | None:
        path = self.stat_path(group, Stat.MEMORY_OOM)
        if path is None:
            return None
        try:
            lines = path.read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
        return None

    def _cpus_from(self, path: Path) -> tuple[int, ...] | None:
        try:
            return parse_cpuset(path.read_text()) or None
        except (OSError, ValueError):
            return None


def _walk_up(top: Path) -> Iterator[Path]:
    """The directory's subtree, children before parents."""
    for directory, _, _ in os.walk(top, topdown=False):
        yield Path(directory)


def _remove(directory: Path, group: str) -> None:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in {errno.EBUSY, errno.ENOTEMPTY}:
            raise GroupBusyError(group) from error
        raise CgroupError(f"cannot remove {directory}: {error}") from error


def _subdirectories(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(directory) if entry.is_dir()]
    except FileNotFoundError:
        return []


def _read_pids(path: Path) -> list[int]:
    try:
        pids = [int(line) for line in path.read_text().split()]
    except OSError:
        return []
    # A process of another pid namespace shows as 0, and a signal to 0 would reach our own process group.
    return [pid for pid in pids if pid > 0]


def _is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] in {b"Z", b"X"}
