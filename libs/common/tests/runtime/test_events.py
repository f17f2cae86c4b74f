import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing

import pytest

from cotenant_common.bus.memory_bus import MemoryBus
from cotenant_common.bus.memory_link import Disturbance
from cotenant_common.bus.protocol import Bucket, BusUnavailableError, ConflictError, Entry, EventMessage
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, SPECS
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.subjects import EVENTS_WILDCARD
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.events import Announcer, SeenIds, UnknownEventTypeError, event_id, follow, revision_of
from cotenant_common.testing.bus_cases import until
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.virtual_loop import in_virtual_time


def bound(key: str, revision: int) -> Event:
    return Event(
        id=event_id(BINDINGS, key, revision),
        type="pod.bound",
        at_ms=1,
        source="scheduler",
        object="Pod/default/web",
    )


def derive(entry: Entry) -> Iterable[Event]:
    yield bound(entry.key, entry.revision)


async def stored(bus: MemoryBus) -> list[str]:
    """Ids in the stream, in order."""
    found: list[str] = []
    last = await bus.last_event_sequence()
    async with aclosing(bus.events(EVENTS_WILDCARD, after_sequence=0)) as events:
        while len(found) < last:
            found.append(codec.decode(Event, (await anext(events)).data).id)
    return found


async def announcer(bus: MemoryBus) -> tuple[Announcer, Bucket]:
    bucket = await bus.bucket(BINDINGS)
    return Announcer(bus, bucket, "scheduler", LoopClock()), bucket


def test_an_id_names_bucket_key_and_revision() -> None:
    assert event_id(BINDINGS, "u1.n1", 7) == "bindings/u1.n1/7"
    assert event_id(BINDINGS, "a/b", 7, "preempted") == "bindings/a/b/7/preempted"
    assert revision_of("bindings/u1.n1/7", BINDINGS) == 7
    assert revision_of("bindings/a/b/7/preempted", BINDINGS) == 7
    assert revision_of("bindings/u1.n1/7", SPECS) is None
    assert revision_of("something else", BINDINGS) is None


@in_virtual_time
async def test_events_are_stored_in_order_once_each_as_cloud_events() -> None:
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    for revision in range(1, 6):
        await announce.announce(bound("u1.n1", revision))
        await announce.announce(bound("u1.n1", revision))
    assert await announce.flush()
    assert await stored(bus) == [f"bindings/u1.n1/{revision}" for revision in range(1, 6)]
    async with aclosing(bus.events(EVENTS_WILDCARD, after_sequence=0)) as events:
        first = await anext(events)
    assert first.subject == "cotenant.v1.evt.pod.bound.default.web"
    assert first.headers["ce-type"] == "pod.bound"
    assert first.headers["ce-id"] == first.headers["Nats-Msg-Id"] == "bindings/u1.n1/1"


@in_virtual_time
async def test_an_outage_delays_events_and_loses_none() -> None:
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    bus.partition()
    for revision in range(1, 21):
        await announce.announce(bound("u1.n1", revision))
    assert not await announce.flush(1)
    await asyncio.sleep(300)
    bus.heal()
    assert await announce.flush(10)
    assert await stored(bus) == [f"bindings/u1.n1/{revision}" for revision in range(1, 21)]


@in_virtual_time
async def test_a_full_buffer_makes_the_announcer_wait_not_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_common.runtime.events._BUFFER", 3)
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    bus.partition()
    for revision in range(1, 4):
        await announce.announce(bound("u1.n1", revision))
    waiting = asyncio.create_task(announce.announce(bound("u1.n1", 4)))
    await asyncio.sleep(10)
    assert not waiting.done()
    bus.heal()
    await waiting
    assert await announce.flush()
    assert len(await stored(bus)) == 4


@in_virtual_time
async def test_what_a_crash_left_untold_is_told_at_the_next_start() -> None:
    server = memory_server()
    crashed = server.connect("scheduler")
    announce, bucket = await announcer(crashed)
    for i in range(3):
        revision = await bucket.put(f"u{i}.n1", b"x")
        await announce.announce(bound(f"u{i}.n1", revision))
    assert await announce.flush()
    for i in range(3, 5):
        await bucket.put(f"u{i}.n1", b"x")
    crashed.cut()
    bus = server.connect("scheduler")
    again, _ = await announcer(bus)
    assert await again.catch_up(derive) == 2
    assert await again.flush()
    assert [identifier.split("/")[1] for identifier in await stored(bus)] == [f"u{i}.n1" for i in range(5)]
    assert await again.catch_up(derive) == 0


@in_virtual_time
async def test_a_crash_between_telling_and_marking_repeats_but_the_stream_keeps_one() -> None:
    server = memory_server()
    crashed = server.connect("scheduler")
    announce, bucket = await announcer(crashed)
    revision = await bucket.put("u1.n1", b"x")
    await announce.announce(bound("u1.n1", revision))
    await until(lambda: announce.pending == 0)
    crashed.cut()
    bus = server.connect("scheduler")
    again, _ = await announcer(bus)
    await again.catch_up(derive)
    await again.flush()
    assert await stored(bus) == [f"bindings/u1.n1/{revision}"]


@in_virtual_time
async def test_the_sender_of_a_crashed_service_ends() -> None:
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    bus.partition()
    await announce.announce(bound("u1.n1", 1))
    await asyncio.sleep(1)
    bus.cut()
    await asyncio.sleep(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_closing_is_bounded_when_the_bus_is_away() -> None:
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    bus.partition()
    await announce.announce(bound("u1.n1", 1))
    assert not await announce.close(2)
    assert asyncio.get_running_loop().time() <= 2.1
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_marks_are_written_seldom() -> None:
    bus = memory_server().connect("scheduler")
    announce, bucket = await announcer(bus)
    for revision in range(1, 101):
        await announce.announce(bound("u1.n1", revision))
        await asyncio.sleep(0.1)
    assert await bucket.last_revision() <= 4


@in_virtual_time
async def test_a_mark_from_a_lost_store_is_not_believed() -> None:
    server = memory_server()
    announce, bucket = await announcer(server.connect("scheduler"))
    await bucket.put("announced.scheduler", codec.pack(1_000_000))
    await bucket.put("u1.n1", b"x")
    assert await announce.catch_up(derive) == 1


@in_virtual_time
async def test_a_type_outside_the_closed_set_fails_at_the_publisher() -> None:
    announce, _ = await announcer(memory_server().connect("scheduler"))
    with pytest.raises(UnknownEventTypeError):
        await announce.announce(bound("u1.n1", 1).model_copy(update={"type": "pod.bounded"}))


@in_virtual_time
async def test_followers_see_duplicates_of_an_unkind_network_under_one_id() -> None:
    server = memory_server()
    bus, reader = server.connect("scheduler"), server.connect("gateway")
    reader.disturb(Disturbance(duplicate=True))
    announce, _ = await announcer(bus)
    await announce.announce(bound("u1.n1", 1))
    await announce.flush()
    async with aclosing(reader.events(EVENTS_WILDCARD, after_sequence=0)) as events:
        first, second = await anext(events), await anext(events)
    assert first.headers["ce-id"] == second.headers["ce-id"]


def test_a_repeated_id_is_seen_and_the_oldest_are_forgotten() -> None:
    seen = SeenIds(keep=2)
    assert [seen.first_time(name) for name in ("a", "a", "b", "c", "a")] == [True, False, True, True, True]


@in_virtual_time
async def test_followers_get_each_event_once_and_skip_what_nobody_can_read() -> None:
    server = memory_server()
    bus, reader = server.connect("scheduler"), server.connect("gateway")
    reader.disturb(Disturbance(duplicate=True))
    await bus.publish_event("cotenant.v1.evt.pod.bound.default.web", b"\xc1", event_id="bad", headers={})
    announce, _ = await announcer(bus)
    for revision in (1, 2):
        await announce.announce(bound("u1.n1", revision))
    await announce.flush()
    async with aclosing(follow(reader, after_sequence=0)) as events:
        found = [await anext(events), await anext(events)]
    assert [(sequence, event.id) for sequence, event in found] == [(2, "bindings/u1.n1/1"), (3, "bindings/u1.n1/2")]


@in_virtual_time
async def test_one_event_that_is_stored_already_holds_up_none_behind_it() -> None:
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    sent: list[int] = []
    store = bus.publish_events

    async def refuse_what_is_known(events: Sequence[EventMessage]) -> None:
        sent.append(len(events))
        if any(event.event_id == "bindings/u1.n1/30" for event in events):
            raise ConflictError("a message of the batch is a duplicate")
        await store(events)

    bus.publish_events = refuse_what_is_known  # type: ignore[method-assign]
    for revision in range(1, 101):
        await announce.announce(bound("u1.n1", revision))
    assert await announce.flush()
    assert await stored(bus) == [f"bindings/u1.n1/{revision}" for revision in range(1, 101)]
    assert sent[0] == 2
    assert len(sent) < 40
    assert sum(sent) < 200, "what stands in the way is closed in on by small batches"


@in_virtual_time
async def test_a_batch_without_an_answer_is_told_again_in_order() -> None:
    bus = memory_server().connect("scheduler")
    announce, _ = await announcer(bus)
    store, answers = bus.publish_events, iter([False, True, False])

    async def answer_is_lost(events: Sequence[EventMessage]) -> None:
        await store(events)
        if not next(answers, True):
            raise BusUnavailableError("no answer")

    bus.publish_events = answer_is_lost  # type: ignore[method-assign]
    for revision in range(1, 51):
        await announce.announce(bound("u1.n1", revision))
    assert await announce.flush()
    assert await stored(bus) == [f"bindings/u1.n1/{revision}" for revision in range(1, 51)]
