"""Whether the node takes a pod that was bound to it. The scheduler decides placement; the node may only refuse."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, PODS, ResourceList, render

# Sold resources can never exceed what the slice physically has; how much of it is sold is the profiler's business.
_BACKED_BY: Final[Mapping[str, str]] = {
    CPU: CPU,
    MEMORY: MEMORY,
    BATCH_CPU: CPU,
    BATCH_MEMORY: MEMORY,
    PODS: PODS,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: ReasonCode
    message: str


def refuse_digest(bound: str, current: str) -> Refusal | None:
    if bound == current:
        return None
    return Refusal(
        ReasonCode.BIND_REJECTED,
        f"the binding was made for spec {bound}, the pod's spec is now {current}; bind it again",
    )


def refuse_capacity(
    requests: ResourceList, running: Iterable[ResourceList], allocatable: ResourceList
) -> Refusal | None:
    """`running` are the requests of the pods already on the slice, terminal ones left out."""
    wanted = {**requests, PODS: 1}
    used: dict[str, int] = {}
    for pod in running:
        for name, value in {**pod, PODS: 1}.items():
            used[name] = used.get(name, 0) + value
    for name, value in sorted(wanted.items()):
        limit = allocatable.get(_BACKED_BY.get(name, name))
        taken = used.get(name, 0)
        if value > 0 and limit is not None and taken + value > limit:
            return Refusal(
                ReasonCode.INSUFFICIENT_RESOURCE,
                f"{name}: {render(name, value)} asked, {render(name, limit - taken)} of"
                f" {render(name, limit)} left on this slice",
            )
    return None
