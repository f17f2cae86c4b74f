import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, NODES, OVERCOMMIT, POLICIES, SPECS, BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding, OvercommitRecord, PolicyRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.contracts.subjects import NODE_USAGE
from cotenant_common.runtime import requests
from cotenant_common.testing import builders
from cotenant_common.testing.context import EPOCH_MS, memory_server, service_context
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_profiler.app import ProfilerService
from cotenant_profiler.config import ProfilerSettings

GIB = 2**30


class World:
    """The other services' part: writes what they would write, reads what the profiler wrote."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.bus = server.connect("others")

    async def put(self, bucket: BucketSpec, key: str, message: Message) -> None:
        await (await self.bus.bucket(bucket)).put(key, codec.encode(message))

    async def node(self, name: str = "n1", **fields: Any) -> None:
        await self.put(NODES, name, builders.node_inventory(name, cpu="10", idle_class=True, **fields))

    async def policy(self, **colocation: Any) -> None:
        lines = {"cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100}
        await self.put(POLICIES, "n1", PolicyRecord(node="n1", slo={}, colocation={**lines, **colocation}))

    async def pod(self, name: str, *, node: str = "n1", **fields: Any) -> None:
        record = builders.spec_record(builders.pod_manifest(name, **fields), uid=f"uid-{name}")
        await self.put(SPECS, builders.spec_key(record), record)
        binding = Binding(
            uid=record.uid, namespace="default", name=name, node=node, attempt=1, epoch=1, spec_digest="",
            requests={}, bound_ms=0,
        )  # fmt: skip
        await self.put(BINDINGS, f"{record.uid}.{node}", binding)

    async def usage(self, seconds: int = 1, *, node: str = "n1", system: int = 1000, **pods: int) -> None:
        """One sample a second for so long."""
        for _ in range(seconds):
            await asyncio.sleep(1)
            message = NodeUsage(
                node=node,
                at_ms=EPOCH_MS + round(asyncio.get_running_loop().time() * 1000),
                interval_ms=1000,
                usage=Usage(cpu_milli=system + sum(pods.values()), memory_bytes=GIB),
                system=Usage(cpu_milli=system, memory_bytes=GIB),
                pods=[
                    PodUsage(
                        uid=f"uid-{name}", namespace="default", name=name, qos="LS", band="prod",
                        cpu_milli=used, memory_bytes=0,
                    )
                    for name, used in pods.items()
                ],
            )  # fmt: skip
            await requests.publish(self.bus, NODE_USAGE, message, node=node)
        await asyncio.sleep(0.5)

    def record(self, node: str = "n1") -> OvercommitRecord | None:
        entry = self.server.store(OVERCOMMIT).get(node)
        return None if entry is None or entry.value is None else codec.decode(OvercommitRecord, entry.value)

    def batch_cpu(self, node: str = "n1") -> int | None:
        record = self.record(node)
        return record and record.batch and record.batch["cpu"]

    def events(self) -> list[Event]:
        stored = self.server.events.replay(after_sequence=0, since_ms=None)
        return [codec.decode(Event, one.data) for one in stored]


@asynccontextmanager
async def profiler(server: MemoryServer, instance: str = "profiler-1") -> AsyncIterator[ProfilerService]:
    service = ProfilerService(service_context(server, "profiler", instance=instance), ProfilerSettings())
    task = asyncio.create_task(service.run())
    await asyncio.sleep(1)
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.wait([task])


@in_virtual_time
async def test_batch_is_published_with_the_sum_that_made_it() -> None:
    world = World(memory_server())
    await world.node()
    async with profiler(world.server):
        await world.pod("web", cpu="4", memory="1Gi")
        await world.usage(web=2000)
        record = world.record()
        assert record is not None
        assert record.batch == {"cpu": 10_000 - 500 - 1000 - 2000, "memory": 8 * GIB * 95 // 100 + 1 - GIB}
        cpu = record.terms[0]
        assert (cpu.capacity, cpu.margin, cpu.system, cpu.prod_used, cpu.result) == (10_000, 500, 1000, 2000, 6500)
        assert record.degraded is None
        assert [event.type for event in world.events()] == ["capacity.changed"]
        assert world.events()[0].object == "Node/-/n1"


@in_virtual_time
async def test_an_idle_cluster_writes_nothing_more() -> None:
    world = World(memory_server())
    await world.node()
    async with profiler(world.server):
        await world.usage(3)
        first = world.record()
        await world.usage(600)
        assert world.record() == first


@in_virtual_time
async def test_a_bound_service_takes_its_request_before_it_is_measured() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    async with profiler(world.server):
        await world.usage()
        assert world.batch_cpu() == 9000
        await world.pod("web", cpu="4")
        await asyncio.sleep(0.5)
        assert world.batch_cpu() == 5000
        await world.usage(30, web=1000)
        assert world.batch_cpu() == 8000


@in_virtual_time
async def test_batch_pods_do_not_shrink_what_is_sold() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    async with profiler(world.server):
        await world.usage()
        await world.pod("job", cpu="4", band="batch", qos="BE")
        await world.usage(3)
        assert world.batch_cpu() == 9000


@in_virtual_time
async def test_silence_withdraws_the_offer_and_a_fresh_sample_renews_it() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    async with profiler(world.server):
        await world.usage()
        await asyncio.sleep(70)
        record = world.record()
        assert record is not None
        assert (record.batch, record.mid, record.degraded) == (None, None, "MetricsExpired")
        await world.usage()
        assert world.batch_cpu() == 9000
        assert [event.reason for event in world.events()] == [None, "MetricsExpired", None]


@in_virtual_time
async def test_a_changed_policy_takes_effect_with_the_next_sample() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    async with profiler(world.server):
        await world.usage()
        await world.policy(enable=False)
        await asyncio.sleep(0.5)
        record = world.record()
        assert record is not None
        assert (record.batch, record.degraded) == (None, "ColocationDisabled")


@in_virtual_time
async def test_a_node_that_leaves_takes_its_offer_along() -> None:
    world = World(memory_server())
    await world.node()
    async with profiler(world.server):
        await world.usage()
        assert world.record() is not None
        await (await world.bus.bucket(NODES)).delete("n1")
        await asyncio.sleep(1)
        assert world.record() is None


@in_virtual_time
async def test_a_restart_keeps_the_offer_until_it_knows_better() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    async with profiler(world.server):
        await world.usage()
    before = world.record()
    await asyncio.sleep(300)
    async with profiler(world.server, "profiler-2"):
        await asyncio.sleep(30)
        assert world.record() == before
        await world.usage(2)
        assert world.record() == before
        assert len(world.events()) == 1


@in_virtual_time
async def test_a_standby_takes_over() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    crashed = service_context(world.server, "profiler", instance="first")
    first = asyncio.create_task(ProfilerService(crashed, ProfilerSettings()).run())
    await asyncio.sleep(1)
    async with profiler(world.server, "second"):
        await world.usage()
        crashed.bus.cut()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await world.usage(12, system=6000)
        assert world.batch_cpu() == 4000


@in_virtual_time
async def test_bad_annotations_are_named_once_and_defaults_hold() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    manifest = builders.node_manifest("n1", annotations={"node.koordinator.sh/reservation": "much"})
    await world.put(SPECS, "Node.-.n1", builders.spec_record(manifest))
    async with profiler(world.server) as service:
        await world.usage(2)
        assert world.batch_cpu() == 9000
        assert "reservation" in service.debug_state()["complaints"]["n1"]


@in_virtual_time
async def test_a_malformed_sample_stops_nothing() -> None:
    world = World(memory_server())
    await world.node()
    async with profiler(world.server):
        await world.bus.publish("cotenant.v1.tel.node.usage.n1", b"\xc1")
        await world.usage()
        assert world.batch_cpu() is not None


@in_virtual_time
async def test_a_lost_store_is_written_anew() -> None:
    world = World(memory_server())
    await world.node()
    await world.policy()
    async with profiler(world.server):
        await world.usage()
        world.server.lose_bucket(OVERCOMMIT)
        await world.usage(10)
        assert world.batch_cpu() == 9000
