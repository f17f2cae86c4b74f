"""Decided changes become one fenced batch, and each write its events, in order."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from cotenant_common.bus import protocol
from cotenant_common.bus.protocol import Bucket, Entry
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import SPECS
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_common.model.ids import CLUSTER_SCOPE, decode_token, object_key
from cotenant_common.runtime.clock import Clock
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.runtime.lease import Lease
from cotenant_gateway.adapters.records import to_record, to_spec
from cotenant_gateway.core import tell
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.records import Change, Put

SERVICE: Final = "gateway"
BATCH: Final = 990
"""The server's limit is 1,000; the guard is one more."""
_SENT_POLL_S: Final = 0.02
_SENT_TIMEOUT_S: Final = 5.0


class Revisions(Protocol):
    """Where a key's current revision comes from: the mirror of ``specs``."""

    def revision_of(self, key: str) -> int | None: ...


class Writer:
    """The only place that writes ``specs``."""

    def __init__(self, bucket: Bucket, lease: Lease, announcer: Announcer, clock: Clock) -> None:
        self._bucket = bucket
        self._lease = lease
        self._announcer = announcer
        self._clock = clock
        self._announced = 0
        self._told_at: dict[str, int] = {}

    @property
    def leads(self) -> bool:
        """False as soon as somebody else may lead."""
        return self._lease.held

    async def commit(self, changes: Sequence[Change], revisions: Revisions) -> int:
        """All or nothing; return the last revision. Raise ConflictError, NotHeldError, BusUnavailableError."""
        # Before any wait: what is expected is the revision that was decided on.
        operations: list[protocol.Put | protocol.Delete] = [self._operation(c, revisions) for c in changes]
        await self._wait_told(changes)
        try:
            last = await self._bucket.batch([*operations, self._lease.guard()])
        except protocol.PayloadTooLargeError as error:
            raise ApiError(413, "TooLarge", f"an object is larger than a message may be: {error}") from error
        first = last - len(operations)
        for at, change in enumerate(changes):
            await self._announce(change, first + at)
        return last

    async def restore(self, lost: Mapping[str, SpecRecord]) -> int:
        """Write back what a store that was made anew no longer holds; nobody is told, since nothing happened."""
        kept = list(lost.items())
        for start in range(0, len(kept), BATCH):
            puts: list[protocol.Put | protocol.Delete] = [
                protocol.Put(key, codec.encode(record.model_copy(update={"tells": []})), expect=0)
                for key, record in kept[start : start + BATCH]
            ]
            await self._bucket.batch([*puts, self._lease.guard()])
        return len(kept)

    async def settle(self) -> None:
        """After a write that may have happened: tell of everything not known to be told. Ids make repeats harmless."""
        await self._announcer.catch_up(self.derive)

    async def say(self, event: Event) -> None:
        """An event that tells of no write."""
        await self._announcer.announce(event)
        self._announced += 1

    def derive(self, entry: Entry) -> Iterable[Event]:
        """The events of a write found after a restart."""
        if entry.value is None:
            kind, namespace, name = entry.key.split(".", 2)
            scope = None if namespace == CLUSTER_SCOPE else decode_token(namespace)
            facts = tell.of_lost_removal(kind, object_key(kind, scope, decode_token(name)))
            return [self._event(fact, entry.key, entry.revision) for fact in facts]
        try:
            spec = to_spec(codec.decode(SpecRecord, entry.value))
        except codec.DecodeError:
            return []  # the mirror has logged and counted it
        return [self._event(fact, entry.key, entry.revision) for fact in tell.of_put(spec)]

    def _operation(self, change: Change, revisions: Revisions) -> protocol.Put | protocol.Delete:
        key = change.spec.key
        if isinstance(change, Put):
            expect = 0 if change.old is None else revisions.revision_of(key)
            return protocol.Put(key, codec.encode(to_record(change.spec)), expect=expect)
        return protocol.Delete(key, expect=revisions.revision_of(key))

    async def _announce(self, change: Change, revision: int) -> None:
        for fact in tell.of_change(change):
            await self.say(self._event(fact, change.spec.key, revision))
            self._told_at[change.spec.key] = self._announced

    def _event(self, fact: tell.Fact, key: str, revision: int) -> Event:
        return Event(
            id=event_id(SPECS, key, revision, fact.type),
            type=fact.type,
            at_ms=self._clock.now_ms() if fact.at_ms is None else fact.at_ms,
            source=SERVICE,
            object=fact.object,
            uid=fact.uid,
            reason=fact.reason,
            message=fact.message,
            data=dict(fact.data),
        )

    async def _wait_told(self, changes: Sequence[Change]) -> None:
        """A value whose event is still unsent must not be overwritten: after a crash nothing else would tell of it."""
        newest = max((self._told_at.get(change.spec.key, 0) for change in changes), default=0)
        waited = 0.0
        while self._announced - self._announcer.pending < newest and waited < _SENT_TIMEOUT_S:
            await asyncio.sleep(_SENT_POLL_S)
            waited += _SENT_POLL_S
        if self._announcer.pending == 0:
            self._told_at.clear()
