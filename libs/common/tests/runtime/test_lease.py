import asyncio
from contextlib import AsyncExitStack

import pytest

from cotenant_common.bus.memory_bus import MemoryBus, MemoryServer
from cotenant_common.bus.protocol import ConflictError, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, LEASES
from cotenant_common.contracts.messages.state import LeaseRecord
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.lease import Lease, NotHeldError
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.virtual_loop import in_virtual_time


class Replica:
    def __init__(self, server: MemoryServer, instance: str) -> None:
        self.bus: MemoryBus = server.connect("scheduler")
        self.instance = instance
        self.lost_at: list[float] = []

    async def start(self) -> "Replica":
        self.bucket = await self.bus.bucket(BINDINGS)
        discovery = await self.bus.bucket(LEASES)
        self.lease = Lease(self.bucket, "scheduler", self.instance, LoopClock(), discovery=discovery)
        self.task = asyncio.create_task(self.lease.run(self._on_lost), name=self.instance)
        return self

    def _on_lost(self) -> None:
        self.lost_at.append(asyncio.get_running_loop().time())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_one_of_two_leads_and_keeps_leading() -> None:
    server = memory_server()
    first, second = [await Replica(server, name).start() for name in ("s-1", "s-2")]
    for _ in range(100):
        await asyncio.sleep(1)
        assert [first.lease.held, second.lease.held] == [True, False]
    assert (first.lease.epoch, first.lost_at) == (1, [])
    await first.stop()
    await second.stop()


@in_virtual_time
async def test_a_clean_stop_hands_over_at_once() -> None:
    server = memory_server()
    first, second = [await Replica(server, name).start() for name in ("s-1", "s-2")]
    await asyncio.sleep(10)
    stopped_at = now()
    await first.stop()
    await second.lease.wait_held()
    assert now() - stopped_at <= 0.5
    assert second.lease.epoch == 2
    await second.stop()


@in_virtual_time
async def test_after_a_crash_the_standby_leads_when_the_lease_ends() -> None:
    server = memory_server()
    first, second = [await Replica(server, name).start() for name in ("s-1", "s-2")]
    await asyncio.sleep(10)
    first.bus.cut()
    await first.stop()
    crashed_at = now()
    await second.lease.wait_held()
    assert 2 <= now() - crashed_at <= 4.6
    await second.stop()


@in_virtual_time
async def test_a_parted_holder_stops_acting_before_another_may_start() -> None:
    server = memory_server()
    first, second = [await Replica(server, name).start() for name in ("s-1", "s-2")]
    await asyncio.sleep(10)
    first.bus.partition()
    while first.lease.held:
        assert not second.lease.held
        await asyncio.sleep(0.05)
    stopped_at = now()
    assert not second.lease.held
    await second.lease.wait_held()
    assert now() > stopped_at
    assert first.lost_at == [pytest.approx(stopped_at, abs=0.1)]
    first.bus.heal()
    await asyncio.sleep(20)
    assert [first.lease.held, second.lease.held] == [False, True]
    assert len(first.lost_at) == 1
    for replica in (first, second):
        await replica.stop()


@in_virtual_time
async def test_the_whole_batch_of_a_deposed_leader_is_refused() -> None:
    server = memory_server()
    first = await Replica(server, "s-1").start()
    await first.lease.wait_held()
    guard = first.lease.guard()
    await first.bucket.batch([Put("u1.n1", b"x"), guard])
    await first.stop()
    second = await Replica(server, "s-2").start()
    await second.lease.wait_held()
    with pytest.raises(ConflictError):
        await first.bucket.batch([Put("u2.n1", b"x"), guard])
    await second.bucket.batch([Put("u3.n1", b"x"), second.lease.guard()])
    assert await second.bucket.keys("*.n1") == ["u1.n1", "u3.n1"]
    await second.stop()


@in_virtual_time
async def test_batches_and_renewals_do_not_refuse_each_other() -> None:
    replica = await Replica(memory_server(), "s-1").start()
    await replica.lease.wait_held()
    for i in range(200):
        await replica.bucket.batch([Put(f"u{i}.n1", b"x"), replica.lease.guard()])
        await asyncio.sleep(0.1)
    assert replica.lease.epoch == 1
    await replica.stop()


@in_virtual_time
async def test_without_the_lease_there_is_no_guard() -> None:
    bucket = await memory_server().connect("a").bucket(BINDINGS)
    lease = Lease(bucket, "scheduler", "s-1", LoopClock())
    assert not lease.held
    with pytest.raises(NotHeldError):
        lease.guard()


@in_virtual_time
async def test_a_lease_that_vanished_is_taken_again_under_a_new_epoch() -> None:
    server = memory_server()
    replica = await Replica(server, "s-1").start()
    await replica.lease.wait_held()
    replica.bus.pause()
    await asyncio.sleep(30)
    assert not replica.lease.held
    replica.bus.heal()
    await replica.lease.wait_held()
    assert replica.lease.epoch == 2
    await replica.stop()


@in_virtual_time
async def test_who_leads_can_be_looked_up() -> None:
    server = memory_server()
    replica = await Replica(server, "s-1").start()
    await replica.lease.wait_held()
    await asyncio.sleep(5)
    entry = await (await replica.bus.bucket(LEASES)).get("scheduler")
    assert entry is not None
    assert entry.value is not None
    assert codec.decode(LeaseRecord, entry.value).holder == "s-1"
    await replica.stop()


@in_virtual_time
async def test_leading_inside_a_block() -> None:
    bucket = await memory_server().connect("a").bucket(BINDINGS)
    lease = Lease(bucket, "scheduler", "s-1", LoopClock())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lease.hold())
        await asyncio.sleep(20)
        assert lease.held
    assert not lease.held
    assert await bucket.get("lease.scheduler") is None


@in_virtual_time
async def test_a_process_started_again_under_its_own_name_waits_for_no_lease() -> None:
    server = memory_server()
    killed = await Replica(server, "unit-scheduler").start()
    await asyncio.sleep(10)
    killed.bus.cut()
    await killed.stop()
    began = now()
    again = await Replica(server, "unit-scheduler").start()
    await again.lease.wait_held()
    assert (now() - began < 0.5, again.lease.epoch) == (True, 2)
    other = await Replica(server, "s-2").start()
    await asyncio.sleep(10)
    assert [again.lease.held, other.lease.held] == [True, False]
    await again.stop()
    await other.stop()


@in_virtual_time
async def test_two_processes_of_one_name_do_not_take_the_lease_from_each_other_for_ever() -> None:
    server = memory_server()
    first = await Replica(server, "twin").start()
    await asyncio.sleep(10)
    second = await Replica(server, "twin").start()
    await asyncio.sleep(60)
    assert [first.lease.held, second.lease.held, second.lease.epoch] == [False, True, 2]
    await first.stop()
    await second.stop()


@in_virtual_time
async def test_a_renewal_does_not_tell_discovery_what_it_was_just_told() -> None:
    server = memory_server()
    replica = await Replica(server, "s-1").start()
    told = []
    server.store(LEASES).listeners.append(lambda entry: told.append((now(), entry.value)))
    await asyncio.sleep(60)
    assert 60 / 8 < len(told) <= 60 / 4 + 1
    assert all(value is not None for _, value in told), "it never ran out"
    await replica.stop()


@in_virtual_time
async def test_whoever_waits_for_the_loss_hears_of_it_when_it_lapses_and_when_it_is_given_up() -> None:
    server = memory_server()
    replica = await Replica(server, "s-1").start()
    await replica.lease.wait_held()
    waiting = asyncio.create_task(replica.lease.wait_lost())
    await asyncio.sleep(30)
    assert not waiting.done()
    replica.bus.partition()
    await waiting
    assert not replica.lease.held
    assert 30 < now() <= 34
    replica.bus.heal()
    await replica.lease.wait_held()
    waiting = asyncio.create_task(replica.lease.wait_lost())
    await asyncio.sleep(1)
    stopped_at = now()
    await replica.stop()
    await waiting
    assert now() == stopped_at
