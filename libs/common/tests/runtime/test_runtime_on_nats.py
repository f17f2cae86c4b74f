"""Lease, mirror and announcer where their promises meet the real server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import ConflictError, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, NODES
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import NodeInventory
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.events import Announcer, event_id, follow
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.testing.builders import node_inventory
from cotenant_common.testing.bus_cases import until
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine"),
]


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer() as running:
        yield running


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    connected = await connect([server.url], name="scheduler", timeout_s=30)
    yield connected
    await connected.close()


async def end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_leadership_moves_and_fences_on_the_real_server(bus: NatsBus) -> None:
    bucket = await bus.bucket(BINDINGS)
    first, second = [Lease(bucket, "scheduler", name, SystemClock()) for name in ("s-1", "s-2")]
    leading = asyncio.create_task(first.run())
    await first.wait_held()
    standing_by = asyncio.create_task(second.run())
    guard = first.guard()
    for i in range(5):
        await bucket.batch([Put(f"u{i}.n1", b"x", expect=0, expect_filter=f"u{i}.*"), guard])
        await asyncio.sleep(0.3)
    assert [first.held, second.held] == [True, False]
    await end(leading)
    await asyncio.wait_for(second.wait_held(), 30)
    assert second.epoch == 2
    with pytest.raises(ConflictError):
        await bucket.batch([Put("u9.n1", b"x"), guard])
    await bucket.batch([Put("u9.n1", b"x"), second.guard()])
    await end(standing_by)


async def test_a_holder_survives_a_restart_of_the_server_or_leads_anew(server: NatsServer, bus: NatsBus) -> None:
    bucket = await bus.bucket(BINDINGS)
    lease = Lease(bucket, "scheduler", "s-1", SystemClock())
    leading = asyncio.create_task(lease.run())
    await lease.wait_held()
    await server.restart(kill=True)
    await until(lambda: bus.connected)
    await asyncio.wait_for(lease.wait_held(), 30)
    await bucket.batch([Put("u1.n1", b"x"), lease.guard()])
    await end(leading)


async def test_a_mirror_follows_through_a_restart_and_keeps_orphans_of_a_lost_store(
    server: NatsServer, bus: NatsBus
) -> None:
    bucket = await bus.bucket(NODES)
    mirror = BucketMirror(bucket, NodeInventory)
    running = asyncio.create_task(mirror.run())
    await bucket.put("n1", codec.encode(node_inventory("n1")))
    await mirror.wait_ready()
    await server.restart(kill=True)
    revision = await bucket.put("n2", codec.encode(node_inventory("n2")))
    assert await mirror.wait_revision(revision, 30)
    assert sorted(mirror.items) == ["n1", "n2"]
    await server.kill()
    server.lose_store()
    await server.start()
    await until(lambda: sorted(mirror.orphans) == ["n1", "n2"])
    assert sorted(mirror.items) == ["n1", "n2"]
    await bucket.put("n1", codec.encode(node_inventory("n1", cpu="8")))
    await until(lambda: sorted(mirror.orphans) == ["n2"])
    await end(running)


async def test_events_reach_followers_through_an_outage(server: NatsServer, bus: NatsBus) -> None:
    bucket = await bus.bucket(BINDINGS)
    announcer = Announcer(bus, bucket, "scheduler", SystemClock())
    seen: list[str] = []

    async def collect() -> None:
        async for _, event in follow(bus, after_sequence=0):
            seen.append(event.id)

    collecting = asyncio.create_task(collect())
    expected = [event_id(BINDINGS, f"u{i}.n1", i) for i in range(1, 11)]
    for i, identifier in enumerate(expected):
        if i == 5:
            await server.kill()
        event = Event(id=identifier, type="pod.bound", at_ms=1, source="scheduler", object="Pod/default/web")
        await announcer.announce(event)
    await server.start()
    assert await announcer.flush(30)
    await until(lambda: len(seen) == 10)
    assert seen == expected
    await end(collecting)
