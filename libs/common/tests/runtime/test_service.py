import asyncio
import json
import os
import signal
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.http import HealthServer
from cotenant_common.runtime.service import ServiceContext, ServiceHost, cancel_and_wait, debug_state
from cotenant_common.testing.context import memory_server, service_context
from cotenant_common.testing.nats_server import NatsServer, find_nats_server, free_port
from cotenant_common.testing.virtual_loop import in_virtual_time


class Idle:
    def __init__(self, context: ServiceContext) -> None:
        self.context = context
        self.cleaned_up = False

    async def run(self) -> None:
        self.context.health.set_ready(True)
        try:
            await asyncio.Event().wait()
        finally:
            self.cleaned_up = True

    def debug_state(self) -> dict[str, Any]:
        return {"cleaned_up": self.cleaned_up}


class Crashing:
    def __init__(self, _: ServiceContext) -> None:
        pass

    async def run(self) -> None:
        await asyncio.sleep(1)
        raise ValueError("out of luck")


@in_virtual_time
async def test_a_crashed_service_is_started_again_later_each_time() -> None:
    server = memory_server()
    starts: list[float] = []

    async def make_context() -> ServiceContext:
        starts.append(asyncio.get_running_loop().time())
        return service_context(server, "scheduler")

    host = ServiceHost("scheduler", make_context, Crashing, LoopClock())
    running = asyncio.create_task(host.run())
    await asyncio.sleep(60)
    pauses = [after - before - 1 for before, after in pairwise(starts)]
    assert pauses == pytest.approx([0.5, 1, 2, 5, 10, 30])
    assert host.last_error == "ValueError: out of luck"
    assert host.context is not None
    assert not host.context.health.ready
    assert await cancel_and_wait(running, 1)


@in_virtual_time
async def test_the_bus_of_a_crashed_run_is_closed_and_never_used_again() -> None:
    server = memory_server()
    contexts: list[ServiceContext] = []

    async def make_context() -> ServiceContext:
        contexts.append(service_context(server, "scheduler"))
        return contexts[-1]

    host = ServiceHost("scheduler", make_context, Crashing, LoopClock())
    running = asyncio.create_task(host.run())
    await asyncio.sleep(2)
    assert len(contexts) == 2
    assert not contexts[0].bus.connected
    assert contexts[1].bus.connected
    await cancel_and_wait(running, 1)
    assert not contexts[1].bus.connected


@in_virtual_time
async def test_a_connection_beyond_repair_starts_the_service_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    server = memory_server()
    contexts: list[ServiceContext] = []

    async def make_context() -> ServiceContext:
        contexts.append(service_context(server, "scheduler"))
        return contexts[-1]

    async def wait_failed(_: object) -> str:
        await asyncio.sleep(10)
        return "protocol error"

    monkeypatch.setattr("cotenant_common.bus.memory_bus.MemoryBus.wait_failed", wait_failed)
    host = ServiceHost("scheduler", make_context, Idle, LoopClock())
    running = asyncio.create_task(host.run())
    await asyncio.sleep(15)
    assert len(contexts) == 2
    assert host.last_error == "bus failed: protocol error"
    await cancel_and_wait(running, 1)


@in_virtual_time
async def test_cancelling_the_host_lets_the_service_clean_up() -> None:
    server = memory_server()

    async def make_context() -> ServiceContext:
        return service_context(server, "scheduler")

    host = ServiceHost("scheduler", make_context, Idle, LoopClock())
    running = asyncio.create_task(host.run())
    await asyncio.sleep(1)
    assert host.context is not None
    assert host.context.health.ready
    assert debug_state(host.service) == {"cleaned_up": False}
    assert await cancel_and_wait(running, 1)
    assert debug_state(host.service) == {"cleaned_up": True}


@in_virtual_time
async def test_a_service_that_does_not_end_is_given_up_in_time() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(1000)

    running = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    assert not await cancel_and_wait(running, 5)
    assert asyncio.get_running_loop().time() == 5
    running.cancel()


@in_virtual_time
async def test_health_is_not_ready_until_told_and_tells_why() -> None:
    health = Health(LoopClock())
    assert (health.ready, health.reason) == (False, "starting")
    health.set_ready(True)
    assert (health.ready, health.reason) == (True, "")
    health.set_ready(False)
    assert health.reason == "not ready, no reason given"
    health.set_ready(True)
    health.failure = "bus gone"
    assert (health.ready, health.reason, health.snapshot().alive) == (False, "bus gone", False)


@in_virtual_time
async def test_a_loop_that_stops_beating_fails_liveness() -> None:
    health = Health(LoopClock())
    health.beat("cycle", within_s=5)
    await asyncio.sleep(4)
    assert health.snapshot().alive
    await asyncio.sleep(2)
    assert health.snapshot().stalled == ("cycle",)
    health.beat("cycle", within_s=5)
    assert health.snapshot().alive
    await asyncio.sleep(6)
    health.forget("cycle")
    assert health.snapshot().alive


async def test_health_over_http() -> None:
    context = service_context(memory_server(), "scheduler")
    server = HealthServer("scheduler", context.health, context.bus, lambda: {"queue": 3})
    await server.start("127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.port}"
    async with aiohttp.ClientSession() as session:
        assert (await session.get(f"{base}/healthz")).status == 200
        response = await session.get(f"{base}/readyz")
        assert (response.status, (await response.json())["reason"]) == (503, "starting")
        context.health.set_ready(True)
        assert (await session.get(f"{base}/readyz")).status == 200
        context.bus.partition()  # type: ignore[attr-defined]
        response = await session.get(f"{base}/readyz")
        assert (response.status, (await response.json())["reason"]) == (503, "not connected to the bus")
        state = await (await session.get(f"{base}/debug/state")).json()
        assert state["state"] == {"queue": 3}
        assert (await session.get(f"{base}/metrics")).status == 200
    await server.stop()


PROGRAM = """
    import asyncio, sys
    from cotenant_common.runtime.service import main
    from cotenant_common.runtime.settings import ServiceSettings
    from cotenant_common.contracts.buckets import SPECS

    class Settings(ServiceSettings):
        service = "tester"

    class Tester:
        def __init__(self, context, settings):
            self.context = context

        async def run(self):
            self.bucket = await self.context.bus.bucket(SPECS)
            await self.bucket.put("started", b"1")
            self.context.health.set_ready(True)
            if "crash" in sys.argv:
                raise ValueError("out of luck")
            try:
                await asyncio.Event().wait()
            finally:
                if "stubborn" in sys.argv:
                    await asyncio.sleep(1000)
                await self.bucket.put("stopped", b"1")

    sys.exit(main(Tester, Settings))
"""

integration = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine"),
]


async def launch(tmp_path: Path, url: str, port: int, *arguments: str) -> asyncio.subprocess.Process:
    program = tmp_path / "service.py"
    program.write_text(textwrap.dedent(PROGRAM))
    environment = {
        **os.environ,
        "COTENANT_NATS_SERVERS": url,
        "COTENANT_TESTER_HTTP_PORT": str(port),
        "COTENANT_LOG_FORMAT": "json",
        "COTENANT_SHUTDOWN_TIMEOUT_S": "1",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, str(program), *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )


async def ready(port: int) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_bad_settings_are_one_line_and_status_3(tmp_path: Path) -> None:
    process = await launch(tmp_path, "nats://127.0.0.1:1", 70_000)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 3
    assert errors.decode().startswith("tester: COTENANT_TESTER_HTTP_PORT (http_port): ")
    assert len(errors.decode().splitlines()) == 1


class TestProcess:
    pytestmark = integration

    async def test_it_gets_ready_and_drains_on_sigterm(self, tmp_path: Path) -> None:
        async with NatsServer() as server:
            port = free_port()
            process = await launch(tmp_path, server.url, port)
            await ready(port)
            process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, errors.decode()
            events = [json.loads(line)["event"] for line in errors.decode().splitlines()]
            assert events[0] == "settings"
            assert events[-1] == "stopped"

    async def test_a_crash_ends_the_process_with_status_1(self, tmp_path: Path) -> None:
        async with NatsServer() as server:
            process = await launch(tmp_path, server.url, 0, "crash")
            _, errors = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 1
            assert "out of luck" in errors.decode()

    async def test_a_service_that_will_not_drain_is_ended_in_time(self, tmp_path: Path) -> None:
        async with NatsServer() as server:
            port = free_port()
            process = await launch(tmp_path, server.url, port, "stubborn")
            await ready(port)
            process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 1
            assert "shutdown_timed_out" in errors.decode()

    async def test_it_waits_for_a_bus_and_ends_when_asked_meanwhile(self, tmp_path: Path) -> None:
        process = await launch(tmp_path, f"nats://127.0.0.1:{free_port()}", 0)
        assert process.stderr is not None
        # The client's complaint shows that the signal handlers are in place and the wait has begun.
        while b"bus_error" not in (line := await asyncio.wait_for(process.stderr.readline(), 60)):
            assert line, "the process ended while it should wait"
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
