"""A ServiceContext on the in-memory bus, and a log that keeps quiet."""

import structlog

from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.runtime.clock import Clock, LoopClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.logging import Logger
from cotenant_common.telemetry.metrics import Metrics, null_metrics

EPOCH_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: virtual time 0, unless a test says otherwise."""


def quiet_log() -> Logger:
    """Drops every line."""
    logger: Logger = structlog.wrap_logger(
        structlog.ReturnLogger(), processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger(50)
    )
    return logger


def _drop(*_: object) -> str:
    raise structlog.DropEvent


def memory_server(epoch_ms: int = EPOCH_MS) -> MemoryServer:
    """A server whose time is that of the running loop."""
    return MemoryServer(LoopClock(epoch_ms))


def service_context(
    server: MemoryServer,
    name: str,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    instance: str | None = None,
    log: Logger | None = None,
) -> ServiceContext:
    """A new bus handle (``context.bus`` is a MemoryBus) with everything else a service needs."""
    used = clock or LoopClock(EPOCH_MS)
    return ServiceContext(
        name=name,
        bus=server.connect(name),
        clock=used,
        log=log or quiet_log(),
        metrics=metrics or null_metrics(),
        health=Health(used),
        instance=instance or f"{name}-1",
    )
