"""A pod on this node, as the loops see it."""

from dataclasses import dataclass, field

from cotenant_agent.adapters.manifests import PodPlan
from cotenant_common.model.qos import PriorityBand, QosClass


@dataclass(slots=True)
class Placed:
    plan: PodPlan
    group: str
    cpuset: str | None = None
    leaving: bool = False
    latency_ms: float | None = None
    latency_at_ms: int | None = None
    # Asked of every pod several times a tick, and worked out from labels each time a Pod is asked.
    uid: str = field(init=False)
    qos: QosClass = field(init=False)
    band: PriorityBand = field(init=False)
    best_effort: bool = field(init=False)

    def __post_init__(self) -> None:
        pod = self.plan.pod
        self.uid, self.qos, self.band = pod.uid, pod.qos, pod.band
        self.best_effort = self.qos is QosClass.BE
