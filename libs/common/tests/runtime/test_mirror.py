import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import NODES
from cotenant_common.contracts.messages.state import NodeInventory
from cotenant_common.runtime.mirror import BucketMirror, MirrorNotReadyError, wait_for_snapshots
from cotenant_common.testing.builders import node_inventory
from cotenant_common.testing.context import memory_server, service_context
from cotenant_common.testing.virtual_loop import in_virtual_time

Change = tuple[str, bool, bool]


def data(node: str, cpu: str = "4") -> bytes:
    return codec.encode(node_inventory(node, cpu=cpu))


class Mirrored:
    def __init__(self) -> None:
        self.server: MemoryServer = memory_server()
        self.changes: list[Change] = []
        self.resets = 0

    def on_change(self, key: str, old: NodeInventory | None, new: NodeInventory | None, _: int) -> None:
        self.changes.append((key, old is not None, new is not None))

    def on_reset(self) -> None:
        self.resets += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[BucketMirror[NodeInventory]]:
        self.bus = self.server.connect("scheduler")
        self.bucket = await self.server.connect("agent").bucket(NODES)
        mirror = BucketMirror(
            await self.bus.bucket(NODES), NodeInventory, on_change=self.on_change, on_reset=self.on_reset
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(mirror.run())
            yield mirror
            task.cancel()


@in_virtual_time
async def test_the_snapshot_is_complete_before_the_mirror_is_ready() -> None:
    mirrored = Mirrored()
    bucket = await mirrored.server.connect("a").bucket(NODES)
    for i in range(50):
        await bucket.put(f"n{i}", data(f"n{i}"))
    async with mirrored.running() as mirror:
        assert not mirror.ready
        await mirror.wait_ready()
        assert len(mirror.items) == 50
        assert mirror.revision == 50
        assert mirror.revision_of("n7") == 8


@in_virtual_time
async def test_changes_are_told_in_order_with_what_was_before() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirror.wait_ready()
        await mirrored.bucket.put("n1", data("n1"))
        await mirrored.bucket.put("n1", data("n1", "8"))
        await mirrored.bucket.delete("n1")
        assert await mirror.wait_revision(3)
        assert mirrored.changes == [("n1", False, True), ("n1", True, True), ("n1", True, False)]
        assert mirror.items == {}
        assert mirror.revision_of("n1") is None


@in_virtual_time
async def test_bookkeeping_keys_are_skipped_but_counted_in_the_revision() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirror.wait_ready()
        await mirrored.bucket.put("lease.scheduler", b"not a node", ttl_s=4)
        await mirrored.bucket.put("announced.scheduler", b"7")
        assert await mirror.wait_revision(2)
        assert (mirror.items, mirrored.changes, mirror.malformed) == ({}, [], 0)


@in_virtual_time
async def test_a_malformed_entry_is_counted_and_the_last_readable_value_stays() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirror.wait_ready()
        await mirrored.bucket.put("n1", data("n1"))
        await mirrored.bucket.put("n1", b"\xc1garbage")
        await mirrored.bucket.put("n2", data("n2"))
        assert await mirror.wait_revision(3)
        assert mirror.malformed == 1
        assert sorted(mirror.items) == ["n1", "n2"]
        assert mirror.revision_of("n1") == 1


@in_virtual_time
async def test_absence_from_a_new_world_is_not_deletion() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirrored.bucket.put("n1", data("n1"))
        await mirrored.bucket.put("n2", data("n2"))
        await mirror.wait_ready()
        assert await mirror.wait_revision(2)
        mirrored.changes.clear()
        mirrored.server.lose_bucket(NODES)
        await asyncio.sleep(1)
        assert mirrored.resets == 1
        assert sorted(mirror.items) == sorted(mirror.orphans) == ["n1", "n2"]
        assert mirrored.changes == []
        await mirrored.bucket.put("n1", data("n1", "8"))
        assert await mirror.wait_revision(1)
        assert mirrored.changes == [("n1", True, True)]
        assert sorted(mirror.orphans) == ["n2"]


@in_virtual_time
async def test_an_incomplete_snapshot_says_how_far_it_came() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        mirrored.bus.partition()
        with pytest.raises(MirrorNotReadyError, match="all of cotenant-nodes within 30 s"):
            await mirror.wait_ready()
        mirrored.bus.heal()
        await mirror.wait_ready()


@in_virtual_time
async def test_waiting_for_a_revision_gives_up_in_time() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirror.wait_ready()
        assert not await mirror.wait_revision(99, timeout_s=1)


@in_virtual_time
async def test_a_service_that_lacks_a_snapshot_says_which_and_goes_on_waiting() -> None:
    scene = Mirrored()
    context = service_context(scene.server, "quota")
    mirror = BucketMirror(await context.bus.bucket(NODES), NodeInventory)
    waiting = asyncio.create_task(wait_for_snapshots([mirror], context.health, context.log))
    await asyncio.sleep(100)
    assert not waiting.done()
    assert "cotenant-nodes" in context.health.snapshot().reason
    running = asyncio.create_task(mirror.run())
    await waiting
    running.cancel()


@in_virtual_time
async def test_mirrors_in_one_process_decode_an_entry_once() -> None:
    first, second = Mirrored(), Mirrored()
    second.server = first.server
    async with first.running() as one, second.running() as other:
        await first.bucket.put("n1", data("n1"))
        await asyncio.sleep(1)
        assert one.items["n1"] is other.items["n1"]
        await first.bucket.put("n1", data("n1", cpu="8"))
        await asyncio.sleep(1)
        assert one.items["n1"].capacity["cpu"] == 8_000


@in_virtual_time
async def test_an_audit_of_a_true_mirror_finds_nothing() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirrored.bucket.put("a", data("a"))
        await mirrored.bucket.put("b", data("b"))
        await mirrored.bucket.delete("b")
        await mirrored.bucket.put("announced.x", b"no inventory")
        assert await mirror.wait_revision(3)
        assert await mirror.audit() == []
        assert mirror.malformed == 0
        await mirrored.bucket.put("unreadable", b"\xc1")
        assert await mirror.wait_revision(5)
        assert await mirror.audit() == []


@in_virtual_time
async def test_an_audit_repairs_what_was_missed_and_tells_listeners() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        for name in ("lost", "stale", "kept"):
            await mirrored.bucket.put(name, data(name))
        assert await mirror.wait_revision(3)
        del mirror.items["lost"]
        mirror._revisions["stale"] = 1
        mirror.items["ghost"], mirror._revisions["ghost"] = mirror.items["kept"], 1
        mirrored.changes.clear()
        found = {missed.key: (missed.believed, missed.actual) for missed in await mirror.audit()}
        assert found == {"lost": (None, 1), "stale": (1, 2), "ghost": (1, None)}
        assert sorted(mirror.items) == ["kept", "lost", "stale"]
        assert ("ghost", True, False) in mirrored.changes
        assert await mirror.audit() == []


@in_virtual_time
async def test_worlds_are_counted() -> None:
    mirrored = Mirrored()
    async with mirrored.running() as mirror:
        await mirrored.bucket.put("a", data("a"))
        await mirror.wait_revision(1)
        mirrored.server.lose_bucket(NODES)
        await asyncio.sleep(1)
        assert (mirror.worlds, sorted(mirror.orphans)) == (1, ["a"])


class Burst:
    """A bucket whose watch never has to wait for the next entry."""

    spec = NODES

    def __init__(self, entries: int) -> None:
        self._entries = entries

    async def watch(self, pattern: str = ">") -> AsyncIterator[Entry]:
        for revision in range(1, self._entries + 1):
            yield Entry(f"n{revision}", data("n"), revision)


async def test_a_burst_leaves_others_their_turn() -> None:
    mirror = BucketMirror(Burst(1_000), NodeInventory)  # type: ignore[arg-type]
    reading = asyncio.create_task(mirror.run())
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(mirror.items) == 1_000
    assert turns >= 10
