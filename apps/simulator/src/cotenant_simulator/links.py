"""A connection that can be told to keep telemetry to itself."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

from cotenant_common.bus.memory_bus import MemoryBucket, MemoryBus
from cotenant_common.bus.protocol import EventMessage, Handler, Received, Responder, Subscription
from cotenant_common.contracts.buckets import BucketSpec
from cotenant_common.contracts.messages.base import Message

_TELEMETRY: Final = "cotenant.v1.tel."


class MutableBus:
    """While ``silent``, heartbeats and state still pass: the node stays Ready, and nobody knows how it does."""

    def __init__(self, inner: MemoryBus) -> None:
        self.inner = inner
        self.silent = False

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def connected(self) -> bool:
        return self.inner.connected

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        if not (self.silent and subject.startswith(_TELEMETRY)):
            await self.inner.publish(subject, data, headers)

    async def publish_message(self, subject: str, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if not (self.silent and subject.startswith(_TELEMETRY)):
            await self.inner.publish_message(subject, message, headers)

    async def publish_event(self, subject: str, data: bytes, *, event_id: str, headers: Mapping[str, str]) -> int:
        return await self.inner.publish_event(subject, data, event_id=event_id, headers=headers)

    async def publish_events(self, events: Sequence[EventMessage]) -> None:
        await self.inner.publish_events(events)

    async def subscribe(self, subject: str, handler: Handler, *, queue: str | None = None) -> Subscription:
        return await self.inner.subscribe(subject, handler, queue=queue)

    async def serve(self, subject: str, responder: Responder, *, queue: str | None = None) -> Subscription:
        return await self.inner.serve(subject, responder, queue=queue)

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Received:
        return await self.inner.request(subject, data, timeout_s=timeout_s, headers=headers)

    async def bucket(self, spec: BucketSpec) -> MemoryBucket:
        return await self.inner.bucket(spec)

    def events(
        self, subject: str, *, after_sequence: int | None = None, since_ms: int | None = None
    ) -> AsyncGenerator[Received, None]:
        return self.inner.events(subject, after_sequence=after_sequence, since_ms=since_ms)

    async def last_event_sequence(self) -> int:
        return await self.inner.last_event_sequence()

    async def wait_failed(self) -> str:
        return await self.inner.wait_failed()

    async def wait_reconnected(self) -> None:
        await self.inner.wait_reconnected()

    async def close(self) -> None:
        await self.inner.close()
