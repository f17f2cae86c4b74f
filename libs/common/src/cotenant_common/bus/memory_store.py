"""The streams of the in-memory bus: what a bucket and the events stream remember, without anybody waiting."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cotenant_common.bus.matching import MAX_BATCH, check_key, compile_pattern
from cotenant_common.bus.protocol import (
    BusError,
    ConflictError,
    Delete,
    Entry,
    Op,
    PayloadTooLargeError,
    Put,
    Received,
)
from cotenant_common.contracts.buckets import BucketSpec, StreamSpec

MAX_PAYLOAD: Final = 8 * 1_048_576 - 300
"""``max_payload`` of every server configuration we ship, less room for headers."""
_ROUTES_KEPT: Final = 20_000
# A loop may call a timer a little early; setting it again for that little would have it called for ever.
_RESOLUTION_S: Final = 0.001

Listener = Callable[[Entry], None]


class Timers(Protocol):
    def now_s(self) -> float: ...

    def call_at(self, when_s: float, callback: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Stored:
    """The newest message of one key; a deletion stays as a marker with its revision."""

    entry: Entry
    expires_s: float | None = None


class BucketStore:
    """One revision counter per stream; every batch is checked as a whole before any of it is written."""

    def __init__(self, spec: BucketSpec, timers: Timers) -> None:
        self.spec = spec
        self.created = 0
        self.revision = 0
        self.listeners: list[Listener] = []
        """Told of everything, before any watcher."""
        self._watchers: list[tuple[Callable[[str], bool], Listener]] = []
        self._watching: dict[str, tuple[Listener, ...]] = {}
        self._timers = timers
        self._expiring: dict[str, float] = {}
        """When the key's timer is due: one timer each, however often it is renewed."""
        self._last: dict[str, Stored] = {}
        # An expectation on ``uid.*`` must not read the whole bucket for each of a hundred thousand pods.
        self._by_first_token: dict[str, dict[str, None]] = {}
        # Nor a hundred nodes each the whole bucket for what is bound to them, once a minute.
        self._by_last_token: dict[str, dict[str, None]] = {}

    def reset(self) -> None:
        """The store is lost and made anew: another world whose revisions start over."""
        self.created += 1
        self.revision = 0
        self._last.clear()
        self._by_first_token.clear()
        self._by_last_token.clear()

    def watch(self, pattern: str, listener: Listener) -> None:
        self._watchers.append((compile_pattern(pattern), listener))
        self._watching.clear()

    def unwatch(self, listener: Listener) -> None:
        self._watchers = [one for one in self._watchers if one[1] is not listener]
        self._watching.clear()

    def restore(self, entries: Iterable[Entry], revision: int) -> None:
        """Live entries of another store under the revisions that they have there, up to its last; for a new store."""
        for entry in sorted(entries, key=lambda entry: entry.revision):
            self._keep(entry)
        self.revision = revision

    def get(self, key: str) -> Entry | None:
        stored = self._last.get(key)
        return stored.entry if stored is not None and stored.entry.value is not None else None

    def live(self, pattern: str) -> list[Entry]:
        """Live entries in the order in which they were written."""
        found = [entry for entry in self._matching(pattern) if entry.value is not None]
        return sorted(found, key=lambda entry: entry.revision)

    def apply(self, operations: Sequence[Put | Delete]) -> int:
        if not 1 <= len(operations) <= MAX_BATCH:
            raise BusError(f"expected 1 to {MAX_BATCH} operations in a batch, got {len(operations)}")
        self._check(operations)
        for operation in operations:
            self._write(operation)
        return self.revision

    def _check(self, operations: Sequence[Put | Delete]) -> None:
        expected: dict[str, None] = {}
        for operation in operations:
            check_key(operation.key)
            if isinstance(operation, Put):
                _check_put(operation)
            if operation.expect is None:
                continue
            subject = operation.expect_filter or operation.key
            if subject in expected:
                raise BusError(f"two expectations on {subject!r} in one batch")
            expected[subject] = None
            self._check_expectation(subject, operation.expect)

    def _check_expectation(self, subject: str, expect: int) -> None:
        entries = self._matching(subject)
        actual = max((entry.revision for entry in entries), default=0)
        held = all(entry.value is None for entry in entries) if expect == 0 else actual == expect
        if not held:
            raise ConflictError(f"expected {subject!r} at revision {expect}, it is at {actual}", actual=actual)

    def _matching(self, pattern: str) -> list[Entry]:
        if (stored := self._last.get(pattern)) is not None:
            return [stored.entry]
        matches = compile_pattern(pattern)
        return [self._last[key].entry for key in self._candidates(pattern) if matches(key)]

    def _candidates(self, pattern: str) -> Iterable[str]:
        first, last = pattern.partition(".")[0], pattern.rpartition(".")[2]
        if first not in ("*", ">"):
            return self._by_first_token.get(first, {})
        return self._last if last in ("*", ">") else self._by_last_token.get(last, {})

    def _write(self, operation: Put | Delete) -> None:
        ttl_s = operation.ttl_s if isinstance(operation, Put) else None
        value = operation.value if isinstance(operation, Put) else None
        self._store(operation.key, value, None if ttl_s is None else self._timers.now_s() + ttl_s)

    def _store(self, key: str, value: bytes | None, expires_s: float | None = None) -> None:
        self.revision += 1
        before = self._last.get(key)
        if before is not None and value is not None and before.entry.value == value:
            # A renewal says what was said before, so what readers made of that still holds.
            entry = Entry(key, value, self.revision, decoded=before.entry.decoded)
        else:
            entry = Entry(key, value, self.revision, Op.DELETE if value is None else Op.PUT)
        self._keep(entry, expires_s)

    def _keep(self, entry: Entry, expires_s: float | None = None) -> None:
        key = entry.key
        if key not in self._last:
            self._by_first_token.setdefault(key.partition(".")[0], {})[key] = None
            self._by_last_token.setdefault(key.rpartition(".")[2], {})[key] = None
        self._last[key] = Stored(entry, expires_s)
        if expires_s is not None and expires_s < self._expiring.get(key, math.inf):
            self._expire_at(key, expires_s)
        for listener in tuple(self.listeners):
            listener(entry)
        for watcher in self._watching_key(key):
            watcher(entry)

    def _watching_key(self, key: str) -> tuple[Listener, ...]:
        if (known := self._watching.get(key)) is None:
            if len(self._watching) > _ROUTES_KEPT:
                self._watching.clear()
            known = tuple(listener for matches, listener in self._watchers if matches(key))
            self._watching[key] = known
        return known

    def _expire_at(self, key: str, when_s: float) -> None:
        self._expiring[key] = when_s
        self._timers.call_at(when_s, lambda: self._expire(key, when_s))

    def _expire(self, key: str, when_s: float) -> None:
        if self._expiring.get(key) != when_s:
            return  # a shorter ttl came later, and had its own timer
        del self._expiring[key]
        stored = self._last.get(key)
        if stored is None or stored.expires_s is None:
            return
        if stored.expires_s > self._timers.now_s() + _RESOLUTION_S:
            self._expire_at(key, stored.expires_s)
        elif self.spec.ttl_keys:
            self._store(key, None)
        else:
            # Without limit markers a key of the real server vanishes without a word.
            del self._last[key]
            del self._by_first_token[key.partition(".")[0]][key]
            del self._by_last_token[key.rpartition(".")[2]][key]


def _check_put(operation: Put) -> None:
    if len(operation.value) > MAX_PAYLOAD:
        size = len(operation.value)
        raise PayloadTooLargeError(f"expected at most {MAX_PAYLOAD} bytes for {operation.key!r}, got {size}")
    if operation.ttl_s is not None and operation.ttl_s < 1:
        raise BusError(f"expected a ttl of whole seconds from 1, got {operation.ttl_s}")


class EventStore:
    """The events stream: append once per id, replay by sequence or time."""

    def __init__(self, spec: StreamSpec, now_ms: Callable[[], int]) -> None:
        self._spec = spec
        self._now_ms = now_ms
        self._messages: list[tuple[int, Received]] = []
        self._ids: dict[str, tuple[int, int]] = {}
        self.listeners: list[Callable[[Received], None]] = []

    @property
    def last_sequence(self) -> int:
        return len(self._messages)

    def append(self, subject: str, data: bytes, event_id: str, headers: dict[str, str]) -> int:
        """Return the sequence; that of the first copy when the id came within the duplicate window."""
        now_ms = self._now_ms()
        self._forget_ids_before(now_ms - self._spec.duplicate_window_s * 1000)
        if (known := self._ids.get(event_id)) is not None:
            return known[1]
        received = Received(subject, data, headers, self.last_sequence + 1)
        self._messages.append((now_ms, received))
        self._ids[event_id] = (now_ms, self.last_sequence)
        for listener in tuple(self.listeners):
            listener(received)
        return self.last_sequence

    def replay(self, *, after_sequence: int | None, since_ms: int | None) -> Iterator[Received]:
        if after_sequence is not None:
            return (received for _, received in self._messages[max(0, after_sequence) :])
        if since_ms is not None:
            return (received for at_ms, received in self._messages if at_ms >= since_ms)
        return iter(())

    def _forget_ids_before(self, oldest_ms: int) -> None:
        # Insertion order is time order, so the expired ones are in front.
        while self._ids:
            event_id = next(iter(self._ids))
            if self._ids[event_id][0] >= oldest_ms:
                return
            del self._ids[event_id]
