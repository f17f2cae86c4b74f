"""What pods and systems want to use, as the scenario says; it follows a pod wherever it runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from cotenant_common.model import labels, resources
from cotenant_common.model.pod import Pod
from cotenant_simulator.core.annotations import read_sim_usage
from cotenant_simulator.core.courses import Courses, TraceRef
from cotenant_simulator.core.scenario import Demand, SetUsage, Signal

NOTHING: Final = Demand()


@dataclass(frozen=True, slots=True)
class TracedDemand(Demand):
    """What it is where the table says nothing, and the columns that say more."""

    cpu: TraceRef | None = None
    memory: TraceRef | None = None


def over(upper: Demand, lower: Demand) -> Demand:
    """The upper one, where it says something."""
    return Demand(
        lower.cpu_milli if upper.cpu_milli is None else upper.cpu_milli,
        lower.memory_bytes if upper.memory_bytes is None else upper.memory_bytes,
    )


def own_demand(pod: Pod) -> Demand:
    """What the pod's manifest says it will use: the annotation, else its request. Neither: not known."""
    native: dict[str, int] = {}
    for name, amount in pod.requests.items():
        target = resources.NATIVE_OF.get(name, name)
        native[target] = native.get(target, 0) + amount
    requested = Demand(native.get(resources.CPU), native.get(resources.MEMORY))
    text = pod.annotations.get(labels.SIM_USAGE)
    if text is None:
        return requested
    usage = read_sim_usage(text)
    fixed = over(usage.fixed, requested)
    if not usage.traced:
        return fixed
    cpu, memory = usage.traced.get(resources.CPU), usage.traced.get(resources.MEMORY)
    return TracedDemand(fixed.cpu_milli, fixed.memory_bytes, cpu, memory)


@dataclass(slots=True)
class Demands:
    """Entries in the order in which they were made; the newest that says something counts."""

    _usage: list[SetUsage] = field(default_factory=list)
    _signals: list[Signal] = field(default_factory=list)
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _pods: dict[str, Demand] = field(default_factory=dict)
    _systems: dict[str, Demand] = field(default_factory=dict)
    _courses: Courses = field(default_factory=dict)
    _now_ms: int = 0

    def listen(self, before_change: Callable[[], None]) -> None:
        self._listeners.append(before_change)

    def forget(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    def begin(self, entry: SetUsage | Signal) -> None:
        self._tell()
        (self._usage if isinstance(entry, SetUsage) else self._signals).append(entry)  # type: ignore[arg-type]
        self._pods.clear()
        self._systems.clear()

    def end(self, entry: SetUsage | Signal) -> None:
        self._tell()
        self._usage = [one for one in self._usage if one is not entry]
        self._signals = [one for one in self._signals if one is not entry]
        self._pods.clear()
        self._systems.clear()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def follow(self, courses: Courses) -> None:
        """The tables that pods may name."""
        self._courses = courses

    def changes(self, until_ms: int) -> Iterator[int]:
        """Instants at which a table's value changes; ``tick`` has to be called at each."""
        for course in self._courses.values():
            yield from course.changes(until_ms)

    def tick(self, now_ms: int) -> None:
        """Time since the start of the scenario; what the tables say may be something else from here on."""
        if self._courses and now_ms != self._now_ms:
            self._tell()
            self._now_ms = now_ms

    def _now(self, own: Demand) -> Demand:
        if not isinstance(own, TracedDemand):
            return own
        return over(Demand(self._value(own.cpu), self._value(own.memory)), Demand(own.cpu_milli, own.memory_bytes))

    def _value(self, ref: TraceRef | None) -> int | None:
        course = None if ref is None else self._courses.get(ref)
        return None if course is None else course.at(self._now_ms)

    def of_pod(self, key: str, own: Demand) -> Demand:
        if (said := self._pods.get(key)) is None:
            said = NOTHING
            for entry in self._usage:
                said = over(entry.pods.get(key, NOTHING), said)
            self._pods[key] = said
        own = self._now(own)
        return own if said is NOTHING else over(said, own)

    def of_system(self, node: str) -> Demand:
        if (said := self._systems.get(node)) is None:
            said = NOTHING
            for entry in self._usage:
                if entry.node == node and entry.system is not None:
                    said = over(entry.system, said)
            self._systems[node] = said
        return said

    def signal(self, node: str, key: str) -> Signal | None:
        return next((one for one in reversed(self._signals) if one.pod == key and one.node in (None, node)), None)
