"""The colocation strategy of one node: Koordinator's field names and defaults, and where ours differ."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cotenant_common.model.resources import CPU, MEMORY

# BE in the kernel's idle class takes only what nobody else wants, so nearly the whole node may be sold; where the
# kernel has no such class Koordinator's own lines leave room for the damage.
IDLE_CLASS_LINE_PERCENT: Final = 95
REFERENCE_LINE_PERCENT: Final[Mapping[str, int]] = {CPU: 60, MEMORY: 65}
# Distance between what is sold and where the agent starts to evict, as in Koordinator (65 and 70).
_EVICTION_DISTANCE_PERCENT: Final = 5
_EVICTION_HYSTERESIS_PERCENT: Final = 2


class CalculatePolicy(StrEnum):
    """What a high-priority pod counts for: what it uses, what it was promised, or the larger."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


@dataclass(frozen=True, slots=True)
class EvictionBand:
    """Percent of capacity where the agent starts to evict, and where it stops."""

    threshold_percent: int
    lower_percent: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """Percentages are of capacity. A resource that is missing in a mapping is *unset*, which is not 0."""

    enable: bool = True
    reclaim_percent: Mapping[str, int] = field(default_factory=lambda: REFERENCE_LINE_PERCENT)
    policy: Mapping[str, CalculatePolicy] = field(default_factory=dict)
    batch_threshold_percent: Mapping[str, int] = field(default_factory=dict)
    degrade_ms: int = 900_000
    refresh_ms: int = 300_000
    diff_ratio: float = 0.1
    mid_static: bool = False
    mid_threshold_percent: Mapping[str, int] = field(default_factory=dict)
    mid_static_percent: Mapping[str, int] = field(default_factory=dict)
    mid_unallocated_percent: int = 0
    eviction: Mapping[str, EvictionBand] = field(default_factory=dict)

    def policy_of(self, resource: str) -> CalculatePolicy:
        return self.policy.get(resource, CalculatePolicy.USAGE)


def strategy_of(
    colocation: Mapping[str, Any], *, idle_class: bool, thresholds: Mapping[str, Any] | None = None
) -> Strategy:
    """Read the rendered colocation strategy; a field that is absent takes its default.

    ``thresholds`` is the node's ``resourceUsedThresholdWithBE``: memory that is sold by default stays below the line
    where the agent would evict for it again. A threshold that a user sets holds as set.
    """
    eviction = _eviction_bands(thresholds or {})
    defaults = default_lines(idle_class=idle_class, eviction=eviction)
    return Strategy(
        enable=bool(colocation.get("enable", True)),
        reclaim_percent={
            CPU: _number(colocation, "cpuReclaimThresholdPercent", defaults[CPU]),
            MEMORY: _number(colocation, "memoryReclaimThresholdPercent", defaults[MEMORY]),
        },
        policy={
            CPU: CalculatePolicy(colocation.get("cpuCalculatePolicy") or "usage"),
            MEMORY: CalculatePolicy(colocation.get("memoryCalculatePolicy") or "usage"),
        },
        batch_threshold_percent=_pair(colocation, "batchCPUThresholdPercent", "batchMemoryThresholdPercent"),
        degrade_ms=60_000 * _number(colocation, "degradeTimeMinutes", 15),
        refresh_ms=1000 * _number(colocation, "updateTimeThresholdSeconds", 300),
        diff_ratio=float(colocation.get("resourceDiffThreshold") or 0.1),
        mid_static=colocation.get("midReclaimMode") == "static",
        mid_threshold_percent=_pair(colocation, "midCPUThresholdPercent", "midMemoryThresholdPercent"),
        mid_static_percent=_pair(colocation, "midStaticCPUReservedPercent", "midStaticMemoryReservedPercent"),
        mid_unallocated_percent=_number(colocation, "midUnallocatedPercent", 0),
        eviction=eviction,
    )


def default_lines(*, idle_class: bool, eviction: Mapping[str, EvictionBand]) -> Mapping[str, int]:
    """Reclaim thresholds for fields that nobody set."""
    lines = dict.fromkeys(REFERENCE_LINE_PERCENT, IDLE_CLASS_LINE_PERCENT) if idle_class else REFERENCE_LINE_PERCENT
    return {
        name: min(line, eviction[name].threshold_percent - _EVICTION_DISTANCE_PERCENT) if name in eviction else line
        for name, line in lines.items()
    }


def _eviction_bands(thresholds: Mapping[str, Any]) -> dict[str, EvictionBand]:
    bands = {}
    for resource, prefix in ((CPU, "cpuEvict"), (MEMORY, "memoryEvict")):
        threshold = thresholds.get(f"{prefix}ThresholdPercent")
        if thresholds.get("enable", True) and threshold is not None:
            lower = _number(thresholds, f"{prefix}LowerPercent", int(threshold) - _EVICTION_HYSTERESIS_PERCENT)
            bands[resource] = EvictionBand(int(threshold), lower)
    return bands


def _number(source: Mapping[str, Any], name: str, default: int) -> int:
    value = source.get(name)
    return default if value is None else int(value)


def _pair(source: Mapping[str, Any], cpu: str, memory: str) -> dict[str, int]:
    found = {CPU: source.get(cpu), MEMORY: source.get(memory)}
    return {name: int(value) for name, value in found.items() if value is not None}
