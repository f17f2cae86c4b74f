import asyncio
from contextlib import asynccontextmanager

from cotenant_common.bus.protocol import Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, is_bookkeeping
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.lease import Lease
from cotenant_common.testing.context import memory_server, quiet_log
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_scheduler.adapters.binder import Bind, Binder, DeposedError, Unbind


def binding(uid, node="n1", attempt=1) -> Binding:
    return Binding(
        uid=uid, namespace="default", name=uid, node=node, attempt=attempt, epoch=1, spec_digest="",
        requests={}, bound_ms=0,
    )  # fmt: skip


class Desk:
    """A binder at work, and what it reported."""

    def __init__(self, bucket, lease) -> None:
        self.bucket = bucket
        self.bound: dict[str, int] = {}
        self.lost: list[str] = []
        self.binder = Binder(bucket, lease, quiet_log(), 100, self.on_bound, self.on_lost)

    async def on_bound(self, bind, revision):
        self.bound[bind.key] = revision

    async def on_lost(self, bind):
        self.lost.append(bind.key)

    async def keys(self):
        return [key for key in await self.bucket.keys() if not is_bookkeeping(key)]


@asynccontextmanager
async def desk():
    server = memory_server()
    bucket = await server.connect("scheduler").bucket(BINDINGS)
    async with Lease(bucket, "scheduler", "one", LoopClock()).hold() as lease:
        it = Desk(bucket, lease)
        it.server = server
        running = asyncio.create_task(it.binder.run())
        try:
            yield it
        finally:
            running.cancel()
            await asyncio.wait([running])


@in_virtual_time
async def test_revisions_are_those_of_the_entries():
    async with desk() as it:
        for i in range(5):
            it.binder.put(Bind(binding(f"u{i}")))
        await asyncio.sleep(0.1)
        assert it.bound == {key: (await it.bucket.get(key)).revision for key in await it.keys()}
        assert len(it.bound) == 5


@in_virtual_time
async def test_one_conflict_in_a_batch_costs_only_its_own_pod():
    async with desk() as it:
        await it.bucket.put("u1.other", codec.encode(binding("u1", "other")))
        for i in range(3):
            it.binder.put(Bind(binding(f"u{i}")))
        await asyncio.sleep(0.1)
        assert sorted(it.bound) == ["u0.n1", "u2.n1"]
        assert it.lost == ["u1.n1"]


@in_virtual_time
async def test_ones_own_lost_answer_is_success():
    async with desk() as it:
        job = Bind(binding("u"))
        await it.bucket.put(job.key, codec.encode(job.binding))
        it.binder.put(job)
        await asyncio.sleep(0.1)
        assert list(it.bound) == ["u.n1"]
        assert it.lost == []


@in_virtual_time
async def test_a_later_attempt_replaces_the_earlier_in_one_step():
    async with desk() as it:
        it.binder.put(Bind(binding("u")))
        await asyncio.sleep(0.1)
        it.binder.put(Bind(binding("u", "n2", 2), ("u.n1", it.bound["u.n1"])))
        await asyncio.sleep(0.1)
        assert await it.keys() == ["u.n2"]
        assert (await it.bucket.get("u.n2")).revision == it.bound["u.n2"]


@in_virtual_time
async def test_a_later_attempt_may_go_to_the_same_node():
    async with desk() as it:
        it.binder.put(Bind(binding("u")))
        await asyncio.sleep(0.1)
        first = it.bound["u.n1"]
        it.binder.put(Bind(binding("u", attempt=2), ("u.n1", first)))
        await asyncio.sleep(0.1)
        assert it.bound["u.n1"] > first


@in_virtual_time
async def test_a_later_attempt_loses_against_one_it_did_not_know():
    async with desk() as it:
        it.binder.put(Bind(binding("u")))
        await asyncio.sleep(0.1)
        seen = it.bound["u.n1"]
        await it.bucket.put("u.n1", codec.encode(binding("u", attempt=7)))
        it.binder.put(Bind(binding("u", "n2", 2), ("u.n1", seen)))
        await asyncio.sleep(0.1)
        assert it.lost == ["u.n2"]
        assert await it.keys() == ["u.n1"]


@in_virtual_time
async def test_an_old_thought_does_not_remove_a_new_binding():
    async with desk() as it:
        it.binder.put(Bind(binding("u")))
        await asyncio.sleep(0.1)
        seen = it.bound["u.n1"]
        await it.bucket.put("u.n1", codec.encode(binding("u", attempt=2)))
        it.binder.put(Unbind("u.n1", seen))
        await asyncio.sleep(0.1)
        assert await it.keys() == ["u.n1"]


@in_virtual_time
async def test_a_bus_that_is_away_is_waited_for_while_the_lease_lasts():
    async with desk() as it:
        it.server.stop()
        it.binder.put(Bind(binding("u")))
        await asyncio.sleep(1)
        it.server.start()
        await asyncio.sleep(12)
        assert list(it.bound) == ["u.n1"]


@in_virtual_time
async def test_a_deposed_leader_writes_nothing():
    server = memory_server()
    bucket = await server.connect("scheduler").bucket(BINDINGS)
    lease = Lease(bucket, "scheduler", "one", LoopClock())
    leading = asyncio.create_task(lease.run())
    await lease.wait_held()
    it = Desk(bucket, lease)
    leading.cancel()
    await asyncio.wait([leading])
    it.binder.put(Bind(binding("u")))
    try:
        await it.binder.run()
    except DeposedError:
        pass
    else:
        raise AssertionError("expected DeposedError")
    assert await it.keys() == []


@in_virtual_time
async def test_a_newer_epoch_refuses_the_whole_batch():
    async with desk() as it:
        await it.bucket.batch([Put("lease.scheduler.epoch", b"")])
        it.binder.put(Bind(binding("u")))
        await asyncio.sleep(0.1)
        assert await it.keys() == []
        assert it.lost == ["u.n1"]
