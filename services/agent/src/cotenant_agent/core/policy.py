"""What one node must enforce, read from its rendered NodeSLO; what the SLO leaves out has our defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_IDLE_THRESHOLD: Final = 95
_WEIGHT_THRESHOLD: Final = 65
_MEMORY_THRESHOLD: Final = 90


class CpuPolicy(StrEnum):
    QUOTA = "cfsQuota"
    CPUSET = "cpuset"


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Percentages of the slice's capacity. `observe`: measure and report, write nothing, evict nothing."""

    enabled: bool = True
    cpu_policy: CpuPolicy = CpuPolicy.QUOTA
    cpu_threshold_percent: int = _WEIGHT_THRESHOLD
    cpu_min_percent: int | None = None
    memory_threshold_percent: int | None = _MEMORY_THRESHOLD
    memory_lower_percent: int | None = None
    observe: bool = False
    frozen: str | None = None
    observe_namespaces: tuple[str, ...] = ()
    """Pods of these namespaces are not removed; what would have been is reported."""


def default_policy(*, idle_class: bool) -> NodePolicy:
    """In the idle class batch yields within a tick, so it may fill what services leave; by weight alone it may not."""
    return NodePolicy(cpu_threshold_percent=_IDLE_THRESHOLD if idle_class else _WEIGHT_THRESHOLD)


def read_policy(
    slo: Mapping[str, Any],
    *,
    idle_class: bool,
    observe: bool = False,
    frozen: str | None = None,
    observe_namespaces: Sequence[str] = (),
) -> NodePolicy:
    """A value of the wrong kind counts as unset: the gateway validates, a node never stops over a bad policy."""
    base = default_policy(idle_class=idle_class)
    section = slo.get("resourceUsedThresholdWithBE")
    threshold = section if isinstance(section, Mapping) else {}
    cpu = _percent(threshold, "cpuSuppressThresholdPercent")
    memory = _percent(threshold, "memoryEvictThresholdPercent")
    return NodePolicy(
        enabled=threshold.get("enable") is not False,
        cpu_policy=_cpu_policy(threshold.get("cpuSuppressPolicy"), base.cpu_policy),
        cpu_threshold_percent=base.cpu_threshold_percent if cpu is None else cpu,
        cpu_min_percent=_percent(threshold, "cpuSuppressMinPercent"),
        memory_threshold_percent=base.memory_threshold_percent if memory is None else memory,
        memory_lower_percent=_percent(threshold, "memoryEvictLowerPercent"),
        observe=observe,
        frozen=frozen,
        observe_namespaces=tuple(observe_namespaces),
    )


def _percent(section: Mapping[str, Any], name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _cpu_policy(value: object, default: CpuPolicy) -> CpuPolicy:
    try:
        return CpuPolicy(str(value))
    except ValueError:
        return default
