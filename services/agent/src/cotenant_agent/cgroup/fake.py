"""A tree in memory that obeys the kernel's rules and remembers what it was told: for tests and simulated nodes."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cotenant_agent.cgroup.files import (
    DEFAULT_SHARES,
    KNOB_FILES,
    MIN_QUOTA_US,
    MIN_SHARES,
    UNLIMITED,
    Knob,
    KnobValue,
    Version,
)
from cotenant_agent.cgroup.tree import (
    CgroupError,
    GroupBusyError,
    GroupMissingError,
    KnobRefusedError,
    KnobUnsupportedError,
    check_group,
    is_within,
    parent_of,
)
from cotenant_agent.core.cpuset import format_cpuset, parse_cpuset

_IDLE_SHARES = 3


def _fresh(cpus: str) -> dict[Knob, KnobValue]:
    return {
        Knob.CPU_SHARES: DEFAULT_SHARES,
        Knob.CPU_QUOTA: UNLIMITED,
        Knob.CPU_BURST: 0,
        Knob.CPU_IDLE: 0,
        Knob.CPUSET_CPUS: cpus,
        Knob.CPUSET_MEMS: "0",
        Knob.MEMORY_MAX: UNLIMITED,
        Knob.MEMORY_HIGH: UNLIMITED,
        Knob.MEMORY_LOW: 0,
        Knob.MEMORY_MIN: 0,
        Knob.MEMORY_SWAP_MAX: UNLIMITED,
        Knob.MEMORY_OOM_GROUP: 0,
        Knob.PIDS_MAX: UNLIMITED,
    }


@dataclass(slots=True)
class FakeCgroupTree:
    cpus: str = "0-3"
    cgroup_version: Version = Version.V1
    refuses: set[Knob] = field(default_factory=set)
    """Knobs whose file exists and answers every write with EINVAL."""
    lacks: set[Knob] = field(default_factory=set)
    """Knobs that this kernel has no file for."""
    writes: list[tuple[str, Knob, KnobValue]] = field(default_factory=list)
    attempts: int = 0
    kills: list[str] = field(default_factory=list)
    _groups: dict[str, dict[Knob, KnobValue]] = field(default_factory=dict)
    _pids: dict[int, str] = field(default_factory=dict)
    _oom: dict[str, int] = field(default_factory=dict)

    @property
    def version(self) -> Version:
        return self.cgroup_version

    def create(self, group: str) -> None:
        parts = check_group(group)
        for depth in range(len(parts) + 1):
            name = "/".join(parts[:depth])
            if name not in self._groups:
                parent = parent_of(name)
                cpus = self.cpus if parent is None else str(self._groups[parent][Knob.CPUSET_CPUS])
                self._groups[name] = _fresh(cpus if self.version is Version.V1 else "")

    def remove(self, group: str) -> None:
        if self.pids(group):
            raise GroupBusyError(group)
        for name in [name for name in self._groups if is_within(name, group)]:
            del self._groups[name]
            self._oom.pop(name, None)

    def exists(self, group: str) -> bool:
        return group in self._groups

    def children(self, group: str) -> Sequence[str]:
        return tuple(sorted(name for name in self._groups if name and name.rpartition("/")[0] == group))

    def pids(self, group: str) -> Sequence[int]:
        return tuple(sorted(pid for pid, where in self._pids.items() if is_within(where, group)))

    def procs_files(self, group: str) -> Sequence[Path]:  # noqa: ARG002 - part of the protocol
        return ()

    def attach(self, group: str, pid: int) -> None:
        if group not in self._groups:
            raise GroupMissingError(group)
        if self.version is Version.V2 and self.children(group):
            raise CgroupError(f"{group!r} hands controllers to children and takes no process (EBUSY)")
        self._pids[pid] = group

    def exit(self, pid: int) -> None:
        self._pids.pop(pid, None)

    def kill(self, group: str) -> int:
        pids = self.pids(group)
        for pid in pids:
            del self._pids[pid]
        self.kills.append(group)
        return len(pids)

    def supports(self, knob: Knob) -> bool:
        return knob not in self.lacks and KNOB_FILES[knob].name(self.version) is not None

    def read(self, group: str, knob: Knob) -> KnobValue | None:
        if group not in self._groups or not self.supports(knob):
            return None
        return self._groups[group][knob]

    def write(self, group: str, knob: Knob, value: KnobValue) -> None:
        self.attempts += 1
        if group not in self._groups:
            raise GroupMissingError(group)
        if not self.supports(knob):
            raise KnobUnsupportedError(knob)
        code = self._refusal(group, knob, value)
        if code:
            raise KnobRefusedError(group, knob, value, code)
        file = KNOB_FILES[knob]
        stored = file.decode(self.version, file.encode(self.version, value))
        self._groups[group][knob] = stored
        if knob is Knob.CPU_IDLE:
            self._groups[group][Knob.CPU_SHARES] = _IDLE_SHARES if stored == 1 else DEFAULT_SHARES
        self.writes.append((group, knob, value))

    def effective_cpus(self, group: str) -> tuple[int, ...] | None:
        cpus = self.read(group, Knob.CPUSET_CPUS)
        if cpus is None:
            return None
        parent = parent_of(group)
        above = parse_cpuset(self.cpus) if parent is None else self.effective_cpus(parent) or ()
        return tuple(cpu for cpu in parse_cpuset(str(cpus)) if cpu in above) or above

    def oom_kills(self, group: str) -> int | None:
        return self._oom.get(group, 0) if group in self._groups else None

    def oom(self, group: str) -> None:
        self._oom[group] = self._oom.get(group, 0) + 1

    def _refusal(self, group: str, knob: Knob, value: KnobValue) -> int:
        if knob in self.refuses:
            return errno.EINVAL
        if knob is Knob.CPUSET_CPUS:
            return self._refuse_cpus(group, str(value))
        number = int(value)
        if knob is Knob.CPU_QUOTA:
            return self._refuse_quota(group, number)
        if knob is Knob.CPU_BURST:
            quota = int(self._groups[group][Knob.CPU_QUOTA])
            return errno.EINVAL if number < 0 or (quota != UNLIMITED and number > quota) else 0
        if knob is Knob.CPU_SHARES:
            idle = self._groups[group][Knob.CPU_IDLE] == 1
            return errno.EINVAL if idle or number < MIN_SHARES else 0
        if knob in {Knob.CPU_IDLE, Knob.MEMORY_OOM_GROUP}:
            return 0 if number in {0, 1} else errno.ERANGE
        return 0

    def _refuse_cpus(self, group: str, value: str) -> int:
        if self.version is Version.V2:
            return 0  # whatever the parent lacks is left out of the effective set
        wanted = set(parse_cpuset(value))
        parent = parent_of(group)
        above = parse_cpuset(self.cpus if parent is None else str(self._groups[parent][Knob.CPUSET_CPUS]))
        if not wanted:
            return errno.ENOSPC
        if not wanted <= set(above):
            return errno.EACCES
        for child in self.children(group):
            if not set(parse_cpuset(str(self._groups[child][Knob.CPUSET_CPUS]))) <= wanted:
                return errno.EBUSY
        return 0

    def _refuse_quota(self, group: str, quota: int) -> int:
        if quota != UNLIMITED and quota < MIN_QUOTA_US:
            return errno.EINVAL
        burst = int(self._groups[group][Knob.CPU_BURST])
        if quota != UNLIMITED and burst > quota:
            return errno.EINVAL
        if self.version is Version.V2 or quota == UNLIMITED:
            return 0
        above = self._limit_above(group)
        if above is not None and quota > above:
            return errno.EINVAL
        return errno.EINVAL if self._largest_below(group) > quota else 0

    def _limit_above(self, group: str) -> int | None:
        parent = parent_of(group)
        while parent is not None:
            quota = int(self._groups[parent][Knob.CPU_QUOTA])
            if quota != UNLIMITED:
                return quota
            parent = parent_of(parent)
        return None

    def _largest_below(self, group: str) -> int:
        below = [
            int(knobs[Knob.CPU_QUOTA])
            for name, knobs in self._groups.items()
            if name != group and is_within(name, group)
        ]
        return max(below, default=UNLIMITED)

    def violations(self) -> list[str]:
        """Every broken kernel rule in the stored state; a correct fake always answers with nothing."""
        found: list[str] = []
        for name, knobs in self._groups.items():
            parent = parent_of(name)
            if parent is None:
                continue
            above = set(self.effective_cpus(parent) or ())
            if self.version is Version.V1 and not set(parse_cpuset(str(knobs[Knob.CPUSET_CPUS]))) <= above:
                found.append(f"{name}: cpus {knobs[Knob.CPUSET_CPUS]} outside {format_cpuset(above)}")
            limit = self._limit_above(name)
            if self.version is Version.V1 and limit is not None and int(knobs[Knob.CPU_QUOTA]) > limit:
                found.append(f"{name}: quota {knobs[Knob.CPU_QUOTA]} above {limit}")
        return found
