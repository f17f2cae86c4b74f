"""How much cpu best-effort work may use right now (Koordinator's BECPUSuppress), as a quota or as a set of cpus.

room for BE = capacity × threshold − what other pods use − max(node − all pods, reserved), in milli-cores.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

QUOTA_US_PER_MILLI: Final = 100
MIN_QUOTA_US: Final = 2_000
MIN_CPUS: Final = 2
RAISE_PERCENT: Final = 10
IDLE_CLASS_RAISE_PERCENT: Final = 50
"""In the idle class a raise that is too high costs a service nothing; room left unused for seconds does."""
BURST_US: Final = 50_000
"""What a period may carry over: while a service holds the cpus BE cannot use its share, and without a burst that share
expires with the period, so BE would stay some percent below its limit for ever."""
UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class SuppressInputs:
    """None is *not measured*. `non_be_milli` counts every pod that is not known to be BE."""

    capacity_milli: int
    threshold_percent: int
    node_milli: int | None
    non_be_milli: int | None
    be_milli: int | None
    reserved_milli: int = 0
    min_percent: int | None = None


@dataclass(frozen=True, slots=True)
class SuppressTarget:
    limit_milli: int
    message: str


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical cpu and where it sits."""

    cpu: int
    core: int
    socket: int
    numa: int


def be_target(inputs: SuppressInputs) -> SuppressTarget | None:
    """None when something needed was not measured: then the last limit stays."""
    if inputs.node_milli is None or inputs.non_be_milli is None or inputs.be_milli is None:
        return None
    system = max(inputs.node_milli - inputs.non_be_milli - inputs.be_milli, 0, inputs.reserved_milli)
    allowed = inputs.capacity_milli * inputs.threshold_percent // 100
    room = allowed - inputs.non_be_milli - system
    floor = 0 if inputs.min_percent is None else inputs.capacity_milli * inputs.min_percent // 100
    limit = max(room, floor, 0)
    return SuppressTarget(
        limit,
        f"BE may use {limit}m: {inputs.threshold_percent}% of {inputs.capacity_milli}m"
        f" less {inputs.non_be_milli}m of other pods and {system}m of the system",
    )


def next_quota_us(
    current_us: int, limit_milli: int, capacity_milli: int, raise_percent: int = RAISE_PERCENT
) -> int | None:
    """The quota to write, or None to leave it. Cuts apply at once, raises by ``raise_percent`` of capacity a step."""
    capacity_us = capacity_milli * QUOTA_US_PER_MILLI
    wanted = max(limit_milli * QUOTA_US_PER_MILLI, MIN_QUOTA_US)
    if current_us == UNLIMITED:
        return wanted
    if wanted == current_us:
        return None
    # Less than a percent of the node is noise, except at the floor, where BE must really arrive.
    if abs(wanted - current_us) * 100 < capacity_us and wanted != MIN_QUOTA_US:
        return None
    return min(wanted, current_us + capacity_us * raise_percent // 100)


def burst_us(quota_us: int) -> int:
    """The kernel takes a burst up to the quota, and none is needed without a limit."""
    return 0 if quota_us == UNLIMITED else min(BURST_US, quota_us)


def next_cpu_count(limit_milli: int, current_count: int, total_cpus: int) -> int:
    wanted = max(-(-limit_milli // 1_000), MIN_CPUS)
    return min(wanted, current_count + -(-total_cpus // 10))


def choose_cpus(count: int, shared: Sequence[Cpu], lsr_owned: Sequence[Cpu] = ()) -> tuple[int, ...]:
    """BE cpus taken from shared and LSR-owned ones in proportion. Empty when they do not suffice: keep the old set."""
    available = len(shared) + len(lsr_owned)
    if available == 0:
        return ()
    from_lsr = count * len(lsr_owned) // available
    lsr = pick_cpus(from_lsr, lsr_owned)
    rest = pick_cpus(count - from_lsr, shared)
    if len(lsr) + len(rest) < count:
        return ()
    return (*lsr, *rest)


def pick_cpus(count: int, cpus: Iterable[Cpu]) -> tuple[int, ...]:
    """Whole cores first, spread over (NUMA, socket) buckets, the largest bucket first; then single cpus."""
    buckets = _buckets(cpus)
    if count <= 0 or sum(len(bucket) for bucket in buckets) < count:
        return ()
    picked: list[int] = []
    turn = 0
    dry = 0
    while count - len(picked) > 1 and dry < len(buckets):
        pair = _first_pair(buckets[turn % len(buckets)])
        dry = dry + 1 if pair is None else 0
        for cpu in pair or ():
            buckets[turn % len(buckets)].remove(cpu)
            picked.append(cpu.cpu)
        turn += 1
    turn -= dry
    while len(picked) < count:
        bucket = buckets[turn % len(buckets)]
        if bucket:
            picked.append(bucket.pop(0).cpu)
        turn += 1
    return tuple(picked)


def _buckets(cpus: Iterable[Cpu]) -> list[list[Cpu]]:
    found: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda c: c.cpu):
        found.setdefault((cpu.numa, cpu.socket), []).append(cpu)
    return sorted(found.values(), key=lambda bucket: (-len(bucket), bucket[0].cpu))


def _first_pair(bucket: Sequence[Cpu]) -> tuple[Cpu, Cpu] | None:
    seen: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in bucket:
        seen.setdefault((cpu.socket, cpu.core), []).append(cpu)
    whole = [threads for threads in seen.values() if len(threads) >= 2]
    return None if not whole else (whole[0][0], whole[0][1])
