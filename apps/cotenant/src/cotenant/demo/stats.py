"""From counters and samples to the figures of an arm. Plain data in, plain data out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cotenant.demo.plan import Arm


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. ``latency_ms`` and ``late_ms`` count from the moment it was meant to leave."""

    at_s: float
    latency_ms: float
    late_ms: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What one neighbour, or all of a kind, got done."""

    units: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.units + other.units, self.cpu_s + other.cpu_s)

    def __sub__(self, other: "Work") -> "Work":
        return Work(self.units - other.units, self.cpu_s - other.cpu_s)


@dataclass(frozen=True, slots=True)
class Observation:
    """The machine at one moment of a segment; None where an arm has no such thing.

    ``cap_milli`` is what batch may use; None means no cap.
    """

    at_s: float
    busy_ratio: float
    service_cores: float
    batch_cores: float
    admitted: int
    pending: int
    cap_milli: int | None
    memory_over_grant_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """All CPU times in seconds, over the ``seconds`` of load; ``machine_cpu_s`` excludes what a hypervisor took."""

    arm: Arm
    round: int
    started_s: float
    seconds: float
    machine_cpu_s: float
    busy_cpu_s: float
    service_cpu_s: float
    load_cpu_s: float
    stack_cpu_s: float
    samples: Sequence[Sample]
    work: Mapping[str, Work] = field(default_factory=dict)
    memory_over_grant_bytes: int = 0
    service_major_faults: int = 0
    restarts: int = 0
    observations: Sequence[Observation] = ()


@dataclass(frozen=True, slots=True)
class ArmResult:
    """Figures of one arm over all its rounds. ``work_share`` is done / possible; None when nothing was possible."""

    arm: Arm
    seconds: float
    busy: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    samples: int
    errors: int
    work_units: int
    work_per_s: float
    work_core_s: float
    leftover_core_s: float
    work_share: float | None
    cpu_share: float | None
    lateness_p99_ms: float | None
    memory_over_grant_bytes: int
    service_major_faults: int
    service_cores: float
    load_cores: float
    stack_cores: float
    other_cores: float


def nearest_rank(values: Iterable[float], percent: float) -> float | None:
    """The smallest value that at least ``percent`` of all values do not exceed; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def total_work(parts: Iterable[Mapping[str, Work]]) -> dict[str, Work]:
    found: dict[str, Work] = {}
    for part in parts:
        for kind, work in part.items():
            found[kind] = found.get(kind, Work()) + work
    return found


def unit_rates(calibrated: Mapping[str, Work]) -> dict[str, float]:
    """Units per core-second of each kind, from runs with all cores busy."""
    return {kind: work.units / work.cpu_s for kind, work in calibrated.items() if work.cpu_s > 0}


def full_machine_work(calibrated: Mapping[str, Work], segments: Iterable[SegmentResult]) -> dict[str, Work]:
    """All work that was done with every core busy: the calibrations and the arms in which nothing holds batch back.

    The arms weigh most, and rightly so: they stand as close in time to the arm that is judged as anything can, on a
    machine whose speed drifts, and their neighbours share the caches with the service as that arm's do.
    """
    unheld = [segment.work for segment in segments if segment.arm in (Arm.UNCONTROLLED, Arm.WEIGHTS)]
    return total_work([calibrated, *unheld])


def work_core_seconds(work: Mapping[str, Work], rates: Mapping[str, float]) -> float:
    """Units of different kinds on one scale: the core-seconds they would have taken at the calibrated rate."""
    return sum(done.units / rates[kind] for kind, done in work.items() if kind in rates)


def other_cpu_s(segment: SegmentResult) -> float:
    """Busy, and neither service, load generator nor neighbours: kernel, the stack itself, whoever else is here."""
    batch = sum(work.cpu_s for work in segment.work.values())
    return max(0.0, segment.busy_cpu_s - segment.service_cpu_s - segment.load_cpu_s - batch)


def leftover_core_seconds(segment: SegmentResult) -> float:
    """What the neighbours could have had: the machine, less service, load generator and the rest of the system."""
    used = segment.service_cpu_s + segment.load_cpu_s + other_cpu_s(segment)
    return max(0.0, segment.machine_cpu_s - used)


def summarise(arm: Arm, all_segments: Sequence[SegmentResult], rates: Mapping[str, float]) -> ArmResult:
    """Pool the samples and sum the counters of every round of one arm."""
    found = [segment for segment in all_segments if segment.arm is arm]
    seconds = sum(segment.seconds for segment in found)
    samples = [sample for segment in found for sample in segment.samples]
    latency = sorted(sample.latency_ms for sample in samples)
    work = total_work(segment.work for segment in found)
    units = sum(done.units for done in work.values())
    done_core_s = work_core_seconds(work, rates)
    leftover = sum(leftover_core_seconds(segment) for segment in found)
    batch_cpu_s = sum(done.cpu_s for done in work.values())
    has_room = leftover > 0
    return ArmResult(
        arm=arm,
        seconds=seconds,
        busy=_ratio(sum(segment.busy_cpu_s for segment in found), sum(segment.machine_cpu_s for segment in found)),
        p50_ms=nearest_rank(latency, 50),
        p99_ms=nearest_rank(latency, 99),
        p999_ms=nearest_rank(latency, 99.9),
        samples=len(samples),
        errors=sum(1 for sample in samples if not sample.ok),
        work_units=units,
        work_per_s=_ratio(units, seconds),
        work_core_s=done_core_s,
        leftover_core_s=leftover,
        work_share=done_core_s / leftover if has_room else None,
        cpu_share=batch_cpu_s / leftover if has_room else None,
        lateness_p99_ms=nearest_rank((sample.late_ms for sample in samples), 99),
        memory_over_grant_bytes=max((segment.memory_over_grant_bytes for segment in found), default=0),
        service_major_faults=sum(segment.service_major_faults for segment in found),
        service_cores=_ratio(sum(segment.service_cpu_s for segment in found), seconds),
        load_cores=_ratio(sum(segment.load_cpu_s for segment in found), seconds),
        stack_cores=_ratio(sum(segment.stack_cpu_s for segment in found), seconds),
        other_cores=_ratio(sum(other_cpu_s(segment) for segment in found), seconds),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def memory_over_grant(resident_bytes: Mapping[str, int], granted_bytes: Mapping[str, int]) -> int:
    """What neighbours hold beyond what each was granted; one that stays below does not pay for another's excess."""
    return sum(max(0, held - granted_bytes.get(name, 0)) for name, held in resident_bytes.items())
