"""The service on the in-memory bus, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.commands import (
    EvictReply,
    EvictRequest,
    VictimDecision,
    WhyNotReply,
    WhyNotRequest,
)
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding, MigrationRecord, OvercommitRecord, PodStatusRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.runtime import requests
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.metrics import Attributes, Counter, Metrics, NullMetrics
from cotenant_common.testing.builders import node_inventory, pod_manifest, spec_key, spec_record
from cotenant_common.testing.context import memory_server, service_context
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_descheduler.app import DeschedulerService
from cotenant_descheduler.config import DeschedulerSettings

GIB = 1 << 30


@dataclass
class World:
    """Two nodes with a batch pod on the first, a gate that grants, and a scheduler that says yes."""

    server: MemoryServer
    outside: ServiceContext
    fits: bool = True
    granted: bool = True
    asked: list[EvictRequest] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    memory_gib: float = 1.0
    depose: bool = False
    """Somebody else leads from the moment the gate is asked."""
    service: DeschedulerService | None = None

    async def build(self) -> None:
        bus = self.outside.bus
        pod = spec_record(
            pod_manifest("batch", qos="BE", band="batch", cpu=1, command=["true"]), uid="u1", created_ms=0
        )
        await self.put(buckets.SPECS, spec_key(pod), pod)
        for node in ("n1", "n2"):
            await self.put(buckets.NODES, node, node_inventory(node, cpu=4, memory="10Gi"))
            sold = OvercommitRecord(node=node, batch={"cpu": 4000, "memory": 4 * GIB}, computed_ms=0)
            await self.put(buckets.OVERCOMMIT, node, sold)
        binding = Binding(
            uid="u1",
            namespace="default",
            name="batch",
            node="n1",
            attempt=1,
            epoch=1,
            spec_digest="",
            requests=dict(pod_requests()),
            bound_ms=0,
        )
        await self.put(buckets.BINDINGS, "u1.n1", binding)
        await requests.serve(bus, subjects.POD_EVICT, self._gate)
        await requests.serve(bus, subjects.SCHEDULER_WHY_NOT, self._why_not)

    async def put(self, spec: buckets.BucketSpec, key: str, message: Message) -> None:
        await (await self.outside.bus.bucket(spec)).put(key, codec.encode(message))

    async def _gate(self, request: EvictRequest) -> EvictReply:
        self.asked.append(request)
        if self.depose:
            bucket = await self.outside.bus.bucket(buckets.MIGRATIONS)
            epoch = await bucket.get("lease.descheduler.epoch")
            assert epoch is not None
            await bucket.put(epoch.key, epoch.value or b"")
        victims = [VictimDecision(pod=pod, granted=self.granted, successor_uid="u2") for pod in request.victims]
        return EvictReply(id=request.id, granted=self.granted, message="test", victims=victims)

    async def _why_not(self, request: WhyNotRequest) -> WhyNotReply:
        return WhyNotReply(fits=self.fits, message="test")

    async def report(self, node: str, cpu_milli: int) -> None:
        pods = [
            PodUsage(
                uid="u1",
                namespace="default",
                name="batch",
                qos="BE",
                band="koord-batch",
                cpu_milli=1000,
                memory_bytes=GIB,
            )
        ]
        usage = NodeUsage(
            node=node,
            at_ms=self.outside.clock.now_ms(),
            interval_ms=1000,
            usage=Usage(cpu_milli=cpu_milli, memory_bytes=int(self.memory_gib * GIB)),
            system=Usage(),
            pods=pods if node == "n1" else [],
        )
        await requests.publish(self.outside.bus, subjects.NODE_USAGE, usage, node=node)

    async def run(self, seconds: int, cpu_milli: int) -> None:
        for _ in range(seconds):
            await self.report("n1", cpu_milli)
            await self.report("n2", 100)
            await asyncio.sleep(1)

    async def listen(self) -> None:
        async for received in self.outside.bus.events(subjects.EVENTS_WILDCARD):
            self.events.append(codec.decode(Event, received.data))

    def event_types(self) -> list[str]:
        return [event.type for event in self.events]

    async def migrations(self) -> list[MigrationRecord]:
        bucket = await self.outside.bus.bucket(buckets.MIGRATIONS)
        keys = [key for key in await bucket.keys() if not buckets.is_bookkeeping(key)]
        entries = [await bucket.get(key) for key in keys]
        return [codec.decode(MigrationRecord, entry.value) for entry in entries if entry and entry.value]


def pod_requests() -> dict[str, int]:
    return {"kubernetes.io/batch-cpu": 1000}


class Counted(NullMetrics):
    """Sums of counters, by name and reason."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, object], float] = {}

    def counter(self, name: str, description: str, unit: str = "1") -> Counter:
        return _Sum(self.sums, name)


@dataclass
class _Sum:
    sums: dict[tuple[str, object], float]
    name: str

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        key = (self.name, (attributes or {}).get("reason"))
        self.sums[key] = self.sums.get(key, 0) + amount


@asynccontextmanager
async def world(metrics: Metrics | None = None, **settings: object) -> AsyncIterator[World]:
    server = memory_server()
    scene = World(server, service_context(server, "outside"))
    await scene.build()
    listening = asyncio.create_task(scene.listen())
    service = DeschedulerService(
        service_context(server, "descheduler", metrics=metrics), DeschedulerSettings(**settings)
    )
    scene.service = service
    running = asyncio.create_task(service.run())
    try:
        yield scene
    finally:
        for task in (running, listening):
            task.cancel()
        await asyncio.gather(running, listening, return_exceptions=True)


@in_virtual_time
async def test_a_node_that_stays_hot_moves_its_batch_pod_once() -> None:
    async with world() as scene:
        await scene.run(60, cpu_milli=3950)
        assert len(scene.asked) == 1
        (request,) = scene.asked
        assert (request.kind, request.landing_node, request.reason) == ("move", "n2", "NodeHot")
        assert request.numbers["causes"]
        assert scene.event_types().count("node.hot") == 1
        assert scene.event_types().count("migration.started") == 1


@in_virtual_time
async def test_a_short_peak_moves_nothing() -> None:
    async with world() as scene:
        await scene.run(20, cpu_milli=3950)
        await scene.run(40, cpu_milli=1000)
        assert scene.asked == []


@in_virtual_time
async def test_nothing_moves_where_the_scheduler_sees_no_room() -> None:
    async with world() as scene:
        scene.fits = False
        await scene.run(60, cpu_milli=3950)
        assert scene.asked == []


@in_virtual_time
async def test_a_deposed_descheduler_writes_no_migration() -> None:
    async with world() as scene:
        scene.depose = True
        await scene.run(60, cpu_milli=3950)
        assert scene.asked
        assert await scene.migrations() == []


@in_virtual_time
async def test_only_nodes_are_remembered() -> None:
    async with world() as scene:
        await scene.run(1, cpu_milli=100)
        await scene.report("nobody", 100)
        await scene.run(10, cpu_milli=100)
        assert scene.service is not None
        assert sorted(scene.service._nodes) == ["n1", "n2"]
        await (await scene.outside.bus.bucket(buckets.NODES)).delete("n2")
        await scene.run(10, cpu_milli=100)
        assert sorted(scene.service._nodes) == ["n1"]


@in_virtual_time
async def test_what_keeps_pods_on_a_hot_node_is_counted_by_reason() -> None:
    counted = Counted()
    async with world(counted, cool_down_ms=600_000) as scene:
        await scene.run(90, cpu_milli=3950)
    assert counted.sums["cotenant_descheduler_rejections_total", "CoolDown"] >= 1


@in_virtual_time
async def test_a_node_in_danger_reclaims_without_a_landing_place() -> None:
    async with world() as scene:
        scene.fits = False
        scene.memory_gib = 9.9
        await scene.run(15, cpu_milli=1000)
        assert scene.asked[0].kind == "reclaim"
        assert scene.asked[0].reason == "NodePressure"
        assert scene.asked[0].beneficiary == "Node/-/n1"


@in_virtual_time
async def test_a_refused_move_leaves_no_migration() -> None:
    async with world() as scene:
        scene.granted = False
        await scene.run(60, cpu_milli=3950)
        assert scene.asked
        assert await scene.migrations() == []


@in_virtual_time
async def test_a_move_succeeds_when_its_successor_runs() -> None:
    async with world() as scene:
        await scene.run(45, cpu_milli=3950)
        running = PodStatusRecord(uid="u2", namespace="default", name="batch", node="n2", phase="Running")
        await scene.put(buckets.PODSTATUS, "n2.u2", running)
        await scene.run(10, cpu_milli=1000)
        (record,) = await scene.migrations()
        assert (record.phase, record.target_node) == ("Succeeded", "n2")
        assert "migration.succeeded" in scene.event_types()


@in_virtual_time
async def test_a_silent_node_is_never_hot() -> None:
    async with world() as scene:
        await scene.run(8, cpu_milli=3950)
        await asyncio.sleep(120)
        assert scene.asked == []
