"""Hollow nodes answer what agents answer, and leave nothing behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from cotenant.hollow.fleet import HollowFleet
from cotenant.hollow.plan import FleetError, FleetPlan
from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.bus.nats_bus import connect
from cotenant_common.bus.protocol import Bus
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.buckets import BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.state import (
    Binding,
    Deletion,
    Heartbeat,
    NodeInventory,
    PodStatusRecord,
    SpecRecord,
)
from cotenant_common.contracts.messages.telemetry import NodeSignal, NodeUsage
from cotenant_common.model.digest import spec_digest
from cotenant_common.runtime import requests
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.metrics import null_metrics
from cotenant_common.testing import builders
from cotenant_common.testing.context import memory_server, quiet_log, service_context
from cotenant_common.testing.nats_server import NatsServer, find_nats_server
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_scheduler.app import SchedulerService
from cotenant_scheduler.config import SchedulerSettings

M = TypeVar("M", bound=Message)
NODE = "hollow-00000"
SHORT = {"cotenant.io/sim-duration": "10s", "cotenant.io/sim-usage": '{"cpu": "250m", "memory": "64Mi"}'}


@asynccontextmanager
async def fleet_on(server: MemoryServer, nodes: int = 3, **fields: Any) -> AsyncIterator[HollowFleet]:
    fleet = HollowFleet(service_context(server, "agent"), FleetPlan(nodes, **fields))
    running = asyncio.create_task(fleet.run())
    try:
        yield fleet
    finally:
        running.cancel()
        await asyncio.wait([running])
        await fleet.leave()


def stored(server: MemoryServer, bucket: BucketSpec, model: type[M]) -> dict[str, M]:
    entries = server.store(bucket).live(">")
    return {
        entry.key: codec.decode(model, entry.value)
        for entry in entries
        if entry.value is not None and not buckets.is_bookkeeping(entry.key)
    }


async def submit(bus: Bus, name: str, **fields: Any) -> SpecRecord:
    record = builders.spec_record(builders.pod_manifest(name, **fields), uid=f"uid-{name}")
    specs = await bus.bucket(buckets.SPECS)
    await specs.put(builders.spec_key(record), codec.encode(record))
    return record


async def bind(bus: Bus, record: SpecRecord, node: str = NODE, **fields: Any) -> None:
    values: dict[str, Any] = {
        "attempt": 1,
        "spec_digest": spec_digest(record.manifest["spec"]),
        "requests": {"cpu": 250, "memory": 64 << 20},
        **fields,
    }
    binding = Binding(
        uid=record.uid, namespace="default", name=record.name, node=node, epoch=1, qos="LS", band="koord-prod",
        priority=0, bound_ms=0, **values,
    )  # fmt: skip
    bindings = await bus.bucket(buckets.BINDINGS)
    await bindings.put(f"{record.uid}.{node}", codec.encode(binding))


def status(server: MemoryServer, record: SpecRecord, node: str = NODE) -> PodStatusRecord | None:
    return stored(server, buckets.PODSTATUS, PodStatusRecord).get(f"{node}.{record.uid}")


@in_virtual_time
async def test_every_node_registers_and_beats() -> None:
    server = memory_server()
    async with fleet_on(server, cpu_milli=8_000, pods_per_node=7):
        await asyncio.sleep(30)
        inventories = stored(server, buckets.NODES, NodeInventory)
        beats = stored(server, buckets.HEARTBEATS, Heartbeat)
        assert list(inventories) == list(beats) == ["hollow-00000", "hollow-00001", "hollow-00002"]
        assert inventories[NODE].allocatable["cpu"] == 8_000
        assert inventories[NODE].allocatable["pods"] == 7
        assert inventories[NODE].labels["cotenant.io/hollow"] == "true"
        assert inventories[NODE].agent_id == beats[NODE].agent_id


@in_virtual_time
async def test_nodes_register_at_the_rate_that_was_asked_for() -> None:
    server = memory_server()
    async with fleet_on(server, nodes=20, rate=2.0) as fleet:
        await asyncio.sleep(5)
        assert 9 <= fleet.registered <= 11


@in_virtual_time
async def test_a_pod_starts_after_its_binding_and_ends_after_its_duration() -> None:
    server = memory_server()
    bus = server.connect("test")
    async with fleet_on(server):
        await asyncio.sleep(1)
        record = await submit(bus, "job", annotations=SHORT)
        await bind(bus, record)
        await asyncio.sleep(2)
        running = status(server, record)
        assert running is not None
        assert (running.phase, running.ready) == ("Running", True)
        await asyncio.sleep(10)
        ended = status(server, record)
        assert ended is not None
        assert (ended.phase, ended.exit_code) == ("Succeeded", 0)


@in_virtual_time
async def test_a_deleted_pod_is_answered_and_its_status_goes_with_its_binding() -> None:
    server = memory_server()
    bus = server.connect("test")
    async with fleet_on(server):
        await asyncio.sleep(1)
        record = await submit(bus, "web")
        await bind(bus, record)
        await asyncio.sleep(2)
        order = Deletion(at_ms=0, grace_ms=30_000, reason="Deleted", message="by a user", requested_by="user")
        specs = await bus.bucket(buckets.SPECS)
        await specs.put(builders.spec_key(record), codec.encode(record.model_copy(update={"deletion": order})))
        await asyncio.sleep(2)
        found = status(server, record)
        assert found is not None
        assert (found.phase, found.reason) == ("Deleted", "Deleted")
        await specs.delete(builders.spec_key(record))
        await (await bus.bucket(buckets.BINDINGS)).delete(f"{record.uid}.{NODE}")
        await asyncio.sleep(1)
        assert status(server, record) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"spec_digest": "stale"}, "BindRejected"),
        ({"requests": {"cpu": 64_000}}, "InsufficientResource"),
    ],
)
def test_a_binding_that_an_agent_would_refuse_is_refused(fields: dict[str, Any], reason: str) -> None:
    @in_virtual_time
    async def scenario() -> None:
        server = memory_server()
        bus = server.connect("test")
        async with fleet_on(server):
            await asyncio.sleep(1)
            record = await submit(bus, "web")
            await bind(bus, record, **fields)
            await asyncio.sleep(1)
            found = status(server, record)
            assert found is not None
            assert (found.rejected, found.reason) == (True, reason)

    scenario()


@in_virtual_time
async def test_usage_is_what_the_manifests_say_and_signals_come_for_pods_with_a_target() -> None:
    server = memory_server()
    bus = server.connect("test")
    usages: list[NodeUsage] = []
    signals: list[NodeSignal] = []

    async def on_usage(message: NodeUsage) -> None:
        usages.append(message)

    async def on_signal(message: NodeSignal) -> None:
        signals.append(message)

    await requests.subscribe(bus, subjects.NODE_USAGE, on_usage, node=NODE)
    await requests.subscribe(bus, subjects.NODE_SIGNAL, on_signal, node=NODE)
    target = {"cotenant.io/latency-slo": '{"percentile": 99, "milliseconds": 20}'}
    async with fleet_on(server):
        await asyncio.sleep(1)
        record = await submit(bus, "web", annotations={**SHORT, **target})
        await bind(bus, record)
        await asyncio.sleep(4)
        used = {pod.uid: (pod.cpu_milli, pod.memory_bytes) for pod in usages[-1].pods}
        assert used == {record.uid: (250, 64 << 20)}
        assert usages[-1].usage.cpu_milli == 250 + (usages[-1].system.cpu_milli or 0)
        assert [pod.uid for pod in signals[-1].pods] == [record.uid]


@in_virtual_time
async def test_a_signal_names_the_target_and_the_busiest_best_effort_pods_beside_it() -> None:
    server = memory_server()
    bus = server.connect("test")
    signals: list[NodeSignal] = []

    async def on_signal(message: NodeSignal) -> None:
        signals.append(message)

    await requests.subscribe(bus, subjects.NODE_SIGNAL, on_signal, node=NODE)
    async with fleet_on(server):
        await asyncio.sleep(1)
        for at in range(7):
            usage = {"cotenant.io/sim-usage": f'{{"cpu": "{100 + at}m"}}'}
            await bind(bus, await submit(bus, f"batch-{at}", qos="BE", band="batch", annotations=usage))
        await bind(bus, await submit(bus, "beside", qos="LS"))
        await asyncio.sleep(4)
        assert signals == []
        target = {"cotenant.io/latency-slo": '{"percentile": 99, "milliseconds": 20}'}
        await bind(bus, await submit(bus, "web", qos="LS", annotations=target))
        await asyncio.sleep(4)
        assert [pod.name for pod in signals[-1].pods] == ["web", *(f"batch-{at}" for at in (6, 5, 4, 3, 2))]


@in_virtual_time
async def test_what_an_earlier_fleet_ended_is_not_started_again() -> None:
    server = memory_server()
    bus = server.connect("test")
    record = await submit(bus, "job", annotations=SHORT)
    await bind(bus, record)
    ended = PodStatusRecord(uid=record.uid, namespace="default", name="job", node=NODE, phase="Succeeded")
    await (await bus.bucket(buckets.PODSTATUS)).put(f"{NODE}.{record.uid}", codec.encode(ended))
    async with fleet_on(server):
        await asyncio.sleep(5)
        assert status(server, record) == ended


@in_virtual_time
async def test_a_fleet_that_left_left_nothing() -> None:
    server = memory_server()
    bus = server.connect("test")
    async with fleet_on(server):
        await asyncio.sleep(1)
        await bind(bus, await submit(bus, "web"))
        await asyncio.sleep(3)
    assert stored(server, buckets.NODES, NodeInventory) == {}
    assert stored(server, buckets.HEARTBEATS, Heartbeat) == {}
    assert stored(server, buckets.PODSTATUS, PodStatusRecord) == {}


def test_a_prefix_that_makes_no_node_name_is_refused() -> None:
    with pytest.raises(FleetError, match="prefix 'Not a name'"):
        FleetPlan(1, prefix="Not a name")


def context_on(bus: Bus, name: str) -> ServiceContext:
    clock = SystemClock()
    return ServiceContext(name, bus, clock, quiet_log(), null_metrics(), Health(clock), name)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.skipif(find_nats_server() is None, reason="no nats-server here")
async def test_twenty_nodes_on_a_real_server_run_what_the_scheduler_binds() -> None:
    async with NatsServer() as server:
        buses = [await connect([server.url], name=name) for name in ("agent", "scheduler", "test")]
        fleet = HollowFleet(context_on(buses[0], "agent"), FleetPlan(20, usage_interval_ms=200))
        service = SchedulerService(context_on(buses[1], "scheduler"), SchedulerSettings())
        tasks = [asyncio.create_task(fleet.run()), asyncio.create_task(service.run())]
        try:
            specs = await buses[2].bucket(buckets.SPECS)
            for name in FleetPlan(20).names():
                record = builders.spec_record(builders.node_manifest(name))
                await specs.put(builders.spec_key(record), codec.encode(record))
            await until(lambda: fleet.registered == 20)
            for i in range(40):
                await submit(buses[2], f"web-{i}", cpu="1", memory="64Mi")
            await until(lambda: fleet.pods_running == 40)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await fleet.leave()
            nodes = await (await buses[2].bucket(buckets.NODES)).keys()
            for bus in buses:
                await bus.close()
        assert nodes == []
