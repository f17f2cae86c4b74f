"""What the calculations know of one node at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_common.model.resources import MEMORY, ResourceList, render

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod on the node that has not ended. ``request`` is in native names; ``usage`` holds what was measured: a
    resource that is missing there is unknown, not 0."""

    uid: str
    band: PriorityBand
    qos: QosClass
    request: ResourceList
    usage: ResourceList = field(default_factory=dict)
    created_ms: int | None = None
    deleting: bool = False

    @property
    def is_high(self) -> bool:
        """Batch and free pods live on what is sold here; everybody else comes before them."""
        return is_high(self.band)


@dataclass(frozen=True, slots=True)
class LooseUsage:
    """Usage reported for something that is no known pod: one that has just ended, or an application of the host."""

    band: PriorityBand
    usage: ResourceList


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """``system_usage`` is what neither pods nor host applications account for; a missing resource is unknown.

    ``reservation`` is the node annotation; what the kubelet or the agent holds back is capacity − allocatable.
    """

    capacity: ResourceList
    allocatable: ResourceList
    system_usage: ResourceList
    node_usage: ResourceList = field(default_factory=dict)
    reservation: ResourceList = field(default_factory=dict)
    pods: Sequence[PodFacts] = ()
    dangling: Sequence[LooseUsage] = ()
    host_applications: Sequence[LooseUsage] = ()
    prod_reclaimable: Mapping[str, int] | None = None
    normalization_percent: int | None = None

    def reserved(self, resource: str) -> int:
        """The larger of what the node holds back and what its annotation asks for."""
        held_back = self.capacity[resource] - self.allocatable.get(resource, self.capacity[resource])
        return max(held_back, self.reservation.get(resource, 0), 0)

    def system_used(self, resource: str, apart_from: Sequence[PriorityBand]) -> int | None:
        """max(system usage + host applications apart from those bands, reserved); None when unknown."""
        measured = self.system_usage.get(resource)
        if measured is None:
            return None
        for application in self.host_applications:
            if application.band not in apart_from:
                measured += application.usage.get(resource, 0)
        return max(measured, self.reserved(resource))


def is_high(band: PriorityBand) -> bool:
    return band not in (PriorityBand.BATCH, PriorityBand.FREE)


def show(resource: str, value: int) -> str:
    """For sentences: memory in whole Mi, since what is sold is seldom a round number. Exact values travel beside."""
    if resource == MEMORY and value >= _MIB:
        return f"{value // _MIB}Mi"
    return render(resource, value)


def percent_of(value: int, percent: int) -> int:
    """Truncated toward zero, also for negative percentages."""
    share = value * percent
    return share // 100 if share >= 0 else -(-share // 100)
