"""The same service on a real nats-server."""

import asyncio
import json
import shutil

import aiohttp
import pytest

from cotenant_common.bus.nats_bus import connect
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.metrics import null_metrics
from cotenant_common.testing.builders import pod_manifest
from cotenant_common.testing.context import quiet_log
from cotenant_common.testing.nats_server import NatsServer, find_nats_server
from cotenant_gateway.app.service import GatewayService
from cotenant_gateway.config import GatewaySettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        find_nats_server() is None and shutil.which("nats-server") is None, reason="no nats-server here"
    ),
]


async def test_apply_delete_and_events_over_http():
    async with NatsServer() as server:
        bus = await connect([server.url], name="gateway")
        clock = SystemClock()
        context = ServiceContext("gateway", bus, clock, quiet_log(), null_metrics(), Health(clock), "gateway-1")
        service = GatewayService(context, GatewaySettings(api_port=0))
        running = asyncio.create_task(service.run())
        try:
            async with asyncio.timeout(20):
                while service.leadership.writer is None:
                    await asyncio.sleep(0.05)
                await _use(service)
        finally:
            running.cancel()
            await asyncio.wait([running])
            await bus.close()


async def _use(service: GatewayService) -> None:
    base = f"http://127.0.0.1:{service.api_port}/v1"
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(f"{base}/apply", json=[pod_manifest("a"), pod_manifest("b")]) as response:
                assert response.status == 200
        async with session.delete(f"{base}/objects/Pod/default/a") as response:
            assert (await response.json())["action"] == "deleted"
        async with session.post(f"{base}/apply", json=pod_manifest("a")) as response:
            assert (await response.json())["results"][0]["action"] == "created"
        found = []
        async with session.get(f"{base}/events?since=0&format=ndjson") as response:
            while len(found) < 4:
                line = await response.content.readline()
                if line.strip():
                    event = json.loads(line)
                    found.append((event["type"], event["object"]))
    pods = {name: f"Pod/default/{name}" for name in "ab"}
    assert found == [
        ("pod.queued", pods["a"]),
        ("pod.queued", pods["b"]),
        ("pod.deleted", pods["a"]),
        ("pod.queued", pods["a"]),
    ]
