"""Which nodes are hot, and by how much. Follows Koordinator's LowNodeLoad, with defaults for nodes filled with batch.

A node that batch fills to 95 % is healthy, so total usage counts only above ``total``; what services use themselves
counts from ``prod``. Memory is different from CPU: it cannot be suppressed, so a node short of it is in *danger*, and
its own life goes before a place to land.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cotenant_common.model.resources import CPU, MEMORY


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percent of allocatable; a resource that is absent is never hot. Pressure is PSI ``some avg10`` in percent."""

    total: Mapping[str, float] = field(default_factory=lambda: {CPU: 95.0, MEMORY: 95.0})
    prod: Mapping[str, float] = field(default_factory=lambda: {CPU: 65.0, MEMORY: 80.0})
    memory_pressure: float | None = 20.0
    run_queue_wait_ms: float | None = 300.0
    """Milliseconds per second that threads of services wait for a CPU, summed over the node."""
    danger_memory: float = 90.0
    """With memory pressure above its threshold, or alone above ``danger_memory_alone``."""
    danger_memory_alone: float = 97.0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Measured load of one node: milli-cores and bytes. A missing key is unknown, and unknown is never hot."""

    node: str
    at_ms: int
    allocatable: Mapping[str, int]
    usage: Mapping[str, int]
    prod_usage: Mapping[str, int]
    memory_pressure: float | None = None
    run_queue_wait_ms: float | None = None
    schedulable: bool = True


class Heat(StrEnum):
    FINE = "fine"
    HOT = "hot"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class Cause:
    """One number over its line. ``excess`` is in the resource's unit; None for pressures, which name no amount."""

    what: str
    resource: str
    value: float
    threshold: float
    excess: int | None

    def sentence(self) -> str:
        unit = " ms/s" if self.what == "run-queue wait" else " %"
        return f"{self.what} {self.value:.1f}{unit} is over {self.threshold:g}{unit}"


@dataclass(frozen=True, slots=True)
class Verdict:
    node: str
    heat: Heat
    causes: tuple[Cause, ...]

    @property
    def excess(self) -> dict[str, int]:
        """What has to leave, by resource; the largest cause of a resource covers the smaller ones."""
        worst: dict[str, int] = {}
        for cause in self.causes:
            if cause.excess is not None:
                worst[cause.resource] = max(cause.excess, worst.get(cause.resource, 0))
        return worst

    def sentence(self) -> str:
        return "; ".join(cause.sentence() for cause in self.causes) or "within its thresholds"


_ORDER: Final = (CPU, MEMORY)


def classify(load: NodeLoad, thresholds: Thresholds) -> Verdict:
    """Compare one sample with its thresholds. Equal is not over."""
    causes = [
        *_over("usage", load.usage, load.allocatable, thresholds.total),
        *_over("prod usage", load.prod_usage, load.allocatable, thresholds.prod),
        *_pressure("memory pressure", MEMORY, load.memory_pressure, thresholds.memory_pressure),
        *_pressure("run-queue wait", CPU, load.run_queue_wait_ms, thresholds.run_queue_wait_ms),
    ]
    if not causes:
        return Verdict(load.node, Heat.FINE, ())
    heat = Heat.DANGER if _in_danger(load, thresholds) else Heat.HOT
    return Verdict(load.node, heat, tuple(causes))


def percent(resource: str, used: Mapping[str, int], allocatable: Mapping[str, int]) -> float | None:
    """None when either number is unknown."""
    room = allocatable.get(resource)
    return 100.0 * used[resource] / room if room and resource in used else None


def _over(
    what: str, used: Mapping[str, int], allocatable: Mapping[str, int], lines: Mapping[str, float]
) -> list[Cause]:
    found = []
    for resource in _ORDER:
        value = percent(resource, used, allocatable)
        line = lines.get(resource)
        if value is not None and line is not None and value > line:
            excess = used[resource] - int(line * allocatable[resource] / 100)
            found.append(Cause(f"{resource} {what}", resource, value, line, excess))
    return found


def _pressure(what: str, resource: str, value: float | None, line: float | None) -> list[Cause]:
    if value is None or line is None or value <= line:
        return []
    return [Cause(what, resource, value, line, None)]


def _in_danger(load: NodeLoad, thresholds: Thresholds) -> bool:
    memory = percent(MEMORY, load.usage, load.allocatable)
    if memory is None:
        return False
    pressed = bool(_pressure("", MEMORY, load.memory_pressure, thresholds.memory_pressure))
    return memory > thresholds.danger_memory_alone or (pressed and memory > thresholds.danger_memory)
