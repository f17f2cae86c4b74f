"""A run over time: what the machines really did, at most some hundred points of it."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.core.summary import BANDS, PodFacts, waits

MOST_POINTS: Final = 600
_UNITS: Final = {CPU: "cpu_milli", MEMORY: "memory_bytes"}
Reading = tuple[str, str, float | None]
"""Figure with its unit, which class, reason or quota ("" for none), value."""


def default_sample_ms(duration_ms: int) -> int:
    """Whole seconds, and never more than MOST_POINTS of them."""
    return max(1, -(-duration_ms // (1_000 * MOST_POINTS))) * 1_000


@dataclass(frozen=True, slots=True)
class Point:
    """The middle of a cell. By resource and class; None in ``used`` is not known."""

    t_ms: int
    nodes: int
    nodes_used: int
    capacity: Mapping[str, int]
    used: Mapping[str, Mapping[str, float | None]]
    requested: Mapping[str, Mapping[str, int]]
    pressed_pods: int
    borrowed_cpu_milli: Mapping[str, int]
    """By quota: used above its min."""
    lent_cpu_milli: Mapping[str, int]
    """By quota that lends."""


@dataclass(slots=True)
class Series:
    step_ms: int
    points: list[Point] = field(default_factory=list)
    waiting: list[dict[str, int]] = field(default_factory=list)
    """Pods in the queue by class, for each point."""
    evictions: list[dict[str, int]] = field(default_factory=list)
    """So far, by reason, for each point."""

    def finish(self, events: Sequence[Mapping[str, Any]], facts: Mapping[str, PodFacts]) -> None:
        """Add what the events say: they have the exact times."""
        found = [one for one in waits(events) if one.key in facts]
        queued = {name: sorted(one.queued_ms for one in found if facts[one.key].band == name) for name in BANDS}
        ended = {
            name: sorted(one.end_ms for one in found if facts[one.key].band == name and one.end_ms is not None)
            for name in BANDS
        }
        evicted: dict[str, list[int]] = {}
        for event in events:
            if event["type"] == "pod.evicted":
                evicted.setdefault(event["reason"] or "none", []).append(event["t_ms"])
        evicted = {name: sorted(times) for name, times in sorted(evicted.items())}
        for t_ms in (point.t_ms for point in self.points):
            self.waiting.append({name: _until(queued[name], t_ms) - _until(ended[name], t_ms) for name in BANDS})
            self.evictions.append({name: _until(times, t_ms) for name, times in evicted.items()})

    def readings(self) -> Iterator[tuple[int, Reading]]:
        """(time in ms, reading), in tidy long form."""
        for point, waiting, evictions in zip(self.points, self.waiting, self.evictions, strict=True):
            for reading in _readings(point, waiting, evictions):
                yield point.t_ms, reading


def _until(times: Sequence[int], t_ms: int) -> int:
    return bisect_right(times, t_ms)


def _readings(point: Point, waiting: Mapping[str, int], evictions: Mapping[str, int]) -> Iterator[Reading]:
    yield "nodes", "", point.nodes
    yield "nodes_used", "", point.nodes_used
    for resource, unit in _UNITS.items():
        yield f"capacity_{unit}", "", point.capacity[resource]
        for name, value in point.used[resource].items():
            yield f"used_{unit}", name, value
        for name, amount in point.requested[resource].items():
            yield f"requested_{unit}", name, amount
    yield "pressed_service_pods", "", point.pressed_pods
    for figure, by_name in (
        ("waiting_pods", waiting),
        ("evictions_so_far", evictions),
        ("borrowed_cpu_milli", point.borrowed_cpu_milli),
        ("lent_cpu_milli", point.lent_cpu_milli),
    ):
        for name, amount in by_name.items():
            yield figure, name, amount
