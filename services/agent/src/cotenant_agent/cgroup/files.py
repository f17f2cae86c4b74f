"""Every cgroup file name, once, with the value the rest of the agent uses for it.

Canonical values: cpu weight in v1 shares (2..262144), cpu quota in microseconds per 100 ms, memory in bytes,
`UNLIMITED` where the kernel writes -1 or `max`, cpu lists as text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from cotenant_agent.core.cpuset import format_cpuset, parse_cpuset

KnobValue = int | str

UNLIMITED: Final = -1
PERIOD_US: Final = 100_000
MIN_QUOTA_US: Final = 1_000
MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
DEFAULT_SHARES: Final = 1_024
_DEFAULT_WEIGHT: Final = 100
PAGE_BYTES: Final = 4_096
# v1 shows "no limit" as the largest page-aligned 63-bit number; any value this large means the same.
_V1_MEMORY_UNLIMITED: Final = 1 << 62

PROCS: Final = "cgroup.procs"
V1_THREADS: Final = "tasks"
V2_THREADS: Final = "cgroup.threads"
V2_CONTROLLERS: Final = "cgroup.controllers"
V2_SUBTREE: Final = "cgroup.subtree_control"
V2_EVENTS: Final = "cgroup.events"
V2_KILL: Final = "cgroup.kill"
V1_FREEZER_STATE: Final = "freezer.state"
V1_CPUSET_EFFECTIVE: Final = "cpuset.effective_cpus"
V2_CPUSET_EFFECTIVE: Final = "cpuset.cpus.effective"

V1_CONTROLLERS: Final = ("cpu", "cpuacct", "cpuset", "memory", "pids", "freezer")
V2_WANTED: Final = ("cpu", "cpuset", "memory", "pids")


class Version(StrEnum):
    V1 = "v1"
    V2 = "v2"


class Knob(StrEnum):
    CPU_SHARES = "cpu_shares"
    CPU_QUOTA = "cpu_quota"
    CPU_BURST = "cpu_burst"
    CPU_IDLE = "cpu_idle"
    CPUSET_CPUS = "cpuset_cpus"
    CPUSET_MEMS = "cpuset_mems"
    MEMORY_MAX = "memory_max"
    MEMORY_HIGH = "memory_high"
    MEMORY_LOW = "memory_low"
    MEMORY_MIN = "memory_min"
    MEMORY_SWAP_MAX = "memory_swap_max"
    MEMORY_OOM_GROUP = "memory_oom_group"
    PIDS_MAX = "pids_max"


class Stat(StrEnum):
    CPU_USAGE = "cpu_usage"
    CPU_THROTTLE = "cpu_throttle"
    MEMORY = "memory"
    MEMORY_CURRENT = "memory_current"
    MEMORY_OOM = "memory_oom"
    PSI_CPU = "psi_cpu"
    PSI_MEMORY = "psi_memory"
    PSI_IO = "psi_io"
    THREADS = "threads"


def shares_to_weight(shares: int) -> int:
    """The container runtimes' mapping of [2, 262144] onto [1, 10000]; 1024 becomes 39."""
    bounded = min(max(shares, MIN_SHARES), MAX_SHARES)
    return 1 + (bounded - MIN_SHARES) * 9_999 // (MAX_SHARES - MIN_SHARES)


def weight_to_shares(weight: int) -> int:
    """The smallest shares that `shares_to_weight` turns into this weight."""
    steps = (weight - 1) * (MAX_SHARES - MIN_SHARES)
    return MIN_SHARES + -(-steps // 9_999)


@dataclass(frozen=True, slots=True)
class KnobFile:
    controller: str
    v1: str | None
    v2: str | None
    encode_v1: Callable[[KnobValue], str]
    decode_v1: Callable[[str], KnobValue]
    encode_v2: Callable[[KnobValue], str]
    decode_v2: Callable[[str], KnobValue]

    def name(self, version: Version) -> str | None:
        return self.v1 if version is Version.V1 else self.v2

    def encode(self, version: Version, value: KnobValue) -> str:
        return self.encode_v1(value) if version is Version.V1 else self.encode_v2(value)

    def decode(self, version: Version, text: str) -> KnobValue:
        return self.decode_v1(text) if version is Version.V1 else self.decode_v2(text)


def _int_text(value: KnobValue) -> str:
    return str(int(value))


def _int_of(text: str) -> KnobValue:
    return int(text.strip())


def _limit_text(value: KnobValue) -> str:
    return "max" if int(value) < 0 else str(int(value))


def _limit_of(text: str) -> KnobValue:
    word = text.strip()
    return UNLIMITED if word == "max" else int(word)


def _page_text_v1(value: KnobValue) -> str:
    return "-1" if int(value) < 0 else str(int(value) // PAGE_BYTES * PAGE_BYTES)


def _page_of_v1(text: str) -> KnobValue:
    number = int(text.strip())
    return UNLIMITED if number >= _V1_MEMORY_UNLIMITED else number


def _page_text_v2(value: KnobValue) -> str:
    return "max" if int(value) < 0 else str(int(value) // PAGE_BYTES * PAGE_BYTES)


def _quota_text_v2(value: KnobValue) -> str:
    return f"{_limit_text(value)} {PERIOD_US}"


def _quota_of_v2(text: str) -> KnobValue:
    fields = text.split()
    if len(fields) != 2:
        raise ValueError(f"cpu.max holds a quota and a period; got {text!r}")
    if fields[0] == "max":
        return UNLIMITED
    return int(fields[0]) * PERIOD_US // int(fields[1])


def _weight_text(value: KnobValue) -> str:
    return str(shares_to_weight(int(value)))


def _weight_of(text: str) -> KnobValue:
    return weight_to_shares(int(text.strip()))


def default_shares(version: Version) -> int:
    """What a group weighs that nobody gave a weight: the kernel's 1024 shares, or its weight of 100."""
    return DEFAULT_SHARES if version is Version.V1 else weight_to_shares(_DEFAULT_WEIGHT)


@lru_cache(maxsize=1_024)
def _cpus_of(text: KnobValue) -> str:
    return format_cpuset(parse_cpuset(str(text)))


def _cpus_text(value: KnobValue) -> str:
    # An empty write(2) changes nothing; a line break clears the set, which on v2 means "as the parent".
    return _cpus_of(value) or "\n"


def _plain(controller: str, v1: str | None, v2: str | None) -> KnobFile:
    return KnobFile(controller, v1, v2, _int_text, _int_of, _int_text, _int_of)


def _pages(v1: str | None, v2: str | None) -> KnobFile:
    return KnobFile("memory", v1, v2, _page_text_v1, _page_of_v1, _page_text_v2, _limit_of)


def _cpus(name: str) -> KnobFile:
    return KnobFile("cpuset", name, name, _cpus_text, _cpus_of, _cpus_text, _cpus_of)


KNOB_FILES: Final[dict[Knob, KnobFile]] = {
    Knob.CPU_SHARES: KnobFile("cpu", "cpu.shares", "cpu.weight", _int_text, _int_of, _weight_text, _weight_of),
    Knob.CPU_QUOTA: KnobFile("cpu", "cpu.cfs_quota_us", "cpu.max", _int_text, _int_of, _quota_text_v2, _quota_of_v2),
    Knob.CPU_BURST: _plain("cpu", "cpu.cfs_burst_us", "cpu.max.burst"),
    Knob.CPU_IDLE: _plain("cpu", "cpu.idle", "cpu.idle"),
    Knob.CPUSET_CPUS: _cpus("cpuset.cpus"),
    Knob.CPUSET_MEMS: _cpus("cpuset.mems"),
    Knob.MEMORY_MAX: _pages("memory.limit_in_bytes", "memory.max"),
    # v1's soft limit only biases global reclaim; it is not a throttle, so it is no substitute for memory.high.
    Knob.MEMORY_HIGH: _pages(None, "memory.high"),
    Knob.MEMORY_LOW: _pages(None, "memory.low"),
    Knob.MEMORY_MIN: _pages(None, "memory.min"),
    Knob.MEMORY_SWAP_MAX: _pages(None, "memory.swap.max"),
    Knob.MEMORY_OOM_GROUP: _plain("memory", None, "memory.oom.group"),
    Knob.PIDS_MAX: KnobFile("pids", "pids.max", "pids.max", _limit_text, _limit_of, _limit_text, _limit_of),
}


@dataclass(frozen=True, slots=True)
class StatFile:
    controller: str
    v1: str | None
    v2: str | None


STAT_FILES: Final[dict[Stat, StatFile]] = {
    Stat.CPU_USAGE: StatFile("cpuacct", "cpuacct.usage", "cpu.stat"),
    Stat.CPU_THROTTLE: StatFile("cpu", "cpu.stat", "cpu.stat"),
    Stat.MEMORY: StatFile("memory", "memory.stat", "memory.stat"),
    Stat.MEMORY_CURRENT: StatFile("memory", "memory.usage_in_bytes", "memory.current"),
    Stat.MEMORY_OOM: StatFile("memory", "memory.oom_control", "memory.events"),
    # Mainline v1 has no per-group pressure; a hybrid host has it in the empty unified hierarchy.
    Stat.PSI_CPU: StatFile("unified", None, "cpu.pressure"),
    Stat.PSI_MEMORY: StatFile("unified", None, "memory.pressure"),
    Stat.PSI_IO: StatFile("unified", None, "io.pressure"),
    Stat.THREADS: StatFile("cpu", V1_THREADS, V2_THREADS),
}
