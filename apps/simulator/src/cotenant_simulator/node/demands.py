"""What pods and systems want to use, as the scenario says; it follows a pod wherever it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cotenant_common.model import labels, resources
from cotenant_common.model.pod import Pod
from cotenant_simulator.core.annotations import read_sim_usage
from cotenant_simulator.core.scenario import Demand, SetUsage, Signal

NOTHING: Final = Demand()


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
    return requested if text is None else over(read_sim_usage(text), requested)


@dataclass(slots=True)
class Demands:
    """Entries in the order in which they were made; the newest that says something counts."""

    _usage: list[SetUsage] = field(default_factory=list)
    _signals: list[Signal] = field(default_factory=list)
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _pods: dict[str, Demand] = field(default_factory=dict)

    def listen(self, before_change: Callable[[], None]) -> None:
        self._listeners.append(before_change)

    def forget(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    def begin(self, entry: SetUsage | Signal) -> None:
        self._tell()
        (self._usage if isinstance(entry, SetUsage) else self._signals).append(entry)  # type: ignore[arg-type]
        self._pods.clear()

    def end(self, entry: SetUsage | Signal) -> None:
        self._tell()
        self._usage = [one for one in self._usage if one is not entry]
        self._signals = [one for one in self._signals if one is not entry]
        self._pods.clear()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def of_pod(self, key: str, own: Demand) -> Demand:
        if (said := self._pods.get(key)) is None:
            said = NOTHING
            for entry in self._usage:
                said = over(entry.pods.get(key, NOTHING), said)
            self._pods[key] = said
        return own if said is NOTHING else over(said, own)

    def of_system(self, node: str) -> Demand:
        said = NOTHING
        for entry in self._usage:
            if entry.node == node and entry.system is not None:
                said = over(entry.system, said)
        return said

    def signal(self, node: str, key: str) -> Signal | None:
        return next((one for one in reversed(self._signals) if one.pod == key and one.node in (None, node)), None)
