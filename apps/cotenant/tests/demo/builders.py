"""Small stand-ins for what a run measures."""

from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.demo.plan import Arm
from cotenant.demo.stats import ArmResult, Observation, Sample, SegmentResult, Work, summarise

RATES = {"compress": 200.0, "hash": 100.0}


def samples(latencies: Sequence[float], *, ok: bool = True) -> list[Sample]:
    return [Sample(at_s=index / 100, latency_ms=value, late_ms=0.1, ok=ok) for index, value in enumerate(latencies)]


def observation(at_s: float, **changes: Any) -> Observation:
    values: dict[str, Any] = {
        "at_s": at_s,
        "busy_ratio": 0.9,
        "service_cores": 0.4,
        "batch_cores": 1.2,
        "admitted": 4,
        "pending": 2,
        "cap_milli": 1500,
        "memory_over_grant_bytes": 0,
    }
    return Observation(**(values | changes))


def segment(arm: Arm = Arm.COTENANT, work: Mapping[str, Work] | None = None, **changes: Any) -> SegmentResult:
    """10 s on two cores, of which service, load generator and system used 0.8 + 0.1 + 0.1 cores."""
    values: dict[str, Any] = {
        "arm": arm,
        "round": 1,
        "started_s": 0.0,
        "seconds": 10.0,
        "machine_cpu_s": 20.0,
        "busy_cpu_s": 19.0,
        "service_cpu_s": 8.0,
        "load_cpu_s": 1.0,
        "stack_cpu_s": 0.2,
        "samples": samples([1.0, 2.0, 3.0, 4.0]),
        "work": {"compress": Work(units=1800, cpu_s=9.0)} if work is None else work,
    }
    return SegmentResult(**(values | changes))


def arm(kind: Arm, latencies: Sequence[float], **changes: Any) -> ArmResult:
    work = {} if kind is Arm.ALONE else None
    return summarise(kind, [segment(kind, work, samples=samples(latencies), **changes)], RATES)


def four_arms() -> dict[Arm, ArmResult]:
    """A run that meets every target."""
    return {
        Arm.ALONE: arm(Arm.ALONE, [4.0] * 1000, busy_cpu_s=10.0),
        Arm.UNCONTROLLED: arm(Arm.UNCONTROLLED, [40.0] * 1000),
        Arm.WEIGHTS: arm(Arm.WEIGHTS, [6.0] * 1000),
        Arm.COTENANT: arm(Arm.COTENANT, [5.0] * 1000),
    }
