"""Services and agents as tasks that can be crashed, parted and brought back, and what is wrong with them just now."""

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.bus.memory_link import Disturbance
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import Service, ServiceContext
from cotenant_common.telemetry.logging import Logger
from cotenant_common.telemetry.metrics import null_metrics
from cotenant_simulator.core.scenario import Fault, FaultKind
from cotenant_simulator.links import MutableBus

Factory = Callable[[ServiceContext], Service]

SERVICE_CRASHED: Final = "service_crashed"
"""The event of the trouble that a task which ended by itself leaves."""

_ERRORS: Final = 40
_RESTART_S: Final = 1.0
"""A supervisor starts what died by itself again; a fault keeps it down for as long as the fault lasts."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that a service itself called an error: worth a look, whatever the scenario expects."""

    t_ms: int
    service: str
    event: str
    details: str


class Troubles:
    """Collects what services log as errors; everything below is dropped."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.found: list[Trouble] = []
        self._now_ms = now_ms

    def logger(self, service: str) -> Logger:
        logger: Logger = structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=[_name_exception, self._collect],
            wrapper_class=structlog.make_filtering_bound_logger(_ERRORS),
            service=service,
        )
        return logger

    def _collect(self, _: Any, __: str, event: Any) -> str:
        service, what = str(event.pop("service", "")), str(event.pop("event"))
        self.found.append(Trouble(self._now_ms(), service, what, _details(event)))
        raise structlog.DropEvent

    @contextmanager
    def catching_all(self) -> Iterator[None]:
        """Loggers that no context hands out, such as the bus's own, for as long as the simulation runs."""
        before = structlog.get_config()
        structlog.configure(
            processors=[_name_exception, self._collect],
            wrapper_class=structlog.make_filtering_bound_logger(_ERRORS),
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        try:
            yield
        finally:
            structlog.configure(**before)


def _name_exception(_: Any, __: str, event: Any) -> Any:
    """A traceback is for who reads logs; the type, the text and the place tell two troubles apart."""
    if event.pop("exc_info", None) and (error := sys.exc_info()[1]) is not None:
        event["problem"] = _first(error)
    return event


def _first(error: BaseException) -> str:
    """The first error inside however many groups, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _details(fields: dict[str, Any]) -> str:
    return "; ".join(f"{key}={value}" for key, value in fields.items())


class Hosted:
    """One service. ``shared`` are the faults of the bus; every new connection begins in the state that all ask for."""

    def __init__(
        self,
        name: str,
        server: MemoryServer,
        clock: LoopClock,
        factory: Factory,
        troubles: Troubles,
        shared: Callable[[], Sequence[Fault]],
    ) -> None:
        self.name = name
        self.service: Service | None = None
        self.silenced = 0
        self.starts = 0
        self._server = server
        self._clock = clock
        self._factory = factory
        self._troubles = troubles
        self._shared = shared
        self._faults: list[Fault] = []
        self._bus: MutableBus | None = None
        self._task: asyncio.Task[None] | None = None
        self._context: ServiceContext | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def ready(self) -> bool:
        return self._context is not None and self._context.health.ready

    @property
    def reachable(self) -> bool:
        """Whether a user's request would get an answer now."""
        return self.running and self.ready and self._bus is not None and self._bus.connected

    def start(self) -> None:
        self.starts += 1
        self._bus = MutableBus(self._server.connect(self.name))
        self._context = ServiceContext(
            name=self.name,
            bus=self._bus,
            clock=self._clock,
            log=self._troubles.logger(self.name),
            metrics=null_metrics(),
            health=Health(self._clock),
            instance=f"{self.name}-{self.starts}",
        )
        self.refresh()
        self.service = self._factory(self._context)
        self._task = asyncio.get_running_loop().create_task(self._run(self.service), name=self.name)

    async def _run(self, service: Service) -> None:
        try:
            await service.run()
            problem = "run() returned without being cancelled"
        except Exception as error:  # noqa: BLE001 - a crash of any kind is what a host is for
            problem = _first(error)
        if self._bus is None or self._bus.inner.link.cut:
            return  # it was crashed on purpose, and whatever it died of is that
        self._bus.inner.cut()
        self._troubles.logger(self.name).error(SERVICE_CRASHED, problem=problem)
        asyncio.get_running_loop().call_later(_RESTART_S, self._start_again)

    def _start_again(self) -> None:
        if not self.running and not self._crashed:
            self.start()

    def crash(self) -> None:
        """The connection is cut before anything can clean up: a dead process says no goodbye."""
        if self._bus is not None:
            self._bus.inner.cut()
        if self._task is not None:
            self._task.cancel()

    # Faults

    @property
    def _crashed(self) -> bool:
        return any(fault.kind is FaultKind.CRASH for fault in self._faults)

    def begin(self, fault: Fault) -> None:
        self._faults.append(fault)
        if fault.kind is FaultKind.CRASH:
            self.crash()
        else:
            self.refresh()

    def end(self, fault: Fault) -> None:
        self._faults = [one for one in self._faults if one is not fault]
        if fault.kind is FaultKind.CRASH and not self._crashed:
            self.start()
        else:
            self.refresh()

    def silence(self, *, begin: bool) -> None:
        self.silenced += 1 if begin else -1
        self.refresh()

    def refresh(self) -> None:
        if self._bus is None or self._bus.inner.link.cut:
            return
        self._bus.silent = self.silenced > 0
        link = self._bus.inner
        shared = self._shared()
        faults = [*self._faults, *shared]
        kinds = [fault.kind for fault in faults]
        link.disturb(disturbance_of(faults))
        # A server that crashed is, for its clients, one that cannot be reached: what it holds is on its disk.
        if FaultKind.PARTITION in kinds or any(fault.kind is FaultKind.CRASH for fault in shared):
            link.partition()
        elif FaultKind.PAUSE in kinds:
            link.pause()
        else:
            link.heal()


def disturbance_of(faults: Sequence[Fault]) -> Disturbance:
    """Several at once add up; of several delays the longest counts."""
    kinds = [fault.kind for fault in faults]
    delays = [fault.delay_ms for fault in faults if fault.kind is FaultKind.DELAY]
    return Disturbance(
        duplicate=FaultKind.DUPLICATE in kinds,
        reorder=FaultKind.REORDER in kinds,
        delay_s=max(delays, default=0) / 1_000,
    )
