"""A key-value bucket on JetStream, with what the client's own lacks: TTL with expectations, batches, sound watches."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from cotenant_common.bus.matching import MAX_BATCH, check_key
from cotenant_common.bus.nats_api import JetStreamApi, retried
from cotenant_common.bus.nats_reader import (
    LAST_PER_SUBJECT,
    CaughtUp,
    Delivered,
    OrderedReader,
    ReadItem,
    Recreated,
)
from cotenant_common.bus.nats_wire import (
    DELETED_KEPT_S,
    DUPLICATE_ID_IN_BATCH,
    MSG_ID,
    JetStreamError,
    Reply,
    Wire,
    bucket_config,
    deletion_headers,
    expectation_headers,
    value_headers,
)
from cotenant_common.bus.protocol import (
    BusError,
    ConflictError,
    Delete,
    Entry,
    Op,
    Put,
    SnapshotDone,
    StoreReset,
    WatchItem,
)
from cotenant_common.bus.provenance import was_stored_by_a_writer
from cotenant_common.contracts.buckets import BucketSpec
from cotenant_common.telemetry.logging import get_logger

_log = get_logger("bus")
_BATCH_WAIT_S: Final = 2.0
_MARKER_ATTEMPTS: Final = 3


class NatsBucket:
    def __init__(self, wire: Wire, api: JetStreamApi, spec: BucketSpec, replicas: int) -> None:
        self.spec = spec
        self._wire = wire
        self._api = api
        self._config = bucket_config(spec, replicas)
        self._prefix = f"$KV.{spec.bucket}."

    async def open(self) -> None:
        await self._api.ensure_stream(self._config)

    async def get(self, key: str) -> Entry | None:
        reply = await self._api.last_message(self.spec.stream, self._subject(key))
        if reply is None or reply.is_deletion:
            return None
        return Entry(key, reply.data, reply.sequence)

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        return await self.batch([Put(key, value, ttl_s=ttl_s)])

    async def create(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        return await self.batch([Put(key, value, expect=0, ttl_s=ttl_s)])

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None) -> int:
        return await self.batch([Put(key, value, expect=revision, ttl_s=ttl_s)])

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        if revision is None and await self.get(key) is None:
            return
        await self.batch([Delete(key, expect=revision)])

    async def batch(self, operations: Sequence[Put | Delete]) -> int:
        _check(operations)
        attempts = 0
        while True:
            try:
                return await self._write(operations)
            except ConflictError:
                attempts += 1
                absent = await self._expect_markers(operations) if attempts < _MARKER_ATTEMPTS else None
                if absent is None:
                    raise
                operations = absent

    async def _write(self, operations: Sequence[Put | Delete]) -> int:
        if len(operations) == 1:
            subject, value, headers = self._message(operations[0])
            return await self._api.store(self.spec.stream, subject, value, headers)
        return await self._write_batch(operations)

    def _message(self, operation: Put | Delete) -> tuple[str, bytes, dict[str, str]]:
        subject = self._subject(operation.key)
        expected = operation.expect_filter and self._prefix + operation.expect_filter
        headers = expectation_headers(subject, operation.expect, expected)
        if isinstance(operation, Put):
            return subject, operation.value, headers | value_headers(operation.ttl_s)
        return subject, b"", headers | deletion_headers()

    async def _write_batch(self, operations: Sequence[Put | Delete]) -> int:
        messages = [self._message(operation) for operation in operations]
        commit_id = self._wire.unique()
        last_subject, _, last_headers = messages[-1]
        last_headers[MSG_ID] = commit_id
        sent = 0

        async def attempt(timeout_s: float) -> int:
            nonlocal sent
            sent += 1
            try:
                return await self._api.send_batch(messages, timeout_s)
            except (ConflictError, JetStreamError) as error:
                repeated = isinstance(error, JetStreamError) and error.code == DUPLICATE_ID_IN_BATCH
                if sent == 1 or not (repeated or isinstance(error, ConflictError)):
                    raise
                # The replay of a batch that was committed is refused as a whole: look for its last message.
                own = await self._api.sequence_of(self.spec.stream, last_subject, commit_id)
                if own is None:
                    raise
                return own

        return await retried(attempt, first_wait_s=_BATCH_WAIT_S)

    async def _expect_markers(self, operations: Sequence[Put | Delete]) -> list[Put | Delete] | None:
        """After a conflict: operations that expect the markers of deleted keys instead of nothing; None if that is
        not what stood in the way. The expectation stays exact, so nobody can slip in between."""
        changed = False
        settled: list[Put | Delete] = []
        for operation in operations:
            revision = await self._marker_revision(operation) if operation.expect == 0 else 0
            if revision is None:
                return None
            changed |= revision > 0
            settled.append(replace(operation, expect=revision) if revision else operation)
        return settled if changed else None

    async def _marker_revision(self, operation: Put | Delete) -> int | None:
        """Newest marker under the operation's expectation; 0: nothing there; None: a live value."""
        if operation.expect_filter is None:
            reply = await self._api.last_message(self.spec.stream, self._subject(operation.key))
            found: list[Reply] = [] if reply is None else [reply]
        else:
            found = await self._api.last_messages(self.spec.stream, self._prefix + operation.expect_filter)
        if any(not reply.is_deletion for reply in found):
            return None
        return max((reply.sequence for reply in found), default=0)

    async def keys(self, pattern: str = ">") -> list[str]:
        live: dict[str, None] = {}
        async with aclosing(self._reader(pattern, headers_only=True).read()) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                if isinstance(item, Delivered):
                    key = self._key(item.message)
                    live.pop(key, None)
                    if not item.message.is_deletion and was_stored_by_a_writer(item.message.headers):
                        live[key] = None
                else:
                    live.clear()
        return sorted(live)

    async def watch(self, pattern: str = ">") -> AsyncGenerator[WatchItem, None]:
        view = _View()
        async with aclosing(self._reader(pattern).read()) as items:
            async for item in items:
                for told in view.take(item, self._prefix):
                    yield told

    async def last_revision(self) -> int:
        return (await self._api.stream_info(self.spec.stream)).last_sequence

    def _reader(self, pattern: str, *, headers_only: bool = False) -> OrderedReader:
        return OrderedReader(
            self._wire,
            self._api,
            self._config,
            self._prefix + pattern,
            LAST_PER_SUBJECT,
            headers_only=headers_only,
            longest_gap_s=DELETED_KEPT_S / 2,
        )

    def _subject(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _key(self, message: Reply) -> str:
        return message.subject[len(self._prefix) :]


class _View:
    """Turns a stream's messages into what a watcher sees: no deletion of what it never saw, none left out."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._before: dict[str, None] | None = None

    def take(self, item: ReadItem, prefix: str) -> list[WatchItem]:
        if isinstance(item, Delivered):
            if not was_stored_by_a_writer(item.message.headers):
                # What stood there before is gone from the server; those who know it keep it.
                _log.error("bus_entry_refused", subject=item.message.subject, revision=item.sequence)
                return []
            return self._entry(item, item.message.subject[len(prefix) :])
        if isinstance(item, CaughtUp):
            return [*self._vanished(item.sequence), SnapshotDone(item.sequence)]
        if isinstance(item, Recreated):
            self._known, self._before = {}, None
            return [StoreReset()]
        # Started over in the same store: what is not there any more was deleted meanwhile.
        self._before, self._known = self._known, {}
        return []

    def _entry(self, item: Delivered, key: str) -> list[WatchItem]:
        if item.message.is_deletion:
            seen = key in self._known or (self._before is not None and key in self._before)
            self._known.pop(key, None)
            if self._before is not None:
                self._before.pop(key, None)
            return [Entry(key, None, item.sequence, Op.DELETE)] if seen else []
        self._known[key] = None
        return [Entry(key, item.message.data, item.sequence)]

    def _vanished(self, sequence: int) -> list[WatchItem]:
        gone = [key for key in self._before or () if key not in self._known]
        self._before = None
        return [Entry(key, None, sequence, Op.DELETE) for key in gone]


def _check(operations: Sequence[Put | Delete]) -> None:
    if not 1 <= len(operations) <= MAX_BATCH:
        raise BusError(f"expected 1 to {MAX_BATCH} operations in a batch, got {len(operations)}")
    for operation in operations:
        check_key(operation.key)
        if isinstance(operation, Put) and operation.ttl_s is not None and operation.ttl_s < 1:
            raise BusError(f"expected a ttl of whole seconds from 1, got {operation.ttl_s}")
