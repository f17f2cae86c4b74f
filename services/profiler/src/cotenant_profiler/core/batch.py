"""Batch resources of one node: what high-priority work was promised, or is left, and does not use.

    usage            max(0, capacity − margin − system − used by high-priority pods)
    request          max(0, capacity − margin − reserved − requested by high-priority pods)
    maxUsageRequest  max(0, capacity − margin − system − Σ max(used, requested))

margin = capacity × (100 − reclaim %) / 100, negative when more than the node is to be sold; system is at least what is
reserved. CPU in milli-cores, memory in bytes (Koordinator's batchresource plugin).
"""

from dataclasses import dataclass

from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_profiler.core.facts import NodeFacts, PodFacts, is_high, percent_of, show
from cotenant_profiler.core.strategy import CalculatePolicy, Strategy

_LOW = (PriorityBand.BATCH, PriorityBand.FREE)


@dataclass(frozen=True, slots=True)
class Term:
    """The sum behind one number, in the order in which it is taken: capacity − margin − system − prod_used."""

    resource: str
    capacity: int
    margin: int
    system: int
    prod_used: int
    result: int
    message: str


def batch_terms(node: NodeFacts, strategy: Strategy) -> dict[str, Term | None]:
    """One term for CPU and one for memory. None: the node's own usage is unknown, so nothing can be sold."""
    return {resource: _term(node, strategy, resource) for resource in (CPU, MEMORY)}


def _term(node: NodeFacts, strategy: Strategy, resource: str) -> Term | None:
    policy = strategy.policy_of(resource)
    capacity = node.capacity.get(resource)
    if capacity is None:
        return None
    system = node.reserved(resource) if policy is CalculatePolicy.REQUEST else node.system_used(resource, _LOW)
    if system is None:
        return None
    line = strategy.reclaim_percent[resource]
    margin = percent_of(capacity, 100 - line)
    high = high_priority_share(node, resource, policy)
    left = max(0, capacity - margin - system - high)
    message = _explain(resource, policy, line, (capacity, margin, system, high, left))
    cap = strategy.batch_threshold_percent.get(resource)
    if cap is not None and left > percent_of(capacity, cap):
        left = percent_of(capacity, cap)
        message += f", capped at {cap}% of capacity: {show(resource, left)}"
    ratio = node.normalization_percent
    if resource == CPU and ratio is not None and ratio > 100:
        left = percent_of(left, ratio)
        message += f", × {ratio}% for the faster CPU: {show(resource, left)}"
    return Term(resource, capacity, margin, system, high, left, message)


def high_priority_share(node: NodeFacts, resource: str, policy: CalculatePolicy) -> int:
    """What pods above batch count for, including usage of pods that ended but still show up in the metrics."""
    pods = [pod for pod in node.pods if pod.is_high]
    if policy is CalculatePolicy.REQUEST:
        return sum(pod.request.get(resource, 0) for pod in pods)
    loose = sum(one.usage.get(resource, 0) for one in node.dangling if is_high(one.band))
    return loose + sum(_counts_for(pod, resource, policy) for pod in pods)


def _counts_for(pod: PodFacts, resource: str, policy: CalculatePolicy) -> int:
    requested = pod.request.get(resource, 0)
    used = pod.usage.get(resource)
    # No sample is not idle: until there is one a pod counts with what it asked for, under every policy. Exclusive cores
    # are never lent, whatever runs on them.
    if used is None or (pod.qos is QosClass.LSE and resource == CPU and policy is CalculatePolicy.USAGE):
        return requested
    return max(used, requested) if policy is CalculatePolicy.MAX_USAGE_REQUEST else used


def _explain(resource: str, policy: CalculatePolicy, line: int, numbers: tuple[int, int, int, int, int]) -> str:
    capacity, margin, system, high, left = (show(resource, value) for value in numbers)
    held, taken = {
        CalculatePolicy.USAGE: ("system", "used by prod and mid"),
        CalculatePolicy.REQUEST: ("reserved", "requested by prod and mid"),
        CalculatePolicy.MAX_USAGE_REQUEST: ("system", "used or requested by prod and mid"),
    }[policy]
    return f"{resource} {capacity} − {margin} above the {line}% line − {system} {held} − {high} {taken} = {left}"
