"""Facts leave a service in order and at least once, and can be told again after a crash.

An event's id names the state write it tells of. The stream drops a repeated id within its window, consumers drop it
after that. ``announced.<service>`` in the bucket says up to which revision everything has been told.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from typing import Final

from cotenant_common.bus.protocol import (
    Bucket,
    Bus,
    BusClosedError,
    BusError,
    BusUnavailableError,
    Entry,
    EventMessage,
    SnapshotDone,
)
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BucketSpec, is_bookkeeping
from cotenant_common.contracts.messages.events import EVENT_TYPES, Event
from cotenant_common.contracts.subjects import EVENTS_WILDCARD, event_subject
from cotenant_common.runtime.clock import Clock
from cotenant_common.runtime.requests import bury
from cotenant_common.telemetry import tracing
from cotenant_common.telemetry.logging import get_logger

_BUFFER: Final = 10_000
_TOGETHER: Final = 200
"""In one batch: an answer each before the next goes out would hold a burst of bindings up for its events."""
_MARK_EVERY_S: Final = 5.0
_BACK_OFF_S: Final = (0.25, 0.5, 1.0, 2.0)
_log = get_logger("events")


class UnknownEventTypeError(ValueError):
    """The type is not in ``EVENT_TYPES``."""


def event_id(bucket: BucketSpec, key: str, revision: int, suffix: str = "") -> str:
    """``bindings/<key>/<revision>``; the suffix tells several events of one write apart."""
    return f"{bucket.name}/{key}/{revision}" + (f"/{suffix}" if suffix else "")


def revision_of(identifier: str, bucket: BucketSpec) -> int | None:
    """The revision inside an id made by ``event_id`` for this bucket; None for any other id."""
    parts = identifier.split("/")
    if parts[0] != bucket.name:
        return None
    return next((int(part) for part in reversed(parts[2:]) if part.isdecimal()), None)


def event_headers(event: Event) -> dict[str, str]:
    """CloudEvents 1.0 attributes, and the current trace."""
    return tracing.outgoing(
        {
            "ce-specversion": "1.0",
            "ce-id": event.id,
            "ce-type": event.type,
            "ce-source": event.source,
            "ce-subject": event.object,
            "ce-time": str(event.at_ms),
            "content-type": "application/msgpack",
        }
    )


def _outgoing(event: Event) -> EventMessage:
    return EventMessage(event_subject(event.type, event.object), codec.encode(event), event.id, event_headers(event))


class SeenIds:
    """The ids of the newest events, so that a repetition changes nothing. The stream forgets ids after two minutes."""

    def __init__(self, keep: int = 10_000) -> None:
        self._keep = keep
        self._ids: dict[str, None] = {}

    def first_time(self, identifier: str) -> bool:
        if identifier in self._ids:
            return False
        self._ids[identifier] = None
        if len(self._ids) > self._keep:
            del self._ids[next(iter(self._ids))]
        return True


async def follow(
    bus: Bus, subject: str = EVENTS_WILDCARD, *, after_sequence: int | None = None, since_ms: int | None = None
) -> AsyncGenerator[tuple[int, Event], None]:
    """Events with their stream sequence: each id once, what cannot be read is buried and skipped."""
    seen = SeenIds()
    async with aclosing(bus.events(subject, after_sequence=after_sequence, since_ms=since_ms)) as messages:
        async for received in messages:
            try:
                event = codec.decode(Event, received.data)
            except codec.DecodeError as error:
                await bury(bus, received, error)
                continue
            if seen.first_time(event.id):
                yield received.sequence or 0, event


class Announcer:
    """One per service and bucket. ``announce`` returns once the event is queued; the sender retries until it is stored.

    The sender is a task only while there is something to send, so an idle service owns nothing that must be ended.
    """

    def __init__(self, bus: Bus, bucket: Bucket, service: str, clock: Clock) -> None:
        self._bus = bus
        self._bucket = bucket
        self._service = service
        self._clock = clock
        self._queue: deque[Event] = deque()
        self._changed = asyncio.Condition()
        self._sender: asyncio.Task[None] | None = None
        self._told = 0
        self._marked = 0
        self._marked_at = float("-inf")

    @property
    def _mark_key(self) -> str:
        return f"announced.{self._service}"

    @property
    def pending(self) -> int:
        return len(self._queue)

    async def announce(self, event: Event) -> None:
        """Queue an event; waits only when 10,000 are waiting already. Raise UnknownEventTypeError."""
        if event.type not in EVENT_TYPES:
            raise UnknownEventTypeError(f"expected one of EVENT_TYPES, got {event.type!r}")
        while len(self._queue) >= _BUFFER:
            async with self._changed:
                await self._changed.wait()
        self._queue.append(event)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), name=f"{self._service} announces")

    async def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything queued is stored, then note it; False when time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._queue:
                    async with self._changed:
                        await self._changed.wait()
                await self._mark()
        except (TimeoutError, BusError):
            return False
        return True

    async def close(self, timeout_s: float = 2.0) -> bool:
        """Flush, then end the sender whatever happened."""
        done = await self.flush(timeout_s)
        if self._sender is not None and not self._sender.done():
            self._sender.cancel()
            await asyncio.wait([self._sender])
        return done

    async def catch_up(self, derive: Callable[[Entry], Iterable[Event]], pattern: str = ">") -> int:
        """Tell again what may not have been told before a crash; return how many events that were."""
        told = await self._read_mark()
        count = 0
        async with aclosing(self._bucket.watch(pattern)) as items:
            async for item in items:
                if isinstance(item, SnapshotDone):
                    break
                if isinstance(item, Entry) and item.revision > told and not is_bookkeeping(item.key):
                    for event in derive(item):
                        await self.announce(event)
                        count += 1
        return count

    async def _read_mark(self) -> int:
        entry = await self._bucket.get(self._mark_key)
        revision = codec.unpack(entry.value) if entry is not None and entry.value else 0
        last = await self._bucket.last_revision()
        # A mark above the bucket's own last revision comes from a store that was lost since.
        self._told = self._marked = revision if isinstance(revision, int) and revision <= last else 0
        return self._told

    async def _send_all(self) -> None:
        together = 1
        while self._queue:
            events = list(islice(self._queue, together))
            sent = await self._send_some(events)
            if sent is None:
                return
            # From one alone upwards: a bus that is away, or an event that stands in the way, costs few messages.
            together = min(2 * together, _TOGETHER) if sent == len(events) else 1
            for _ in range(sent):
                self._told = max(self._told, revision_of(self._queue.popleft().id, self._bucket.spec) or 0)
            async with self._changed:
                self._changed.notify_all()
            # Inside the loop: what is announced while the mark is being written must not wait for a next event.
            if not self._queue and self._clock.monotonic() - self._marked_at >= _MARK_EVERY_S:
                with suppress(BusError):
                    await self._mark()

    async def _send_some(self, events: Sequence[Event]) -> int | None:
        """How many of the first are stored, at least one; None when there is no way to the bus any more."""
        if len(events) > 1:
            try:
                await self._bus.publish_events([_outgoing(event) for event in events])
            except BusUnavailableError:
                pass
            except BusError as error:
                _log.info("events_sent_singly", service=self._service, events=len(events), error=str(error))
            else:
                return len(events)
        # No answer, or one of them stands in the way of all: it is stored already, or too large.
        return await self._insist(events[0])

    async def _insist(self, event: Event) -> int | None:
        attempt = 0
        while True:
            try:
                await self._send(event)
            except BusClosedError:
                return None
            except BusUnavailableError as error:
                pause_s = _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)]
                _log.warning("event_delayed", service=self._service, id=event.id, attempt=attempt, error=str(error))
                attempt += 1
                await asyncio.sleep(pause_s)
            else:
                return 1

    async def _send(self, event: Event) -> None:
        """Raise BusUnavailableError."""
        out = _outgoing(event)
        try:
            await self._bus.publish_event(out.subject, out.data, event_id=out.event_id, headers=out.headers)
        except BusUnavailableError:
            raise
        except BusError:
            # Permanent, such as an event over the size limit: it must not block those behind it.
            _log.exception("event_dropped", service=self._service, id=event.id, bytes=len(out.data))

    async def _mark(self) -> None:
        if self._told > self._marked:
            await self._bucket.put(self._mark_key, codec.pack(self._told))
            self._marked = self._told
        self._marked_at = self._clock.monotonic()
