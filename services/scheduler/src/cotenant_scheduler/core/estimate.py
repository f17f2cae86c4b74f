"""LoadAwareScheduling: what a pod will probably use, and what its node therefore carries.

Formulas and names are those of Koordinator's ``LoadAwareScheduling`` plugin. CPU in milli-cores, memory in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, RESOURCES_BY_BAND

FACTOR_RESOURCES: Final = (CPU, MEMORY)
DEFAULT_CPU_MILLI: Final = 250
DEFAULT_MEMORY_BYTES: Final = 200 << 20
_WHEN_UNSET: Final[Mapping[str, int]] = {
    CPU: DEFAULT_CPU_MILLI,
    BATCH_CPU: DEFAULT_CPU_MILLI,
    MEMORY: DEFAULT_MEMORY_BYTES,
    BATCH_MEMORY: DEFAULT_MEMORY_BYTES,
}

Pair = tuple[int, int]
"""(cpu_milli, memory_bytes)"""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Which percentile over which window; a duration of 0 means the longest window that has data."""

    kind: str
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percent by native resource; empty or all zero means off."""

    plain: Mapping[str, int] = field(default_factory=dict)
    prod: Mapping[str, int] = field(default_factory=dict)
    aggregated: Mapping[str, int] = field(default_factory=dict)
    aggregation: Aggregation | None = None


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """LoadAwareSchedulingArgs. The filter is off until a threshold is set; scoring is on."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    filter_expired: bool = True
    schedule_when_expired: bool = False
    expiration_ms: int = 180_000
    weights: Mapping[str, int] = field(default_factory=lambda: {CPU: 1, MEMORY: 1})
    dominant_weight: int = 0
    scaling_factors: Mapping[str, int] = field(default_factory=lambda: {CPU: 85, MEMORY: 70})
    prod_usage_includes_system: bool = False
    score_by_prod_usage: bool = False
    score_aggregation: Aggregation | None = None
    allow_customize: bool = False
    after_scheduled_ms: int | None = None
    after_initialized_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Probable use of one pod, and for how long the guess outranks a measurement."""

    used: Pair
    after_scheduled_ms: int | None = None
    after_initialized_ms: int | None = None


def estimate_pod(
    requests: Mapping[str, int],
    limits: Mapping[str, int],
    band: PriorityBand,
    factors: Mapping[str, int],
) -> Pair:
    """round(max(request, limit) × factor / 100), never above the limit; a default for what asks for nothing."""
    translated = RESOURCES_BY_BAND[band.short]
    cpu, memory = (
        _estimate(translated.get(native), requests, limits, factors.get(native, 100)) for native in FACTOR_RESOURCES
    )
    return cpu, memory


def _estimate(name: str | None, requests: Mapping[str, int], limits: Mapping[str, int], factor: int) -> int:
    if name is None:
        return 0
    limit = limits.get(name, 0)
    quantity = max(limit, requests.get(name, 0)) or _WHEN_UNSET.get(name, 0)
    estimated = (quantity * factor * 2 + 100) // 200
    return min(estimated, limit) if limit > 0 else estimated


class PodMetric(NamedTuple):
    """Reported usage of one pod; ``is_prod`` by the reporter's own view of the band."""

    used: Pair
    is_prod: bool = False


@dataclass(frozen=True, slots=True)
class NodeMetric:
    """One report. ``interval_ms`` is the window behind ``usage``: a pod younger than it is not fully visible yet."""

    update_ms: int
    interval_ms: int
    usage: Pair
    system: Pair = (0, 0)
    pods: Mapping[str, PodMetric] = field(default_factory=dict)
    """By uid: a pod of the same name is another pod."""
    aggregated: Mapping[Aggregation, Pair] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlacedLoad:
    """What the estimator must know of a pod that sits on a node."""

    uid: str
    estimate: Estimate
    is_prod: bool
    placed_ms: int
    initialized_ms: int | None = None


Share = tuple[int, int, int, int, int, int]
"""What one placed pod adds: (cpu, memory) on top of node usage, to the prod view, to the sum of estimates.

Shares only ever add up, so a placement and its removal are one addition and one subtraction.
"""


def share_of(pod: PlacedLoad, metric: NodeMetric | None) -> Share:
    """Terminated pods are simply not among the placed ones."""
    cpu, memory = pod.estimate.used
    reported = metric.pods.get(pod.uid) if metric is not None else None
    if metric is None or reported is None:
        return (cpu, memory, cpu, memory, cpu, memory) if pod.is_prod else (cpu, memory, 0, 0, cpu, memory)
    used_cpu, used_memory = reported.used
    more_cpu = more_memory = 0
    if metric.update_ms - metric.interval_ms < pod.placed_ms or _deadline_ahead(pod, metric.update_ms):
        more_cpu, more_memory = max(0, cpu - used_cpu), max(0, memory - used_memory)
    if not pod.is_prod:
        return more_cpu, more_memory, 0, 0, cpu, memory
    if reported.is_prod:
        return more_cpu, more_memory, used_cpu + more_cpu, used_memory + more_memory, cpu, memory
    return more_cpu, more_memory, cpu, memory, cpu, memory


def _deadline_ahead(pod: PlacedLoad, update_ms: int) -> bool:
    """Whether the guess still outranks a measurement that covers the whole life of the pod."""
    estimate = pod.estimate
    if pod.initialized_ms is not None and estimate.after_initialized_ms:
        return pod.initialized_ms + estimate.after_initialized_ms > update_ms
    if estimate.after_scheduled_ms:
        return pod.placed_ms + estimate.after_scheduled_ms > update_ms
    return False


def aggregated_usage(metric: NodeMetric, wanted: Aggregation) -> Pair | None:
    """None when the percentile does not exist; the caller then uses the sum of estimates."""
    if wanted.duration_ms:
        return metric.aggregated.get(wanted)
    same_kind = sorted(each.duration_ms for each in metric.aggregated if each.kind == wanted.kind)
    if same_kind:
        return metric.aggregated[Aggregation(wanted.kind, same_kind[-1])]
    return metric.usage
