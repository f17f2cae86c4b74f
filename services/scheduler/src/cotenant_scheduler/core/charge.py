"""What one placed pod holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from cotenant_scheduler.core.estimate import PlacedLoad
from cotenant_scheduler.core.request import Labels, PodRequest, PodTerm, Port


@dataclass(frozen=True, slots=True)
class Charge:
    """What one pod holds, on its node and in its quota. The uid owns it; there is one way out (``Ledger.release``)."""

    uid: str
    namespace: str
    name: str
    node: str
    requests: Mapping[str, int]
    load: PlacedLoad
    ports: tuple[Port, ...] = ()
    labels: Labels = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    quota_label: str | None = None
    preemptible: bool = True
    priority: int = 0
    evictable: bool = True
    """Whether a more important pod may have it evicted."""
    counted: bool = True
    """False for room that is held on a node only, and in no quota."""

    @property
    def holds(self) -> tuple[str, Mapping[str, int], tuple[Port, ...], str | None]:
        """What others may take once it is given back."""
        return self.node, self.requests, self.ports, self.quota_label

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def charge_of(pod: PodRequest, node: str, now_ms: int, initialized_ms: int | None = None) -> Charge:
    """What the pod holds from now on."""
    shape = pod.shape
    return Charge(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=node,
        requests=shape.request,
        load=PlacedLoad(pod.uid, shape.estimate, shape.is_prod, now_ms, initialized_ms),
        ports=shape.ports,
        labels=pod.labels,
        anti_affinity=shape.anti_affinity,
        quota_label=pod.quota_label,
        preemptible=pod.preemptible,
        priority=pod.priority,
        evictable=pod.evictable,
    )
