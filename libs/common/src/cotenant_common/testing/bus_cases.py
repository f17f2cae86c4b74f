"""What every bus must do. The same cases run on the in-memory bus in virtual time and on a real nats-server.

A case takes a ``World`` and fails by assertion. Waiting is always for a condition, never for a guess.
"""

# ruff: noqa: S101, PERF401 - cases assert; what they collect must be seen while it arrives

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol

from cotenant_common.bus.matching import InvalidKeyError
from cotenant_common.bus.protocol import (
    Bucket,
    Bus,
    BusClosedError,
    BusError,
    ConflictError,
    Delete,
    Entry,
    EventMessage,
    NoResponderError,
    PayloadTooLargeError,
    Put,
    Received,
    RemoteError,
    SnapshotDone,
    WatchItem,
)
from cotenant_common.contracts.buckets import BINDINGS, HEARTBEATS, SPECS

WAIT_S: Final = 30.0


class World(Protocol):
    async def connect(self, name: str) -> Bus: ...


Case = Callable[[World], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[getattr(function, "__name__", "")] = function
    return function


async def until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Wait for a condition that others bring about."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def expect_conflict(attempt: Awaitable[object]) -> ConflictError:
    try:
        await attempt
    except ConflictError as error:
        return error
    raise AssertionError("expected a ConflictError")


async def snapshot(bucket: Bucket, pattern: str = ">") -> dict[str, bytes | None]:
    """What a watch shows up to SnapshotDone."""
    seen: dict[str, bytes | None] = {}
    async with asyncio.timeout(WAIT_S), aclosing(bucket.watch(pattern)) as items:
        async for item in items:
            if isinstance(item, SnapshotDone):
                return seen
            if isinstance(item, Entry):
                seen[item.key] = item.value
    raise AssertionError("the watch ended")


class Watcher:
    """Collects a watch in the background: ``async with Watcher(bucket) as watcher``."""

    def __init__(self, bucket: Bucket, pattern: str = ">") -> None:
        self.items: list[WatchItem] = []
        self._bucket = bucket
        self._pattern = pattern
        self._task: asyncio.Task[None] | None = None

    @property
    def entries(self) -> list[Entry]:
        return [item for item in self.items if isinstance(item, Entry)]

    @property
    def done(self) -> bool:
        return any(isinstance(item, SnapshotDone) for item in self.items)

    async def _run(self) -> None:
        async with aclosing(self._bucket.watch(self._pattern)) as items:
            async for item in items:
                self.items.append(item)

    async def __aenter__(self) -> "Watcher":
        self._task = asyncio.create_task(self._run(), name="watcher")
        await until(lambda: self.done)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])


@case
async def a_value_is_read_back_with_its_revision(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(SPECS)
    revision = await bucket.put("Pod.default.web", b"one")
    assert await bucket.get("Pod.default.web") == Entry("Pod.default.web", b"one", revision)
    assert await bucket.get("Pod.default.other") is None
    assert await bucket.last_revision() == revision


@case
async def of_two_creates_one_wins(world: World) -> None:
    first, second = [await (await world.connect(name)).bucket(SPECS) for name in ("a", "b")]
    results = await asyncio.gather(first.create("k", b"1"), second.create("k", b"2"), return_exceptions=True)
    assert sorted(isinstance(result, ConflictError) for result in results) == [False, True]


@case
async def a_stale_update_changes_nothing(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(SPECS)
    first = await bucket.create("k", b"1")
    second = await bucket.update("k", b"2", first)
    error = await expect_conflict(bucket.update("k", b"3", first))
    assert error.actual == second
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == b"2"


@case
async def a_deleted_key_can_be_created_again(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(SPECS)
    await bucket.create("k", b"1")
    await bucket.delete("k")
    await bucket.delete("k")
    await bucket.delete("never")
    assert await bucket.get("k") is None
    assert await bucket.create("k", b"2") > 2
    await expect_conflict(bucket.create("k", b"3"))


@case
async def a_stale_delete_is_refused(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(SPECS)
    first = await bucket.put("k", b"1")
    second = await bucket.put("k", b"2")
    await expect_conflict(bucket.delete("k", revision=first))
    await bucket.delete("k", revision=second)
    assert await bucket.get("k") is None


@case
async def keys_are_live_matching_and_sorted(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    for key in ("u2.n1", "u1.n1", "u3.n2", "u4.n1"):
        await bucket.put(key, b"x")
    await bucket.delete("u4.n1")
    assert await bucket.keys() == ["u1.n1", "u2.n1", "u3.n2"]
    assert await bucket.keys("*.n1") == ["u1.n1", "u2.n1"]
    assert await bucket.keys("u9.*") == []


@case
async def a_bad_key_is_refused_before_the_wire(world: World) -> None:
    bus = await world.connect("a")
    bucket = await bus.bucket(SPECS)
    for key in ("", "a b", "a\n", "a..b", ".a", "a.", "a*", "k" * 4040, "ключ"):
        try:
            await bucket.put(key, b"x")
        except InvalidKeyError:
            continue
        raise AssertionError(f"expected {key!r} to be refused")
    assert bus.connected


@case
async def a_batch_is_all_or_nothing(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    await bucket.put("u2.n9", b"taken")
    gang = [Put(f"u{i}.n1", b"x", expect=0, expect_filter=f"u{i}.*") for i in range(5)]
    await expect_conflict(bucket.batch(gang))
    assert await bucket.keys() == ["u2.n9"]
    await bucket.delete("u2.n9")
    last = await bucket.batch(gang)
    assert last == await bucket.last_revision()
    assert len(await bucket.keys()) == 5


@case
async def a_thousand_operations_fit_and_one_more_does_not(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    operations = [Put(f"u{i}.n1", b"x") for i in range(1001)]
    try:
        await bucket.batch(operations)
    except ConflictError:
        raise
    except BusError:
        assert await bucket.keys() == []
    else:
        raise AssertionError("expected 1,001 operations to be refused")
    await bucket.batch(operations[:1000])
    assert len(await bucket.keys()) == 1000


@case
async def a_later_attempt_moves_a_pod_in_one_batch(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    first = await bucket.batch([Put("u1.n1", b"1", expect=0, expect_filter="u1.*")])
    await bucket.batch([Delete("u1.n1", expect=first, expect_filter="u1.*"), Put("u1.n2", b"2")])
    assert await bucket.keys() == ["u1.n2"]
    await expect_conflict(bucket.batch([Delete("u1.n2", expect=first, expect_filter="u1.*"), Put("u1.n3", b"3")]))
    assert await bucket.keys() == ["u1.n2"]


@case
async def one_stale_fence_refuses_the_whole_batch(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    epoch = await bucket.put("lease.scheduler.epoch", b"1")
    fence = Put("lease.scheduler.fence", b"", expect=epoch, expect_filter="lease.scheduler.epoch")
    await bucket.batch([Put("u1.n1", b"x"), fence])
    await bucket.batch([Put("u2.n1", b"x"), fence])
    await bucket.put("lease.scheduler.epoch", b"2")
    await expect_conflict(bucket.batch([Put("u3.n1", b"x"), fence]))
    assert await bucket.keys("*.n1") == ["u1.n1", "u2.n1"]


@case
async def a_key_with_a_ttl_expires_and_watchers_are_told(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(HEARTBEATS)
    async with Watcher(bucket) as watcher:
        await bucket.put("n1", b"x", ttl_s=1)
        await until(lambda: len(watcher.entries) == 2)
        assert [entry.value for entry in watcher.entries] == [b"x", None]
    assert await bucket.get("n1") is None
    await bucket.create("n1", b"y", ttl_s=1)


@case
async def renewing_keeps_a_key_alive(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    revision = await bucket.create("lease.x", b"1", ttl_s=3)
    for _ in range(4):
        await asyncio.sleep(1)
        revision = await bucket.update("lease.x", b"1", revision, ttl_s=3)
    assert await bucket.get("lease.x") is not None
    async with asyncio.timeout(WAIT_S):
        while await bucket.get("lease.x") is not None:
            await asyncio.sleep(0.1)
    await bucket.create("lease.x", b"2", ttl_s=1)


@case
async def a_watch_shows_the_snapshot_then_changes_in_order(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(SPECS)
    for i in range(20):
        await bucket.put(f"k{i}", b"0")
    await bucket.delete("k3")
    async with Watcher(bucket) as watcher:
        assert {entry.key for entry in watcher.entries} == {f"k{i}" for i in range(20)} - {"k3"}
        await bucket.put("k0", b"1")
        await bucket.delete("k1")
        await until(lambda: len(watcher.entries) == 21)
        assert [(entry.key, entry.value) for entry in watcher.entries[-2:]] == [("k0", b"1"), ("k1", None)]
        revisions = [entry.revision for entry in watcher.entries]
        assert revisions == sorted(revisions)


@case
async def an_empty_bucket_has_a_complete_snapshot(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(SPECS)
    assert await snapshot(bucket) == {}
    await bucket.put("k", b"1")
    await bucket.delete("k")
    assert await snapshot(bucket) == {}


@case
async def a_filtered_snapshot_ends_though_the_last_write_lies_outside_it(world: World) -> None:
    bucket = await (await world.connect("a")).bucket(BINDINGS)
    await bucket.put("u1.n1", b"1")
    await bucket.put("u2.n2", b"2")
    assert await snapshot(bucket, "*.n1") == {"u1.n1": b"1"}
    assert await snapshot(bucket, "*.n3") == {}


@case
async def a_snapshot_is_complete_while_keys_are_rewritten(world: World) -> None:
    writer = await (await world.connect("a")).bucket(SPECS)
    reader = await (await world.connect("b")).bucket(SPECS)
    keys = [f"k{i}" for i in range(300)]
    for start in range(0, 300, 100):
        await writer.batch([Put(key, b"0") for key in keys[start : start + 100]])
    stop = asyncio.Event()

    async def rewrite() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            await writer.put(keys[turn * 7 % 300], str(turn).encode())
            await asyncio.sleep(0.0005)

    rewriting = asyncio.create_task(rewrite(), name="rewriter")
    try:
        for _ in range(3):
            assert set(await snapshot(reader)) == set(keys)
    finally:
        stop.set()
        await rewriting


@case
async def writes_are_republished_per_node(world: World) -> None:
    writer, agent = await world.connect("a"), await world.connect("b")
    bucket = await writer.bucket(BINDINGS)
    seen: list[Received] = []

    async def handle(received: Received) -> None:
        seen.append(received)

    await agent.subscribe("cotenant.v1.bound.n1.*", handle)
    # A round trip on the subscriber's connection: the server has the subscription when it answers.
    await agent.bucket(BINDINGS)
    await bucket.put("u0.n2", b"elsewhere")
    revision = await bucket.put("u1.n1", b"x")
    await bucket.delete("u1.n1")
    await until(lambda: len(seen) == 2)
    assert (seen[0].subject, seen[0].data, seen[0].sequence) == ("cotenant.v1.bound.n1.u1", b"x", revision)
    assert seen[0].headers["Nats-Subject"] == "$KV.cotenant-bindings.u1.n1"
    assert seen[1].headers["KV-Operation"] == "PURGE"


@case
async def messages_arrive_in_order_and_one_at_a_time(world: World) -> None:
    sender, receiver = await world.connect("a"), await world.connect("b")
    seen: list[bytes] = []
    running = 0

    async def handle(received: Received) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        seen.append(received.data)
        running -= 1
        if received.data == b"3":
            raise ValueError("a handler's error must not end its subscription")

    await receiver.subscribe("cotenant.v1.tel.test.>", handle)
    await receiver.bucket(SPECS)
    for i in range(50):
        await sender.publish(f"cotenant.v1.tel.test.{i}", str(i).encode())
    await until(lambda: len(seen) == 50)
    assert seen == [str(i).encode() for i in range(50)]


@case
async def a_queue_group_shares_messages(world: World) -> None:
    sender, one, two = [await world.connect(name) for name in ("a", "b", "c")]
    seen: list[bytes] = []

    async def handle(received: Received) -> None:
        seen.append(received.data)

    for bus in (one, two):
        await bus.subscribe("cotenant.v1.tel.q", handle, queue="workers")
        await bus.bucket(SPECS)
    for i in range(20):
        await sender.publish("cotenant.v1.tel.q", str(i).encode())
    await until(lambda: len(seen) == 20)
    assert sorted(seen) == sorted(str(i).encode() for i in range(20))


@case
async def a_stopped_subscription_hears_nothing(world: World) -> None:
    sender, receiver = await world.connect("a"), await world.connect("b")
    heard: list[bytes] = []
    other: list[bytes] = []

    async def handle(received: Received) -> None:
        heard.append(received.data)

    async def handle_other(received: Received) -> None:
        other.append(received.data)

    subscription = await receiver.subscribe("cotenant.v1.tel.s", handle)
    await receiver.subscribe("cotenant.v1.tel.s", handle_other)
    await receiver.bucket(SPECS)
    await sender.publish("cotenant.v1.tel.s", b"1")
    await until(lambda: len(heard) == len(other) == 1)
    await subscription.stop()
    await sender.publish("cotenant.v1.tel.s", b"2")
    await until(lambda: len(other) == 2)
    assert heard == [b"1"]


@case
async def a_request_is_answered_or_says_why_not(world: World) -> None:
    caller, server = await world.connect("a"), await world.connect("b")

    async def respond(received: Received) -> bytes:
        if received.data == b"bad":
            raise ValueError("cannot do that")
        return received.data + b"!"

    try:
        await caller.request("cotenant.v1.req.test", b"x", timeout_s=2)
    except NoResponderError:
        pass
    else:
        raise AssertionError("expected NoResponderError")
    await server.serve("cotenant.v1.req.test", respond)
    await server.bucket(SPECS)
    assert (await caller.request("cotenant.v1.req.test", b"x", timeout_s=2)).data == b"x!"
    try:
        await caller.request("cotenant.v1.req.test", b"bad", timeout_s=2)
    except RemoteError as error:
        assert "cannot do that" in str(error)  # noqa: PT017 - cases are not bound to pytest
    else:
        raise AssertionError("expected RemoteError")


@case
async def an_oversized_message_is_refused_and_the_connection_lives(world: World) -> None:
    bus = await world.connect("a")
    try:
        await bus.publish("cotenant.v1.tel.big", b"x" * (9 << 20))
    except PayloadTooLargeError:
        pass
    else:
        raise AssertionError("expected PayloadTooLargeError")
    assert await (await bus.bucket(SPECS)).put("k", b"1") >= 1


@case
async def an_event_is_stored_once_per_id(world: World) -> None:
    bus = await world.connect("a")
    subject = "cotenant.v1.evt.pod.bound.default.web"
    first = await bus.publish_event(subject, b"1", event_id="e1", headers={"ce-id": "e1"})
    again = await bus.publish_event(subject, b"1", event_id="e1", headers={"ce-id": "e1"})
    second = await bus.publish_event(subject, b"2", event_id="e2", headers={"ce-id": "e2"})
    assert (first, again) == (second - 1, first)
    assert await bus.last_event_sequence() == second


@case
async def events_of_one_batch_are_stored_in_order(world: World) -> None:
    bus = await world.connect("a")
    subject = "cotenant.v1.evt.pod.bound.default.web"
    first = await bus.publish_event(subject, b"0", event_id="e0", headers={})
    await bus.publish_events([EventMessage(subject, b"%d" % i, f"e{i}", {"n": str(i)}) for i in range(1, 301)])
    assert await bus.last_event_sequence() == first + 300
    seen: list[Received] = []
    async with aclosing(bus.events("cotenant.v1.evt.>", after_sequence=first)) as events:
        while len(seen) < 300:
            seen.append(await anext(events))
    assert [received.data for received in seen] == [b"%d" % i for i in range(1, 301)]
    assert (seen[1].headers["Nats-Msg-Id"], seen[1].headers["n"]) == ("e2", "2")


@case
async def an_event_of_a_batch_that_is_stored_already_is_not_stored_again(world: World) -> None:
    """Refused as a whole, or told apart: the announcer is ready for both."""
    bus = await world.connect("a")
    subject = "cotenant.v1.evt.pod.bound.default.web"
    first = await bus.publish_event(subject, b"1", event_id="e1", headers={})
    try:
        await bus.publish_events([EventMessage(subject, b"2", "e2"), EventMessage(subject, b"1", "e1")])
    except BusError:
        assert await bus.last_event_sequence() == first
    else:
        assert await bus.last_event_sequence() == first + 1


@case
async def events_are_replayed_then_followed(world: World) -> None:
    bus, reader = await world.connect("a"), await world.connect("b")
    subject = "cotenant.v1.evt.pod.bound.default.web"
    sequences = [await bus.publish_event(subject, b"%d" % i, event_id=f"e{i}", headers={"n": "1"}) for i in range(5)]
    seen: list[Received] = []

    async def follow() -> None:
        async with aclosing(reader.events("cotenant.v1.evt.>", after_sequence=sequences[1])) as events:
            async for received in events:
                seen.append(received)

    following = asyncio.create_task(follow(), name="follower")
    await until(lambda: len(seen) == 3)
    last = await bus.publish_event(subject, b"5", event_id="e5", headers={"n": "1"})
    await until(lambda: len(seen) == 4)
    assert [received.sequence for received in seen] == [*sequences[2:], last]
    assert seen[0].headers["Nats-Msg-Id"] == "e2"
    following.cancel()
    await asyncio.wait([following])


@case
async def events_without_a_start_are_only_new_ones(world: World) -> None:
    bus, reader = await world.connect("a"), await world.connect("b")
    subject = "cotenant.v1.evt.node.hot.n1"
    await bus.publish_event(subject, b"old", event_id="old", headers={})
    seen: list[bytes] = []

    async def follow() -> None:
        async with aclosing(reader.events("cotenant.v1.evt.node.>")) as events:
            async for received in events:
                seen.append(received.data)

    following = asyncio.create_task(follow(), name="follower")
    number = 0
    while not seen:
        number += 1
        await bus.publish_event(subject, b"new", event_id=f"new{number}", headers={})
        await asyncio.sleep(0.02)
    assert set(seen) == {b"new"}
    following.cancel()
    await asyncio.wait([following])


@case
async def a_closed_bus_says_so(world: World) -> None:
    bus = await world.connect("a")
    bucket = await bus.bucket(SPECS)
    await bus.close()
    assert not bus.connected
    try:
        await bucket.put("k", b"1")
    except BusClosedError:
        return
    raise AssertionError("expected BusClosedError")
