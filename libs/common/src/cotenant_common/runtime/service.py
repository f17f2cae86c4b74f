"""What a service is, and the two ways to host it: a process of its own, or a task beside others.

Shutdown contract. SIGTERM or SIGINT: the service is told not ready, its task is cancelled, its ``finally`` blocks may
drain for ``shutdown_timeout_s``; then the bus is closed and the process ends, whatever is left. A second signal ends
it at once. A restart finds its state in the buckets; its lease was released, so it (or a standby) leads without delay.
"""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from cotenant_common.bus.protocol import AccessDeniedError, Bus
from cotenant_common.runtime.clock import Clock, SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.requests import malformed_total
from cotenant_common.runtime.settings import ServiceSettings, SettingsError, load_settings
from cotenant_common.telemetry import logging, tracing
from cotenant_common.telemetry.logging import Logger
from cotenant_common.telemetry.metrics import Metrics, OpenTelemetryMetrics

if TYPE_CHECKING:
    from cotenant_common.bus.nats_bus import NatsBus

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 3
DRAIN_S: Final = 5.0
_BACK_OFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_LONG_ENOUGH_S: Final = 60.0
"""A service that ran this long starts its back-off over: the next crash is another story."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Everything a service gets from outside."""

    name: str
    bus: Bus
    clock: Clock
    log: Logger
    metrics: Metrics
    health: Health
    instance: str


class Service(Protocol):
    """Made by a factory from a ServiceContext and its settings."""

    async def run(self) -> None:
        """Run until cancelled; clean up in bounded time."""
        ...


class StatefulService(Service, Protocol):
    """A service that can show its inside on ``/debug/state``."""

    def debug_state(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=ServiceSettings)
Factory = Callable[[ServiceContext], Service]
ContextMaker = Callable[[], Awaitable[ServiceContext]]


def debug_state(service: Service | None) -> dict[str, Any]:
    """What the service tells of itself; empty when it tells nothing."""
    tell = getattr(service, "debug_state", None)
    return tell() if callable(tell) else {}


class ServiceHost:
    """Runs one service as a task and starts it again after a crash, later each time.

    ``make_context`` is called for every start, so that a crashed run's bus handle is never used again.
    """

    def __init__(
        self, name: str, make_context: ContextMaker, factory: Factory, clock: Clock, drain_s: float = DRAIN_S
    ) -> None:
        self.name = name
        self._drain_s = drain_s
        self.restarts = 0
        self.last_error: str | None = None
        self.context: ServiceContext | None = None
        self.service: Service | None = None
        self._make_context = make_context
        self._factory = factory
        self._clock = clock
        self._log = logging.get_logger(name)

    async def run(self) -> None:
        """For ever; ends only by cancellation."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            await self._run_once()
            if self._clock.monotonic() - began >= _LONG_ENOUGH_S:
                failures = 0
            pause_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
            failures += 1
            self.restarts += 1
            self._log.warning("service_restarts", after_s=pause_s, restarts=self.restarts, error=self.last_error)
            await asyncio.sleep(pause_s)

    async def _run_once(self) -> None:
        try:
            self.context = await self._make_context()
            self.service = self._factory(self.context)
            self.last_error = await self._until_it_ends(self.service, self.context)
        except Exception as error:  # noqa: BLE001 - a crash of any kind is what a host is for
            self.last_error = f"{type(error).__name__}: {error}"
            self._log.exception("service_crashed")
        finally:
            if self.context is not None:
                self.context.health.set_ready(False, self.last_error or "stopped")
                await self.context.bus.close()

    async def _until_it_ends(self, service: Service, context: ServiceContext) -> str:
        """Why it ended; raises what the service raised."""
        running = asyncio.create_task(service.run(), name=self.name)
        failed = asyncio.create_task(context.bus.wait_failed(), name=f"{self.name} bus")
        causes: list[asyncio.Future[Any]] = [running, failed]
        try:
            await asyncio.wait(causes, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
                return "run() returned without being cancelled"
            return f"bus failed: {failed.result()}"
        finally:
            failed.cancel()
            if not running.done() and not await cancel_and_wait(running, self._drain_s):
                self._log.error("shutdown_timed_out", after_s=self._drain_s)


def observe_bus(metrics: OpenTelemetryMetrics, bus: "NatsBus") -> None:
    """What goes wrong on the connection and in its handlers, as metrics of the service that owns it."""
    metrics.observe("cotenant_bus_errors_total", "Errors of the connection", lambda: bus.error_counts)
    metrics.observe(
        "cotenant_bus_handler_errors_total",
        "Messages whose handler failed or that nobody could read",
        lambda: {"handler": bus.handler_errors, "malformed": malformed_total.get(bus.name, 0)},
    )


def observe_health(metrics: OpenTelemetryMetrics, health: Health, bus: "NatsBus") -> None:
    """What ``/healthz`` and ``/readyz`` say, for those who were not there to ask."""

    def state() -> dict[str, int]:
        return {"alive": int(health.snapshot().alive), "connected": int(bus.connected), "ready": int(health.ready)}

    metrics.observe_gauge("cotenant_service_state", "1 while the service is alive, connected, ready; else 0", state)


def tune_collector() -> None:
    """For a process that keeps whole buckets in memory.

    Each decoded message adds objects that stay, so by the shipped thresholds (700, 10, 10) a burst of writes has the
    cycle collector walk the same mirrors over and over: a fifth of what a scheduler did, in pauses of 100 ms. Messages
    and records hold no cycles; what does, such as tracebacks, waits a little longer.
    """
    gc.set_threshold(20_000, 20, 50)


def main(build: Callable[[ServiceContext, S], Service], settings_class: type[S]) -> int:
    """All of a ``__main__``: ``sys.exit(main(SchedulerService, SchedulerSettings))``. Bad settings are status 3."""
    import uvloop  # noqa: PLC0415 - belongs to the edge; tests and simulations bring a loop of their own

    try:
        settings = load_settings(settings_class)
    except SettingsError as error:
        sys.stderr.write(f"{settings_class.service}: {error}\n")
        return EXIT_BAD_INPUT
    tune_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_service(settings.service, lambda context: build(context, settings), settings))


async def run_service(name: str, factory: Factory, settings: ServiceSettings) -> int:
    """The body of a service's ``__main__``: connect, serve health, run until SIGTERM. Return the exit status."""
    from cotenant_common.bus.nats_bus import connect  # noqa: PLC0415 - a simulation hosts services without a client

    logging.configure(settings.log_level, settings.log_format)
    tracing.configure(name, settings.otlp_endpoint)
    log = logging.get_logger(name, instance=settings.instance_name)
    log.info("settings", **settings.model_dump(mode="json"))
    stop = _stop_on_signals()
    clock = SystemClock()
    health = Health(clock)
    async with AsyncExitStack() as stack:
        try:
            login = settings.nats_login()
            connecting = connect(settings.nats_servers, name=name, login=login, replicas=settings.nats_replicas)
            bus = await _unless_stopped(connecting, stop)
        except SettingsError as error:
            log.error("bad_settings", error=str(error))  # noqa: TRY400 - the sentence says it all
            return EXIT_BAD_INPUT
        except AccessDeniedError as error:
            # Not bad input, after which supervisors give up: in a rotation the secret is about to be replaced.
            log.error("bus_refused", error=str(error))  # noqa: TRY400
            return EXIT_FAILED
        if bus is None:
            return EXIT_OK
        stack.push_async_callback(bus.close)
        metrics = OpenTelemetryMetrics(name, otlp_endpoint=settings.otlp_endpoint)
        observe_bus(metrics, bus)
        observe_health(metrics, health, bus)
        context = ServiceContext(
            name=name,
            bus=bus,
            clock=clock,
            log=log,
            metrics=metrics,
            health=health,
            instance=settings.instance_name,
        )
        service = factory(context)
        if settings.http_port:
            from cotenant_common.runtime.http import HealthServer  # noqa: PLC0415 - aiohttp costs 20 MiB

            server = HealthServer(name, health, bus, lambda: debug_state(service))
            await server.start(settings.http_host, settings.http_port)
            stack.push_async_callback(server.stop)
        failed = asyncio.ensure_future(bus.wait_failed())
        stack.callback(failed.cancel)
        return await _run_until(service, stop, failed, context, settings.shutdown_timeout_s)


async def _run_until(
    service: Service, stop: asyncio.Event, failed: "asyncio.Future[str]", context: ServiceContext, drain_s: float
) -> int:
    running = asyncio.create_task(service.run(), name=context.name)
    stopping = asyncio.create_task(stop.wait(), name="signals")
    causes: list[asyncio.Future[Any]] = [running, stopping, failed]
    await asyncio.wait(causes, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if failed.done():
        context.health.failure = failed.result()
        context.log.error("bus_failed", reason=failed.result())
    context.health.set_ready(False, "stopping")
    ended = await cancel_and_wait(running, drain_s)
    if not ended:
        context.log.error("shutdown_timed_out", after_s=drain_s)
    if ended and not running.cancelled() and (error := running.exception()) is not None:
        context.log.error("service_failed", exc_info=error)
        return EXIT_FAILED
    context.log.info("stopped", clean=ended)
    return EXIT_OK if ended and stop.is_set() else EXIT_FAILED


async def cancel_and_wait(task: "asyncio.Task[Any]", timeout_s: float) -> bool:
    """Cancel and give it time to clean up; False when it did not end."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    return bool(done)


def _stop_on_signals() -> asyncio.Event:
    """The first signal asks, the second kills: the default handler is back by then."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


async def _unless_stopped(connecting: Awaitable[Any], stop: asyncio.Event) -> Any:
    """The connection, or None when a signal came first: a service that waits for its bus must still end."""
    attempt = asyncio.ensure_future(connecting)
    stopping = asyncio.create_task(stop.wait(), name="signals")
    await asyncio.wait({attempt, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if attempt.done():
        return attempt.result()
    attempt.cancel()
    with suppress(asyncio.CancelledError):
        await attempt
    return None
