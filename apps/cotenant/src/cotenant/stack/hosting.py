"""Two ways to host the services: tasks of this process, or processes of their own."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from cotenant.stack import ports, services
from cotenant.stack.home import ProcessRef, ServiceRef
from cotenant.stack.processes import SERVICE_STOP_S, Child
from cotenant.stack.services import SERVICES, StackPlan
from cotenant_common.bus.login import Login
from cotenant_common.bus.nats_bus import connect
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext, ServiceHost, cancel_and_wait, debug_state
from cotenant_common.telemetry.logging import get_logger
from cotenant_common.telemetry.metrics import OpenTelemetryMetrics, render_prometheus


class Hosting(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def references(self) -> tuple[ServiceRef, ...]:
        """The processes as they are now; they change when a service is started again."""
        ...


class InOneProcess:
    """Every service is a task with a bus connection of its own; a crash starts that one again, nothing else."""

    def __init__(self, plan: StackPlan) -> None:
        self._plan = plan
        self._clock = SystemClock()
        self._hosts: dict[str, ServiceHost] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._health = _StackHealth(self._hosts)

    async def start(self) -> None:
        for name in SERVICES:
            chosen = services.settings(self._plan, name)
            self._hosts[name] = ServiceHost(
                name, self._context_maker(name, chosen.nats_login()), services.factory(name, chosen), self._clock
            )
        await self._health.start(self._plan.health_ports["stack"])
        self._tasks = [asyncio.create_task(host.run(), name=name) for name, host in self._hosts.items()]

    def _context_maker(self, name: str, login: Login) -> Callable[[], Awaitable[ServiceContext]]:
        async def make() -> ServiceContext:
            return ServiceContext(
                name=name,
                bus=await connect([self._plan.nats_url], name=name, login=login),
                clock=self._clock,
                log=get_logger(name),
                metrics=OpenTelemetryMetrics(name),
                health=Health(self._clock),
                instance=f"{self._plan.node}-{name}",
            )

        return make

    async def stop(self) -> None:
        await asyncio.gather(*(cancel_and_wait(task, SERVICE_STOP_S) for task in self._tasks))
        await self._health.stop()

    def references(self) -> tuple[ServiceRef, ...]:
        own = ProcessRef.current()
        return tuple(ServiceRef(name, own, self._plan.health_url(name)) for name in SERVICES)


class _StackHealth:
    """One server for all services of this process: ``/<service>/readyz`` and so on, ``/metrics`` for all."""

    def __init__(self, hosts: dict[str, ServiceHost]) -> None:
        self._hosts = hosts
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/{service}/readyz", self._readyz)
        application.router.add_get("/{service}/healthz", self._healthz)
        application.router.add_get("/{service}/debug/state", self._state)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, ports.LOOPBACK, port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _host(self, request: web.Request) -> ServiceHost:
        host = self._hosts.get(request.match_info["service"])
        if host is None:
            raise web.HTTPNotFound
        return host

    async def _readyz(self, request: web.Request) -> web.Response:
        host = self._host(request)
        context = host.context
        ready = context is not None and context.health.ready and context.bus.connected
        if context is None:
            reason = host.last_error or "connecting to the bus"
        else:
            reason = context.health.reason if context.bus.connected else "not connected to the bus"
        body = {"service": host.name, "ready": ready, "reason": reason, "restarts": host.restarts}
        return web.json_response(body, status=200 if ready else 503)

    async def _healthz(self, request: web.Request) -> web.Response:
        host = self._host(request)
        snapshot = host.context.health.snapshot() if host.context else None
        alive = snapshot is None or snapshot.alive
        body = {"service": host.name, "alive": alive, "stalled": list(snapshot.stalled) if snapshot else []}
        return web.json_response(body, status=200 if alive else 503)

    async def _state(self, request: web.Request) -> web.Response:
        host = self._host(request)
        return web.json_response({"service": host.name, "restarts": host.restarts, "state": debug_state(host.service)})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=render_prometheus(), headers={"Content-Type": "text/plain; version=0.0.4"})


@dataclass(slots=True)
class InProcesses:
    """``python -m cotenant_<service>`` for each, watched and started again. ``on_change`` records new pids."""

    plan: StackPlan
    on_change: Callable[[], None]
    _children: dict[str, Child] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        for name in SERVICES:
            # A wrong setting should end `up` with one line, not a child again and again.
            services.settings(self.plan, name)
            child = Child(
                name=name,
                command=[sys.executable, "-m", f"cotenant_{name}"],
                log=self.plan.options.state.logs / f"{name}.log",
                environment=dict(os.environ) | services.environment(self.plan, name),
            )
            await child.start()
            self._children[name] = child
            self._tasks.append(asyncio.create_task(child.supervise(self._changed), name=name))

    async def _changed(self) -> None:
        self.on_change()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(child.stop(SERVICE_STOP_S) for child in self._children.values()))

    def references(self) -> tuple[ServiceRef, ...]:
        return tuple(
            ServiceRef(name, child.reference, self.plan.health_url(name))
            for name, child in self._children.items()
            if child.reference is not None
        )
