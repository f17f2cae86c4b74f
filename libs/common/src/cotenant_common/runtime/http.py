"""``/healthz``, ``/readyz``, ``/metrics`` and ``/debug/state`` of one process."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from cotenant_common.bus.protocol import Bus
from cotenant_common.runtime.health import Health
from cotenant_common.telemetry.metrics import render_prometheus


class HealthServer:
    def __init__(self, name: str, health: Health, bus: Bus, state: Callable[[], dict[str, Any]]) -> None:
        self.port = 0
        self._name = name
        self._health = health
        self._bus = bus
        self._state = state
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen; ``port`` is the real one afterwards, also when 0 was asked for."""
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/debug/state", self._debug_state)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        snapshot = self._health.snapshot()
        body = {"service": self._name, "alive": snapshot.alive, "stalled": list(snapshot.stalled)}
        return web.json_response(body, status=200 if snapshot.alive else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        ready = self._health.ready and self._bus.connected
        reason = self._health.reason if self._bus.connected else "not connected to the bus"
        body = {"service": self._name, "ready": ready, "reason": reason}
        return web.json_response(body, status=200 if ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=render_prometheus(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _debug_state(self, _: web.Request) -> web.Response:
        health = asdict(self._health.snapshot())
        body = {"service": self._name, "connected": self._bus.connected, "health": health, "state": self._state()}
        return web.json_response(body)
