"""What a hollow node says it measured: what its pods' manifests say they use, no more than it has."""

from collections.abc import Sequence
from typing import Final

from cotenant.hollow.plan import FleetPlan
from cotenant.hollow.pod import HollowPod
from cotenant_agent.adapters.manifests import PodPlan
from cotenant_common.contracts.messages.telemetry import NodeSignal, NodeUsage, PodSignal, PodUsage, Usage
from cotenant_common.model.pod import Pod
from cotenant_common.model.qos import QosClass

_SYSTEM_MILLI: Final = 100
_SYSTEM_BYTES: Final = 256 << 20
_SUSPECTS: Final = 5
"""As many as an agent names by default."""


def usage_of(node: str, now_ms: int, fleet: FleetPlan, pods: Sequence[HollowPod]) -> NodeUsage:
    shown = [_pod_usage(plan.pod, hollow) for plan, hollow in _running(pods)]
    cpu = _SYSTEM_MILLI + sum(one.cpu_milli or 0 for one in shown)
    memory = _SYSTEM_BYTES + sum(one.memory_bytes or 0 for one in shown)
    return NodeUsage(
        node=node,
        at_ms=now_ms,
        interval_ms=fleet.usage_interval_ms,
        usage=Usage(cpu_milli=min(cpu, fleet.cpu_milli), memory_bytes=min(memory, fleet.memory_bytes)),
        system=Usage(cpu_milli=_SYSTEM_MILLI, memory_bytes=_SYSTEM_BYTES),
        pods=shown,
        be_usage_milli=sum(one.cpu_milli or 0 for one in shown if one.qos == QosClass.BE.value),
        cpu_pressure_some=0.0,
        memory_pressure_some=0.0,
        io_pressure_some=0.0,
        run_queue_wait_ms=0.0,
        agent_cpu_milli=0,
    )


def _running(pods: Sequence[HollowPod]) -> list[tuple[PodPlan, HollowPod]]:
    return [(pod.plan, pod) for pod in pods if pod.running and pod.plan is not None]


def _pod_usage(pod: Pod, hollow: HollowPod) -> PodUsage:
    return PodUsage(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos.value,
        band=pod.band.value,
        cpu_milli=hollow.demand.cpu_milli,
        memory_bytes=hollow.demand.memory_bytes,
        throttled_ratio=0.0,
    )


def signal_of(node: str, now_ms: int, fleet: FleetPlan, pods: Sequence[HollowPod]) -> NodeSignal | None:
    """Pods with a target and the busiest best-effort pods beside them, on a machine that nothing disturbs."""
    running = _running(pods)
    targets = [(plan, hollow) for plan, hollow in running if plan.target is not None]
    if not targets:
        return None
    others = [(plan, hollow) for plan, hollow in running if plan.target is None and plan.pod.qos is QosClass.BE]
    suspects = sorted(others, key=lambda one: -(one[1].demand.cpu_milli or 0))[:_SUSPECTS]
    signals = [_signal(plan.pod, hollow) for plan, hollow in (*targets, *suspects)]
    return NodeSignal(node=node, at_ms=now_ms, interval_ms=fleet.usage_interval_ms, pods=signals)


def _signal(pod: Pod, hollow: HollowPod) -> PodSignal:
    return PodSignal(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos.value,
        cpu_milli=hollow.demand.cpu_milli,
        sched_wait_ms=0.0,
        throttled_ratio=0.0,
        psi_cpu_some=0.0,
        psi_memory_some=0.0,
    )
