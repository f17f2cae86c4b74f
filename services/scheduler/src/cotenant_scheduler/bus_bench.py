"""Submit → bound over a real nats-server with persistence: the whole service, in a burst or among noise.

The service has this process to itself; who submits, watches and makes noise is a process of its own (``bus_load``),
and so is the server. The CPU time counts until the last event is told. Logs and metrics of the service go nowhere.
"""

import asyncio
import json
import os
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from cotenant_common.bus.nats_bus import connect
from cotenant_common.bus.protocol import Bus
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.metrics import Attributes, Histogram, Metrics, null_metrics
from cotenant_common.testing.context import quiet_log
from cotenant_common.testing.nats_server import NatsServer
from cotenant_scheduler.app import SchedulerService
from cotenant_scheduler.bench import Mix, percentile_ms
from cotenant_scheduler.bus_load import Load
from cotenant_scheduler.config import SchedulerSettings

_PATIENCE_S: Final = 600.0
_DECISION: Final = "cotenant_scheduler_decision_seconds"


class _Decisions:
    """Keeps the seconds of every attempt, and lets all other instruments go nowhere."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._nowhere = null_metrics()
        self.counter = self._nowhere.counter
        self.gauge = self._nowhere.gauge

    def histogram(self, name: str, description: str, unit: str = "s") -> Histogram:
        return self if name == _DECISION else self._nowhere.histogram(name, description, unit)

    def record(self, amount: float, attributes: Attributes | None = None) -> None:  # noqa: ARG002 - the protocol's
        self.seconds.append(amount)


async def run(nodes: int, pods: int, mix: Mix = "templates", *, noisy: bool = False) -> dict[str, Any]:
    """A burst: all pods as fast as the bus takes them. ``noisy``: at a steady pace, among noise."""
    async with NatsServer(sync_always=True) as server:
        bus = await connect([server.url], name="scheduler")
        decisions = _Decisions()
        asked = Load(nodes, pods, mix, noisy)
        load = await _start_load(server.url, asked)
        running = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await _line(load)  # the nodes are there
                service = _service(bus, decisions)
                running = asyncio.create_task(service.run())
                while not service.debug_state().get("leading"):
                    await asyncio.sleep(0.1)
                server_began = _cpu_seconds_of(server.pid)
                found = await _measure(bus, load, asked, decisions)
                return {**found, "server_cpu_seconds": round(_cpu_seconds_of(server.pid) - server_began, 2)}
        finally:
            if running is not None:
                running.cancel()
                await asyncio.wait([running])
            if load.returncode is None:
                load.kill()
            await load.wait()
            await bus.close()


def _service(bus: Bus, metrics: Metrics) -> SchedulerService:
    clock = SystemClock()
    context = ServiceContext("scheduler", bus, clock, quiet_log(), metrics, Health(clock), "bench")
    return SchedulerService(context, SchedulerSettings())


def _cpu_seconds_of(pid: int | None) -> float:
    """User and system time, fields 14 and 15 of ``/proc/<pid>/stat``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _start_load(url: str, load: Load) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cotenant_scheduler.bus_load",
        url,
        *load.arguments(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def _line(load: asyncio.subprocess.Process) -> dict[str, Any]:
    line = await load.stdout.readline() if load.stdout is not None else b""
    if not line:
        raise RuntimeError(f"the load process ended with status {await load.wait()}")
    return dict(json.loads(line))


async def _say(load: asyncio.subprocess.Process, word: str) -> dict[str, Any]:
    if load.stdin is not None:
        load.stdin.write(f"{word}\n".encode())
    return await _line(load)


async def _measure(bus: Bus, load: asyncio.subprocess.Process, asked: Load, decisions: _Decisions) -> dict[str, Any]:
    await _say(load, "noise")  # what fits nowhere waits
    decisions.seconds.clear()
    cpu_began = time.process_time()
    found = await _say(load, "submit")
    while await bus.last_event_sequence() < asked.pods:
        # What is left to tell of the bindings is part of their price.
        await asyncio.sleep(0.05)
    cpu_s = time.process_time() - cpu_began
    decided = sorted(decisions.seconds)
    return {
        **asdict(asked),
        **found,
        "cpu_seconds": round(cpu_s, 3),
        "pods_per_cpu_s": round(asked.pods / cpu_s, 1),
        "decision_p50_ms": percentile_ms(decided, 50),
        "decision_p99_ms": percentile_ms(decided, 99),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
