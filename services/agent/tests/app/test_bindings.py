"""Bindings through a bucket that answers with what it is given."""

import asyncio

from cotenant_agent.app.bindings import BindingFollower
from cotenant_common.bus.protocol import Entry, Op, SnapshotDone
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.telemetry.logging import get_logger
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.virtual_loop import in_virtual_time


def binding(uid, attempt=1):
    return Binding(
        uid=uid,
        namespace="default",
        name=uid,
        node="n1",
        attempt=attempt,
        epoch=1,
        spec_digest="",
        requests={},
        bound_ms=0,
    )


def put(uid, revision, attempt=1):
    return Entry(f"{uid}.n1", codec.encode(binding(uid, attempt)), revision)


def gone(uid, revision):
    return Entry(f"{uid}.n1", None, revision, Op.DELETE)


class Snapshots:
    """Each watch is the next list; the last one is repeated."""

    def __init__(self, *lists):
        self.lists = list(lists)
        self.taken = 0

    async def watch(self, _pattern):
        self.taken += 1
        for item in self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]:
            yield item


class StillBus:
    connected = True

    async def subscribe(self, *_args, **_kwargs):
        return self

    async def stop(self):
        """Nothing was subscribed."""


def follower(*lists):
    made = BindingFollower(StillBus(), Snapshots(*lists), "n1", lambda _uid: None, 60_000, get_logger("test"))
    return made, made._bucket


async def test_a_bucket_made_anew_is_read_again_at_once():
    made, bucket = follower([put("a", 50), SnapshotDone(60)], [put("a", 3, attempt=2), put("b", 4), SnapshotDone(4)])
    await made.snapshot()
    assert await made.snapshot() is False
    assert made.items["a"].attempt == 1
    assert await made.snapshot() is True
    assert (made.items["a"].attempt, sorted(made.items), bucket.taken) == (2, ["a", "b"], 3)


async def test_what_is_gone_for_a_whole_interval_is_forgotten_and_not_before():
    made, _ = follower([put("a", 1), SnapshotDone(1)], [gone("a", 2), SnapshotDone(2)], [SnapshotDone(3)])
    for _ in range(2):
        await made.snapshot()
    await made._copy("a.n1", binding("a"), 1)
    assert made.items == {}
    await made.snapshot()
    assert made._revisions == {}


@in_virtual_time
async def test_bindings_are_read_again_when_the_connection_comes_back_and_not_before():
    server = memory_server()
    bus = server.connect("agent")
    made = BindingFollower(bus, Snapshots([SnapshotDone(1)]), "n1", lambda _uid: None, 60_000, get_logger("test"))
    running = asyncio.create_task(made.run())
    await asyncio.sleep(50)
    taken = made._bucket.taken
    bus.partition()
    await asyncio.sleep(5)
    assert (taken, made._bucket.taken) == (1, 1)
    bus.heal()
    await asyncio.sleep(0.1)
    assert made._bucket.taken == 2
    running.cancel()
