"""What the node says of itself: a tick's numbers as messages."""

from collections.abc import Mapping

from cotenant_agent.app.placed import Placed
from cotenant_agent.app.ticks import Tick
from cotenant_agent.core import usage as measured
from cotenant_agent.core.usage import BE, GroupUsage
from cotenant_common.contracts.messages.telemetry import NodeSignal, NodeUsage, PodSignal, PodUsage, Usage


def usage_message(
    node: str, at_ms: int, tick: Tick, pods: Mapping[str, Placed], agent_cpu_milli: int | None
) -> NodeUsage:
    found = tick.usage
    be = found.groups.get(BE)
    return NodeUsage(
        node=node,
        at_ms=at_ms,
        interval_ms=found.interval_ms,
        usage=Usage(cpu_milli=found.cpu_milli, memory_bytes=found.memory_bytes),
        system=Usage(cpu_milli=found.system_cpu_milli, memory_bytes=found.system_memory_bytes),
        pods=[_pod(placed, found.pods.get(uid, GroupUsage())) for uid, placed in pods.items()],
        be_usage_milli=None if be is None else be.cpu_milli,
        be_limit_milli=tick.be_limit_milli,
        be_limit_reason=None if tick.wish_milli is None else tick.limit.reason.value,
        be_limit_message=None if tick.wish_milli is None else tick.limit.message,
        be_wish_milli=tick.wish_milli,
        would_evict=list(tick.would_evict),
        cpu_pressure_some=found.cpu_pressure_some,
        memory_pressure_some=found.memory_pressure_some,
        io_pressure_some=found.io_pressure_some,
        run_queue_wait_ms=_waits(found, pods),
        agent_cpu_milli=agent_cpu_milli,
    )


def _pod(placed: Placed, used: GroupUsage) -> PodUsage:
    pod = placed.plan.pod
    return PodUsage(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=placed.qos.value,
        band=placed.band.value,
        cpu_milli=used.cpu_milli,
        memory_bytes=used.memory_bytes,
        throttled_ratio=used.throttled_ratio,
    )


def _waits(found: measured.NodeUsage, pods: Mapping[str, Placed]) -> float | None:
    waits = [
        used.wait_ms_per_s
        for uid, used in found.pods.items()
        if used.wait_ms_per_s is not None and (placed := pods.get(uid)) is not None and not placed.best_effort
    ]
    return sum(waits) if waits else None


def signal_message(
    node: str, at_ms: int, interval_ms: int, used: Mapping[str, GroupUsage], pods: Mapping[str, Placed]
) -> NodeSignal:
    return NodeSignal(
        node=node,
        at_ms=at_ms,
        interval_ms=interval_ms,
        pods=[_signal(pods[uid], found) for uid, found in used.items() if uid in pods],
    )


def _signal(placed: Placed, used: GroupUsage) -> PodSignal:
    pod = placed.plan.pod
    return PodSignal(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos.value,
        cpu_milli=used.cpu_milli,
        sched_wait_ms=used.wait_ms_per_slice,
        throttled_ratio=used.throttled_ratio,
        psi_cpu_some=used.cpu_pressure_some,
        psi_memory_some=used.memory_pressure_some,
        latency_ms=placed.latency_ms,
    )
