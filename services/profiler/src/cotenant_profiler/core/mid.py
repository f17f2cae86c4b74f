"""Mid resources of one node: what prod was promised and will not use, by forecast.

    min( max(0, min(prod reclaimable, capacity − node usage)) + unallocated × midUnallocated %,
         capacity × midThreshold % )

A missing forecast counts as 0 reclaimable, missing node usage as nothing unused: neither may oversell
(Koordinator's midresource plugin). CPU in milli-cores, memory in bytes.
"""

from dataclasses import dataclass

from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_profiler.core.facts import NodeFacts, percent_of, show
from cotenant_profiler.core.strategy import Strategy

_MID_AND_BELOW = (PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE)
_PROMISED = (PriorityBand.PROD, PriorityBand.NONE)


@dataclass(frozen=True, slots=True)
class MidTerm:
    """``reclaimable`` after it was bounded by what is unused."""

    resource: str
    reclaimable: int
    unallocated: int
    cap: int
    result: int
    message: str


def mid_terms(node: NodeFacts, strategy: Strategy) -> dict[str, MidTerm]:
    """One term for each of CPU and memory that the node has."""
    return {resource: _term(node, strategy, resource) for resource in (CPU, MEMORY) if resource in node.capacity}


def _term(node: NodeFacts, strategy: Strategy, resource: str) -> MidTerm:
    capacity = node.capacity[resource]
    cap = percent_of(capacity, strategy.mid_threshold_percent.get(resource, 100))
    if strategy.mid_static:
        share = strategy.mid_static_percent.get(resource, 0)
        result = min(percent_of(capacity, share), cap)
        return MidTerm(resource, 0, 0, cap, result, f"{resource}: {share}% of {show(resource, capacity)}, static")
    reclaimable = max(0, min((node.prod_reclaimable or {}).get(resource, 0), _unused(node, resource)))
    unallocated = _unallocated(node, resource)
    result = min(reclaimable + percent_of(unallocated, strategy.mid_unallocated_percent), cap)
    message = (
        f"{resource}: {show(resource, reclaimable)} reclaimable from prod + {strategy.mid_unallocated_percent}%"
        f" of {show(resource, unallocated)} unallocated, at most {show(resource, cap)} = {show(resource, result)}"
    )
    return MidTerm(resource, reclaimable, unallocated, cap, result, message)


def _unused(node: NodeFacts, resource: str) -> int:
    used = node.node_usage.get(resource)
    return 0 if used is None else max(0, node.capacity[resource] - used)


def _unallocated(node: NodeFacts, resource: str) -> int:
    # Unknown system usage leaves only what is surely held back; the cap and the forecast bound the rest.
    system = node.system_used(resource, _MID_AND_BELOW)
    taken = node.reserved(resource) if system is None else system
    promised = sum(pod.request.get(resource, 0) for pod in node.pods if pod.band in _PROMISED)
    return max(0, node.capacity[resource] - taken - promised)
