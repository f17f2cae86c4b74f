"""Telemetry: newest wins, may be lost, never state."""

from typing import Any

from pydantic import Field

from cotenant_common.contracts.messages.base import Message


class Usage(Message):
    """CPU in milli-cores (None until two samples exist), memory in bytes without page cache."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


class PodUsage(Message):
    uid: str
    namespace: str
    name: str
    qos: str
    band: str
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    throttled_ratio: float | None = None


class NodeUsage(Message):
    """Once a second. ``system`` is what no pod accounts for; ``be_limit_milli`` is None while BE is uncapped."""

    node: str
    at_ms: int
    interval_ms: int
    usage: Usage
    system: Usage
    pods: list[PodUsage]
    be_usage_milli: int | None = None
    be_limit_milli: int | None = None
    be_limit_reason: str | None = None
    be_limit_message: str | None = None
    be_wish_milli: int | None = None
    """What BE would be held to; it is held to less strict a limit while the node is observed or frozen."""
    would_evict: list[str] = Field(default_factory=list)
    """Why which pod would leave, of what is only observed."""
    cpu_pressure_some: float | None = None
    """PSI ``some avg10`` of the system, percent."""
    memory_pressure_some: float | None = None
    io_pressure_some: float | None = None
    run_queue_wait_ms: float | None = None
    """Milliseconds that LS threads waited for a CPU per second of wall time, summed over the node."""
    agent_cpu_milli: int | None = None


class PodSignal(Message):
    uid: str
    namespace: str
    name: str
    qos: str
    cpu_milli: int | None = None
    sched_wait_ms: float | None = None
    """Run-queue wait per scheduling, mean over the interval."""
    throttled_ratio: float | None = None
    psi_cpu_some: float | None = None
    psi_memory_some: float | None = None
    latency_ms: float | None = None


class NodeSignal(Message):
    """Up to ten times a second, and only for pods with a target and their suspects."""

    node: str
    at_ms: int
    interval_ms: int
    pods: list[PodSignal]


class AppLatency(Message):
    """What a service says of itself."""

    namespace: str
    pod: str
    at_ms: int
    window_ms: int
    count: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
