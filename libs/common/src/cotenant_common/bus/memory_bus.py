"""The bus inside one process, for tests and simulation: the promises of the real one, no thread, no chance.

``MemoryServer`` holds the streams; each service gets a handle of its own that can be cut, parted or disturbed.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cotenant_common.bus.matching import compile_pattern, republish_mapping
from cotenant_common.bus.memory_link import CALM, Disturbance, Inbox, Link, LinkState
from cotenant_common.bus.memory_store import MAX_PAYLOAD, BucketStore, EventStore
from cotenant_common.bus.protocol import (
    BusClosedError,
    BusUnavailableError,
    Delete,
    Entry,
    EventMessage,
    Handler,
    NoResponderError,
    PayloadTooLargeError,
    Put,
    Received,
    RemoteError,
    Responder,
    SnapshotDone,
    StoreReset,
    WatchItem,
)
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import EVENTS_STREAM, BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.telemetry.logging import get_logger

OPERATION_TIMEOUT_S: Final = 5.0
_ROUTES_KEPT: Final = 20_000
_log = get_logger("bus")


class HasWallTime(Protocol):
    def now_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Envelope:
    received: Received
    reply_to: asyncio.Future[bytes] | None = None


class _Shared(Received):
    """A message that never left the process. Its bytes are made only for who asks, and almost nobody does."""

    __slots__ = ("_message",)

    def __init__(self, subject: str, message: Message, headers: Mapping[str, str]) -> None:
        for name, value in (("subject", subject), ("headers", headers), ("sequence", None), ("_message", message)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "decoded", {type(message): message})

    @property
    def data(self) -> bytes:
        message: Message = self._message  # type: ignore[attr-defined]
        return codec.encode(message)


class MemoryServer:
    def __init__(self, clock: HasWallTime) -> None:
        self.running = True
        self._stores: dict[str, BucketStore] = {}
        self._events = EventStore(EVENTS_STREAM, clock.now_ms)
        self._subscriptions: dict[int, MemorySubscription] = {}
        self._routes: dict[str, tuple[MemorySubscription, ...]] = {}
        self._turns: dict[tuple[str, str], int] = {}
        self._handles: list[MemoryBus] = []
        self._serial = 0

    def connect(self, name: str) -> "MemoryBus":
        handle = MemoryBus(self, name)
        self._handles.append(handle)
        if not self.running:
            handle.partition()
        return handle

    def stop(self) -> None:
        """The server is away: every handle is parted from it. State stays, as on a disk."""
        self.running = False
        for handle in self._handles:
            handle.partition()

    def start(self) -> None:
        self.running = True
        for handle in self._handles:
            handle.heal()

    def lose_bucket(self, spec: BucketSpec) -> None:
        """The store was lost and made anew; every watcher is told."""
        store = self.store(spec)
        store.reset()
        for handle in self._handles:
            handle.tell_of_reset(spec)

    def store(self, spec: BucketSpec) -> BucketStore:
        """The bucket's stream; also how a test looks into it."""
        if (store := self._stores.get(spec.name)) is None:
            store = self._stores[spec.name] = BucketStore(spec, _LoopTimers())
            if spec.republish is not None:
                mapped = republish_mapping(*spec.republish)
                store.listeners.append(lambda entry: self._republish(spec, mapped, entry))
        return store

    @property
    def events(self) -> EventStore:
        return self._events

    def store_event(self, event: EventMessage) -> int:
        carried = {**event.headers, "Nats-Msg-Id": event.event_id}
        self.route(Received(event.subject, event.data, carried))
        return self._events.append(event.subject, event.data, event.event_id, carried)

    def _republish(self, spec: BucketSpec, mapped: Callable[[str], str | None], entry: Entry) -> None:
        if (subject := mapped(entry.key)) is None:
            return
        headers = {
            "Nats-Stream": spec.stream,
            "Nats-Subject": f"$KV.{spec.bucket}.{entry.key}",
            "Nats-Sequence": str(entry.revision),
        }
        if entry.value is None:
            headers["KV-Operation"] = "PURGE"
        self.route(Received(subject, entry.value or b"", headers, entry.revision))

    def route(self, received: Received, reply_to: asyncio.Future[bytes] | None = None) -> bool:
        """Hand a core message to everyone who listens, one of each queue group; False when nobody does."""
        envelope = _Envelope(received, reply_to)
        found = False
        grouped: dict[str, list[MemorySubscription]] = {}
        for subscription in self._listening(received.subject):
            found = True
            if subscription.queue is None:
                subscription.inbox.put(envelope)
            else:
                grouped.setdefault(subscription.queue, []).append(subscription)
        for queue, members in grouped.items():
            turn = self._turns.get((received.subject, queue), 0)
            self._turns[received.subject, queue] = turn + 1
            members[turn % len(members)].inbox.put(envelope)
        return found

    def _listening(self, subject: str) -> "tuple[MemorySubscription, ...]":
        if (known := self._routes.get(subject)) is None:
            if len(self._routes) > _ROUTES_KEPT:
                self._routes.clear()
            known = tuple(one for one in self._subscriptions.values() if one.matches(subject))
            self._routes[subject] = known
        return known

    def add_subscription(self, subscription: "MemorySubscription") -> int:
        self._serial += 1
        self._subscriptions[self._serial] = subscription
        self._routes.clear()
        return self._serial

    def remove_subscription(self, serial: int) -> None:
        self._subscriptions.pop(serial, None)
        self._routes.clear()

    def forget(self, handle: "MemoryBus") -> None:
        if handle in self._handles:
            self._handles.remove(handle)


class _LoopTimers:
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_at(when_s, callback)


class MemorySubscription:
    def __init__(self, bus: "MemoryBus", subject: str, queue: str | None, call: Callable[[_Envelope], Awaitable[None]]):
        self.matches = compile_pattern(subject)
        self.queue = queue
        self.inbox: Inbox[_Envelope] = Inbox(bus.link, durable=False, ordered=False)
        self._bus = bus
        self._call = call
        self._serial = bus.server.add_subscription(self)
        self._stopped = False
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"{bus.name} reads {subject}")

    async def stop(self) -> None:
        self.end()
        if not self._pump.done() and asyncio.current_task() is not self._pump:
            await asyncio.wait([self._pump])

    def end(self) -> None:
        """Leave the server's lists; a handler that runs is interrupted at its next await."""
        self._stopped = True
        self._bus.server.remove_subscription(self._serial)
        self._bus.drop_subscription(self)
        self.inbox.close()
        if not self._pump.done() and _current_task() is not self._pump:
            self._pump.cancel()

    async def _run(self) -> None:
        while not self._stopped:
            try:
                envelope = await self.inbox.get()
            except BusClosedError:
                return
            await self._call(envelope)


def _current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class MemoryBus:
    """One service's connection. Raises BusClosedError once it is cut."""

    def __init__(self, server: MemoryServer, name: str) -> None:
        self.server = server
        self.link = Link()
        self.handler_errors = 0
        self._name = name
        self._subscriptions: list[MemorySubscription] = []
        self._watches: list[tuple[str, Inbox[WatchItem]]] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def connected(self) -> bool:
        return self.link.up

    def cut(self) -> None:
        """The service crashed: from this instant nothing more goes in or out."""
        self.link.change(LinkState.CUT)
        for subscription in tuple(self._subscriptions):
            subscription.end()
        self.server.forget(self)

    def partition(self) -> None:
        self.link.change(LinkState.PARTITIONED)

    def pause(self) -> None:
        self.link.change(LinkState.PAUSED)

    def heal(self) -> None:
        """Undo ``partition`` and ``pause``."""
        self.link.change(LinkState.UP)

    def disturb(self, disturbance: Disturbance) -> None:
        self.link.disturbance = CALM if disturbance == CALM else disturbance

    async def close(self) -> None:
        running = [subscription.stop() for subscription in tuple(self._subscriptions)]
        self.cut()
        for stop in running:
            await stop

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        _check_size(subject, data)
        if self.link.up:
            self.server.route(Received(subject, data, dict(headers or {})))
        elif self.link.state is LinkState.PAUSED:
            await self.link.passage(OPERATION_TIMEOUT_S)
            self.server.route(Received(subject, data, dict(headers or {})))

    async def publish_message(self, subject: str, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self.link.up:
            self.server.route(_Shared(subject, message, headers or {}))
        else:
            await self.publish(subject, codec.encode(message), headers)

    async def publish_event(self, subject: str, data: bytes, *, event_id: str, headers: Mapping[str, str]) -> int:
        _check_size(subject, data)
        await self.link.passage(OPERATION_TIMEOUT_S)
        return self.server.store_event(EventMessage(subject, data, event_id, headers))

    async def publish_events(self, events: Sequence[EventMessage]) -> None:
        for event in events:
            _check_size(event.subject, event.data)
        await self.link.passage(OPERATION_TIMEOUT_S)
        for event in events:
            self.server.store_event(event)

    async def subscribe(self, subject: str, handler: Handler, *, queue: str | None = None) -> MemorySubscription:
        async def call(envelope: _Envelope) -> None:
            try:
                await handler(envelope.received)
            except Exception:  # noqa: BLE001 - one bad message must not end the subscription
                self.handler_errors += 1
                _log.exception("handler_failed", service=self._name, subject=envelope.received.subject)

        return self._subscribe(subject, queue, call)

    async def serve(self, subject: str, responder: Responder, *, queue: str | None = None) -> MemorySubscription:
        async def call(envelope: _Envelope) -> None:
            answer: bytes | RemoteError
            try:
                answer = await responder(envelope.received)
            except Exception as error:  # noqa: BLE001 - the caller is told
                self.handler_errors += 1
                _log.exception("responder_failed", service=self._name, subject=envelope.received.subject)
                answer = RemoteError(str(error) or type(error).__name__)
            _answer(self.link, envelope.reply_to, answer)

        return self._subscribe(subject, queue, call)

    def _subscribe(
        self, subject: str, queue: str | None, call: Callable[[_Envelope], Awaitable[None]]
    ) -> MemorySubscription:
        if self.link.cut:
            raise BusClosedError("this connection was closed")
        subscription = MemorySubscription(self, subject, queue, call)
        self._subscriptions.append(subscription)
        return subscription

    def drop_subscription(self, subscription: MemorySubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Received:
        _check_size(subject, data)
        await self.link.passage(timeout_s)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.server.route(Received(subject, data, dict(headers or {})), reply):
            raise NoResponderError(f"nobody serves {subject!r}")
        try:
            async with asyncio.timeout(timeout_s):
                answer = await reply
        except TimeoutError:
            raise BusUnavailableError(f"no answer to {subject!r} within {timeout_s:g} s") from None
        # The answer crosses the caller's link too: a partition that began meanwhile loses it.
        await self.link.passage(timeout_s)
        return Received(subject, answer)

    async def bucket(self, spec: BucketSpec) -> "MemoryBucket":
        await self.link.passage(OPERATION_TIMEOUT_S)
        return MemoryBucket(self, spec)

    async def events(
        self, subject: str, *, after_sequence: int | None = None, since_ms: int | None = None
    ) -> AsyncGenerator[Received, None]:
        matches = compile_pattern(subject)
        inbox: Inbox[Received] = Inbox(self.link, durable=True, ordered=False)

        def listen(received: Received) -> None:
            if matches(received.subject):
                inbox.put(received)

        store = self.server.events
        backlog = list(store.replay(after_sequence=after_sequence, since_ms=since_ms))
        store.listeners.append(listen)
        try:
            for received in backlog:
                listen(received)
            while True:
                yield await inbox.get()
        finally:
            store.listeners.remove(listen)
            inbox.close()

    async def last_event_sequence(self) -> int:
        await self.link.passage(OPERATION_TIMEOUT_S)
        return self.server.events.last_sequence

    async def wait_failed(self) -> str:
        """Never: a cut handle belongs to a service that has crashed already."""
        await asyncio.Event().wait()
        return ""

    async def wait_reconnected(self) -> None:
        await self.link.wait_reconnected()

    def add_watch(self, spec: BucketSpec) -> Inbox[WatchItem]:
        inbox: Inbox[WatchItem] = Inbox(self.link, durable=True, ordered=True)
        self._watches.append((spec.name, inbox))
        return inbox

    def drop_watch(self, inbox: Inbox[WatchItem]) -> None:
        self._watches = [(name, one) for name, one in self._watches if one is not inbox]
        inbox.close()

    def tell_of_reset(self, spec: BucketSpec) -> None:
        for name, inbox in self._watches:
            if name == spec.name:
                inbox.put(StoreReset())
                inbox.put(SnapshotDone(0))


def _answer(link: Link, reply_to: "asyncio.Future[bytes] | None", answer: bytes | RemoteError) -> None:
    if reply_to is None or reply_to.done() or not link.up:
        return
    if isinstance(answer, RemoteError):
        reply_to.set_exception(answer)
    else:
        reply_to.set_result(answer)


def _check_size(subject: str, data: bytes) -> None:
    if len(data) > MAX_PAYLOAD:
        raise PayloadTooLargeError(f"expected at most {MAX_PAYLOAD} bytes on {subject!r}, got {len(data)}")


class MemoryBucket:
    def __init__(self, bus: MemoryBus, spec: BucketSpec) -> None:
        self.spec = spec
        self._bus = bus
        self._store = bus.server.store(spec)

    async def get(self, key: str) -> Entry | None:
        await self._bus.link.passage(OPERATION_TIMEOUT_S)
        return self._store.get(key)

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        return await self.batch([Put(key, value, ttl_s=ttl_s)])

    async def create(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        return await self.batch([Put(key, value, expect=0, ttl_s=ttl_s)])

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None) -> int:
        return await self.batch([Put(key, value, expect=revision, ttl_s=ttl_s)])

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        await self._bus.link.passage(OPERATION_TIMEOUT_S)
        if revision is None and self._store.get(key) is None:
            return
        self._store.apply([Delete(key, expect=revision)])

    async def batch(self, operations: Sequence[Put | Delete]) -> int:
        await self._bus.link.passage(OPERATION_TIMEOUT_S)
        return self._store.apply(operations)

    async def keys(self, pattern: str = ">") -> list[str]:
        await self._bus.link.passage(OPERATION_TIMEOUT_S)
        return sorted(entry.key for entry in self._store.live(pattern))

    async def watch(self, pattern: str = ">") -> AsyncGenerator[WatchItem, None]:
        inbox = self._bus.add_watch(self.spec)
        listen = inbox.put  # one object: each look at a method is another
        for entry in self._store.live(pattern):
            inbox.put(entry)
        inbox.put(SnapshotDone(self._store.revision))
        self._store.watch(pattern, listen)
        try:
            while True:
                yield await inbox.get()
        finally:
            self._store.unwatch(listen)
            self._bus.drop_watch(inbox)

    async def last_revision(self) -> int:
        await self._bus.link.passage(OPERATION_TIMEOUT_S)
        return self._store.revision
