"""What a simulated network may do to one service, and what it must never do."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from cotenant_common.bus.memory_bus import MemoryBus
from cotenant_common.bus.memory_link import Disturbance
from cotenant_common.bus.protocol import BusClosedError, BusUnavailableError, Entry, Received, StoreReset
from cotenant_common.contracts.buckets import BINDINGS, HEARTBEATS, SPECS
from cotenant_common.testing.bus_cases import Watcher, until
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.virtual_loop import in_virtual_time


async def collector(bus: MemoryBus, subject: str) -> list[bytes]:
    seen: list[bytes] = []

    async def handle(received: Received) -> None:
        seen.append(received.data)

    await bus.subscribe(subject, handle)
    return seen


@in_virtual_time
async def test_nothing_goes_in_or_out_after_a_cut() -> None:
    server = memory_server()
    crashed, other = server.connect("a"), server.connect("b")
    seen = await collector(crashed, "cotenant.v1.tel.>")
    heard = await collector(other, "cotenant.v1.tel.>")
    bucket = await crashed.bucket(SPECS)
    await other.publish("cotenant.v1.tel.x", b"queued but never handled")
    crashed.cut()
    await crashed.publish("cotenant.v1.tel.x", b"from the dead")
    for attempt in (bucket.put("k", b"1"), bucket.get("k"), crashed.request("x", b"", timeout_s=1)):
        with pytest.raises(BusClosedError):
            await attempt
    await asyncio.sleep(1)
    assert (seen, heard) == ([], [b"queued but never handled"])
    assert server.store(SPECS).revision == 0
    assert len(asyncio.all_tasks()) == 2  # this test and the other handle's subscription


@in_virtual_time
async def test_a_cut_interrupts_the_handler_that_runs() -> None:
    server = memory_server()
    crashed, other = server.connect("a"), server.connect("b")
    steps: list[str] = []

    async def handle(_: Received) -> None:
        steps.append("began")
        await asyncio.sleep(10)
        steps.append("went on")

    await crashed.subscribe("cotenant.v1.tel.x", handle)
    await other.publish("cotenant.v1.tel.x", b"")
    await asyncio.sleep(1)
    crashed.cut()
    await asyncio.sleep(100)
    assert steps == ["began"]


@in_virtual_time
async def test_a_cut_watch_ends_with_an_error() -> None:
    bus = memory_server().connect("a")
    bucket = await bus.bucket(SPECS)

    async def watch() -> None:
        async with aclosing(bucket.watch()) as items:
            async for _ in items:
                pass

    watching = asyncio.create_task(watch())
    await asyncio.sleep(1)
    bus.cut()
    with pytest.raises(BusClosedError):
        await watching


@in_virtual_time
async def test_a_partition_loses_telemetry_and_catches_up_with_state() -> None:
    server = memory_server()
    parted, other = server.connect("a"), server.connect("b")
    seen = await collector(parted, "cotenant.v1.tel.>")
    async with Watcher(await parted.bucket(SPECS)) as watcher:
        parted.partition()
        assert not parted.connected
        await other.publish("cotenant.v1.tel.x", b"lost")
        await (await other.bucket(SPECS)).put("k", b"1")
        await asyncio.sleep(60)
        assert watcher.entries == []
        parted.heal()
        await until(lambda: len(watcher.entries) == 1)
        await other.publish("cotenant.v1.tel.x", b"heard")
        await until(lambda: seen == [b"heard"])


@in_virtual_time
async def test_an_operation_in_a_partition_fails_after_its_timeout_or_passes_when_it_heals() -> None:
    server = memory_server()
    bus = server.connect("a")
    bucket = await bus.bucket(SPECS)
    loop = asyncio.get_running_loop()
    bus.partition()
    began = loop.time()
    with pytest.raises(BusUnavailableError):
        await bucket.put("k", b"1")
    assert loop.time() - began == 5.0
    loop.call_later(2, bus.heal)
    assert await bucket.put("k", b"2") == 1


@in_virtual_time
async def test_a_pause_loses_nothing() -> None:
    server = memory_server()
    paused, other = server.connect("a"), server.connect("b")
    seen = await collector(paused, "cotenant.v1.tel.>")
    heard = await collector(other, "cotenant.v1.cmd.>")
    paused.pause()
    await other.publish("cotenant.v1.tel.x", b"1")
    publishing = asyncio.create_task(paused.publish("cotenant.v1.cmd.x", b"2"))
    await asyncio.sleep(60)
    assert (seen, heard) == ([], [])
    paused.heal()
    await publishing
    await until(lambda: seen == [b"1"] and heard == [b"2"])


@in_virtual_time
async def test_duplicated_reordered_and_delayed_messages() -> None:
    server = memory_server()
    receiver, sender = server.connect("a"), server.connect("b")
    seen = await collector(receiver, "cotenant.v1.tel.>")
    receiver.disturb(Disturbance(duplicate=True))
    await sender.publish("cotenant.v1.tel.x", b"1")
    await until(lambda: seen == [b"1", b"1"])
    seen.clear()
    receiver.disturb(Disturbance(reorder=True))
    for data in (b"1", b"2", b"3"):
        await sender.publish("cotenant.v1.tel.x", data)
    await until(lambda: seen == [b"2", b"1", b"3"])
    seen.clear()
    receiver.disturb(Disturbance(delay_s=3))
    began = asyncio.get_running_loop().time()
    await sender.publish("cotenant.v1.tel.x", b"late")
    await until(lambda: seen == [b"late"])
    assert asyncio.get_running_loop().time() - began >= 3


@in_virtual_time
async def test_a_watch_is_never_duplicated_or_reordered() -> None:
    server = memory_server()
    bus = server.connect("a")
    bus.disturb(Disturbance(duplicate=True, reorder=True, delay_s=0.5))
    bucket = await bus.bucket(SPECS)
    async with Watcher(bucket) as watcher:
        revisions = [await bucket.put("k", b"%d" % i) for i in range(5)]
        await until(lambda: len(watcher.entries) == 5)
        assert [entry.revision for entry in watcher.entries] == revisions


@in_virtual_time
async def test_a_stopped_server_parts_everybody_and_keeps_its_state() -> None:
    server = memory_server()
    bus = server.connect("a")
    bucket = await bus.bucket(SPECS)
    await bucket.put("k", b"1")
    server.stop()
    late = server.connect("b")
    assert not bus.connected
    assert not late.connected
    server.start()
    assert await bucket.get("k") == Entry("k", b"1", 1)
    assert late.connected


@in_virtual_time
async def test_a_lost_bucket_is_told_as_a_new_world() -> None:
    server = memory_server()
    bucket = await server.connect("a").bucket(SPECS)
    await bucket.put("old", b"1")
    async with Watcher(bucket) as watcher:
        server.lose_bucket(SPECS)
        await until(lambda: any(isinstance(item, StoreReset) for item in watcher.items))
        assert await bucket.put("new", b"2") == 1
        await until(lambda: watcher.entries[-1].key == "new")
        assert all(entry.value is not None for entry in watcher.entries)


@in_virtual_time
async def test_keys_expire_by_the_loops_clock_to_the_millisecond() -> None:
    bucket = await memory_server().connect("a").bucket(HEARTBEATS)
    await bucket.put("n1", b"x", ttl_s=10)
    await asyncio.sleep(9.999)
    assert await bucket.get("n1") is not None
    await asyncio.sleep(0.002)
    assert await bucket.get("n1") is None


@in_virtual_time
async def test_a_rewrite_without_ttl_keeps_the_key_for_good() -> None:
    bucket = await memory_server().connect("a").bucket(BINDINGS)
    await bucket.put("lease.x", b"1", ttl_s=1)
    await bucket.put("lease.x", b"2")
    await asyncio.sleep(10)
    assert await bucket.get("lease.x") is not None


@in_virtual_time
async def test_closing_leaves_no_task_behind() -> None:
    server = memory_server()
    bus = server.connect("a")
    for i in range(5):
        await collector(bus, f"cotenant.v1.tel.{i}")
    await bus.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_handler_may_stop_its_own_subscription() -> None:
    bus = memory_server().connect("a")
    seen: list[bytes] = []

    async def handle(received: Received) -> None:
        seen.append(received.data)
        await subscription.stop()

    subscription = await bus.subscribe("cotenant.v1.tel.x", handle)
    await bus.publish("cotenant.v1.tel.x", b"1")
    await bus.publish("cotenant.v1.tel.x", b"2")
    await asyncio.sleep(1)
    assert seen == [b"1"]


@pytest.mark.parametrize("away", [MemoryBus.partition, MemoryBus.pause])
@in_virtual_time
async def test_who_waits_for_a_reconnect_is_woken_by_the_next_one_only(away: Callable[[MemoryBus], None]) -> None:
    bus = memory_server().connect("a")
    waiting = asyncio.create_task(bus.wait_reconnected())
    bus.heal()  # it was never away
    await asyncio.sleep(1)
    assert not waiting.done()
    away(bus)
    await asyncio.sleep(1)
    assert not waiting.done()
    bus.heal()
    await asyncio.sleep(1)
    assert waiting.done()


@in_virtual_time
async def test_a_closed_connection_never_comes_back() -> None:
    bus = memory_server().connect("a")
    waiting = asyncio.create_task(bus.wait_reconnected())
    await asyncio.sleep(1)
    await bus.close()
    await asyncio.sleep(1)
    assert not waiting.done()
    waiting.cancel()


@in_virtual_time
async def test_what_ends_in_a_token_is_found_without_the_rest_also_after_it_expired_or_was_lost() -> None:
    server = memory_server()
    bus = server.connect("a")
    bucket = await bus.bucket(BINDINGS)
    store = server.store(BINDINGS)
    for key in ("u1.n1", "u2.n2", "u3.n1", "n1"):
        await bucket.put(key, b"1")
    assert [entry.key for entry in store.live("*.n1")] == ["u1.n1", "u3.n1"]
    await bucket.delete("u1.n1")
    assert [entry.key for entry in store.live("*.n1")] == ["u3.n1"]
    for spec in (HEARTBEATS, SPECS):  # the one leaves a marker when a key expires, the other none
        await (await bus.bucket(spec)).put("a.n1", b"1", ttl_s=1)
        await asyncio.sleep(2)
        assert server.store(spec).live("*.n1") == []
    server.lose_bucket(BINDINGS)
    assert store.live("*.n1") == []
