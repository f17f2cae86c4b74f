"""What a service may ask of a bus. ``nats_bus`` and ``memory_bus`` keep the same promises; one set of tests holds both.

Handlers run one at a time per subscription and in order. An exception in a handler is logged and counted; it never
ends the subscription.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from cotenant_common.contracts.buckets import BucketSpec
from cotenant_common.contracts.messages.base import Message


class BusError(Exception):
    """Base of everything a bus raises."""


class PermissionDeniedError(BusError):
    """Permanent: the server's permissions forbid this subject."""


class AccessDeniedError(BusError):
    """The server does not let this user in, or shows a certificate that nobody vouches for."""


class BusUnavailableError(BusError):
    """Temporary: not connected, or no answer in time. Try again."""


class NoResponderError(BusUnavailableError):
    """A request found nobody who serves its subject."""


class BusClosedError(BusUnavailableError):
    """This handle was closed or cut: nothing goes in or out any more. Not worth a retry."""


class RemoteError(BusError):
    """The service that answered a request failed; the text is its own."""


class ConflictError(BusError):
    """Permanent for this attempt: an expectation (revision, absence, lease) did not hold. Nothing was written.

    ``actual`` is the revision that stood there, when the server told it.
    """

    def __init__(self, message: str, *, actual: int | None = None) -> None:
        super().__init__(message)
        self.actual = actual


class PayloadTooLargeError(BusError):
    """Permanent: the server refuses messages over its ``max_payload`` (1 MiB by default; ours are set to 8 MiB)."""


@dataclass(frozen=True, slots=True)
class Received:
    """One message as it came off the wire."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    sequence: int | None = None
    """Stream sequence, for messages of a stream or republished from one."""
    decoded: dict[type, Any] = field(default_factory=dict, compare=False, repr=False)
    """What readers made of ``data``, by model: inside one process several of them get this very object."""


class Op(StrEnum):
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Entry:
    """One revision of one key. ``value`` is None for a deletion, a purge and an expiry alike."""

    key: str
    value: bytes | None
    revision: int
    op: Op = Op.PUT
    decoded: dict[type, Any] = field(default_factory=dict, compare=False, repr=False)
    """What readers made of ``value``, by model, as in ``Received``."""


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    """All that stood in the bucket when the watch began has been delivered; ``revision`` is its last sequence."""

    revision: int


@dataclass(frozen=True, slots=True)
class StoreReset:
    """The bucket was created anew: a new world. A fresh snapshot follows; absence from it is *not* deletion."""


WatchItem = Entry | SnapshotDone | StoreReset


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key in a batch. ``expect`` is the revision the key must be at; None: whatever it is.

    Zero means that no live value exists: a deleted or expired key counts as absent.
    ``expect_filter`` expects the last revision under a wildcard such as ``uid.*`` instead of the key's.
    """

    key: str
    value: bytes
    expect: int | None = None
    expect_filter: str | None = None
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    key: str
    expect: int | None = None
    expect_filter: str | None = None


@dataclass(frozen=True, slots=True)
class EventMessage:
    """An event as it goes into the events stream."""

    subject: str
    data: bytes
    event_id: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Bucket(Protocol):
    """A key-value bucket. ``ttl_s`` is in whole seconds, at least 1."""

    spec: BucketSpec

    async def get(self, key: str) -> Entry | None:
        """The live value, or None. Raise BusUnavailableError."""
        ...

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        """Write whatever was there; return the revision."""
        ...

    async def create(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        """Write only if no live value exists; one's own lost write counts as success. Raise ConflictError."""
        ...

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None) -> int:
        """Write only if the key is at ``revision``. Raise ConflictError."""
        ...

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete; a missing key is no error. Raise ConflictError when ``revision`` is given and stale."""
        ...

    async def batch(self, operations: Sequence[Put | Delete]) -> int:
        """All or nothing, at most 1,000 operations; return the last revision. Raise ConflictError."""
        ...

    async def keys(self, pattern: str = ">") -> list[str]:
        """Live keys that match, sorted."""
        ...

    def watch(self, pattern: str = ">") -> AsyncGenerator[WatchItem, None]:
        """Current values, SnapshotDone, then changes, for ever. Survives reconnects; tells of a lost store."""
        ...

    async def last_revision(self) -> int:
        """Sequence of the newest write in the bucket."""
        ...


Handler = Callable[[Received], Awaitable[None]]
Responder = Callable[[Received], Awaitable[bytes]]


class Subscription(Protocol):
    async def stop(self) -> None:
        """No handler call begins after this returns."""
        ...


class Bus(Protocol):
    """One connection. Cutting it (``close``) must leave nothing running."""

    @property
    def name(self) -> str:
        """The service that holds this connection."""
        ...

    @property
    def connected(self) -> bool: ...

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Fire and forget. Raise PayloadTooLargeError; a cut connection buffers, then drops."""
        ...

    async def publish_message(self, subject: str, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """As ``publish``. Readers in the same process may get this very object, so nobody changes what is in it."""
        ...

    async def publish_event(self, subject: str, data: bytes, *, event_id: str, headers: Mapping[str, str]) -> int:
        """Store in the events stream once per ``event_id``; return the stream sequence. Raise BusUnavailableError."""
        ...

    async def publish_events(self, events: Sequence[EventMessage]) -> None:
        """Store at most 1,000 in order, all or none. Raise BusUnavailableError: all may be stored, or none.

        Any other BusError refuses all of them for the sake of one, which may be stored already: send them singly.
        """
        ...

    async def subscribe(self, subject: str, handler: Handler, *, queue: str | None = None) -> Subscription: ...

    async def serve(self, subject: str, responder: Responder, *, queue: str | None = None) -> Subscription:
        """Answer requests; an exception in the responder answers with an error that the caller sees as BusError."""
        ...

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Received:
        """Raise NoResponderError or BusUnavailableError; retries are the caller's, who knows what is idempotent."""
        ...

    async def bucket(self, spec: BucketSpec) -> Bucket:
        """Open; create when missing. Two services opening at once get the same bucket."""
        ...

    def events(
        self, subject: str, *, after_sequence: int | None = None, since_ms: int | None = None
    ) -> AsyncGenerator[Received, None]:
        """Replay the events stream in order, then follow it. Without a start: only what comes from now on."""
        ...

    async def last_event_sequence(self) -> int: ...

    async def wait_failed(self) -> str:
        """Until this connection is beyond repair; the answer says why. Its service must be started anew."""
        ...

    async def wait_reconnected(self) -> None:
        """Until the connection comes back the next time after it was lost. Core messages in between are gone."""
        ...

    async def close(self) -> None: ...
