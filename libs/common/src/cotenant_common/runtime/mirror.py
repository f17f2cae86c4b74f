"""A bucket kept in memory: the snapshot a service decides on, with the revision it stands for."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from cotenant_common.bus.protocol import Bucket, Entry, SnapshotDone, StoreReset, WatchItem
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import is_bookkeeping
from cotenant_common.contracts.messages.base import Message
from cotenant_common.runtime.health import Health
from cotenant_common.telemetry.logging import Logger, get_logger

M = TypeVar("M", bound=Message)

OnChange = Callable[[str, M | None, M | None, int], None]
OnMalformed = Callable[[str, bytes, codec.DecodeError], None]
_EXCERPT: Final = 48
_AT_A_TIME: Final = 64
_log = get_logger("mirror")


@dataclass(frozen=True, slots=True)
class Missed:
    """A key of which a mirror believed another revision than the bucket holds; None is absent."""

    key: str
    believed: int | None
    actual: int | None


class MirrorNotReadyError(Exception):
    """The snapshot was not complete in time. Deciding on part of a cluster is worse than not deciding."""


async def wait_for_snapshots(
    mirrors: Iterable["BucketMirror[Any]"], health: Health, log: Logger, timeout_s: float = 30.0
) -> None:
    """Until every mirror is complete. Meanwhile the service is not ready, and says which snapshot it lacks."""
    for mirror in mirrors:
        while not mirror.ready:
            try:
                await mirror.wait_ready(timeout_s)
            except MirrorNotReadyError as error:
                health.set_ready(False, str(error))
                log.warning("snapshot_incomplete", reason=str(error))


class BucketMirror(Generic[M]):
    """``items`` is complete once ``ready``. Callbacks are plain functions, called in the order of the revisions.

    A re-created store is a new world: what it does not hold stays in ``items`` and is listed in ``orphans``, because
    absence from a new world is no deletion. Writing or deleting an orphan's key settles it.
    """

    def __init__(
        self,
        bucket: Bucket,
        model: type[M],
        pattern: str = ">",
        on_change: OnChange[M] | None = None,
        on_malformed: OnMalformed | None = None,
        on_reset: Callable[[], None] | None = None,
    ) -> None:
        self.items: dict[str, M] = {}
        self.orphans: dict[str, M] = {}
        self.revision = 0
        self.worlds = 0
        """Stores made anew so far: a revision of an earlier one says nothing about this one."""
        self.malformed = 0
        self._bucket = bucket
        self._model = model
        self._pattern = pattern
        self._on_change = on_change
        self._on_malformed = on_malformed
        self._on_reset = on_reset
        self._revisions: dict[str, int] = {}
        self._ready = asyncio.Event()
        self._advanced: list[tuple[int, asyncio.Future[None]]] = []
        self._unseen: dict[str, M] | None = None

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    def revision_of(self, key: str) -> int | None:
        return self._revisions.get(key)

    async def run(self) -> None:
        """Follow the bucket for ever."""
        taken = 0
        async with aclosing(self._bucket.watch(self._pattern)) as watch:
            async for item in watch:
                self._take(item)
                taken += 1
                if taken % _AT_A_TIME == 0:
                    # A burst is read from a queue without a pause, and a lease has to be renewed meanwhile.
                    await asyncio.sleep(0)

    async def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Raise MirrorNotReadyError when the snapshot is not complete in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise MirrorNotReadyError(
                f"expected all of {self._bucket.spec.bucket} within {timeout_s:g} s, "
                f"got {len(self.items)} keys up to revision {self.revision}"
            ) from None

    async def wait_revision(self, revision: int, timeout_s: float = 5.0) -> bool:
        """Until this mirror has applied ``revision``, so that a writer can read its own write; False when late."""
        if self.revision >= revision:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._advanced.append((revision, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        return True

    async def audit(self) -> list[Missed]:
        """Compare with the bucket as it is, and apply what was missed. Costs a read of the whole bucket.

        Nothing is said of a mirror that is merely behind: its updates are on their way.
        """
        held: dict[str, Entry] = {}
        upto = 0
        async with aclosing(self._bucket.watch(self._pattern)) as watch:
            async for item in watch:
                if isinstance(item, Entry) and not is_bookkeeping(item.key):
                    held[item.key] = item
                elif isinstance(item, SnapshotDone):
                    upto = item.revision
                    break
        if not self.ready or not await self.wait_revision(upto):
            return []
        missed = [found for entry in held.values() if (found := await self._compare(entry)) is not None]
        for key, revision in tuple(self._revisions.items()):
            if key not in held and revision <= upto:
                missed.append(Missed(key, revision, None))
                self._apply(Entry(key, None, upto))
        return missed

    async def _compare(self, entry: Entry) -> Missed | None:
        believed = self._revisions.get(entry.key) if entry.key in self.items else None
        actual = None if entry.value is None else entry.revision
        # A later write or removal has reached the mirror since the comparison began, or is about to.
        if believed == actual or (believed or 0) > entry.revision:
            return None
        now = await self._bucket.get(entry.key)
        if actual is not None and (now is None or now.revision != entry.revision):
            return None
        if actual is not None and self._decode(entry) is None:
            return None
        self._apply(entry)
        return Missed(entry.key, believed, actual)

    def _take(self, item: WatchItem) -> None:
        if isinstance(item, Entry):
            if not is_bookkeeping(item.key):
                self._apply(item)
            self._advance(item.revision)
        elif isinstance(item, SnapshotDone):
            self._finish_snapshot(item)
        elif isinstance(item, StoreReset):
            self._begin_new_world()

    def _apply(self, entry: Entry) -> None:
        if self._unseen is not None:
            self._unseen.pop(entry.key, None)
        self.orphans.pop(entry.key, None)
        old = self.items.get(entry.key)
        new = self._decode(entry)
        if entry.value is None:
            self.items.pop(entry.key, None)
            self._revisions.pop(entry.key, None)
        elif new is None:
            # The last readable value stays: a message nobody can read is no news about the object.
            return
        else:
            self.items[entry.key] = new
            self._revisions[entry.key] = entry.revision
        # The snapshot after a reset repeats what is known, and a deletion of the unknown is none.
        repeated = (new is None or self._unseen is not None) and old == new
        if self._on_change is not None and not repeated:
            self._on_change(entry.key, old, new, entry.revision)

    def _decode(self, entry: Entry) -> M | None:
        if entry.value is None:
            return None
        known: M | None = entry.decoded.get(self._model)
        if known is not None:
            return known
        try:
            decoded = entry.decoded[self._model] = codec.decode(self._model, entry.value)
            return decoded
        except codec.DecodeError as error:
            self.malformed += 1
            _log.error(
                "malformed_entry",
                bucket=self._bucket.spec.bucket,
                key=entry.key,
                revision=entry.revision,
                error=str(error),
                first_bytes=entry.value[:_EXCERPT].hex(),
            )
            if self._on_malformed is not None:
                self._on_malformed(entry.key, entry.value, error)
            return None

    def _finish_snapshot(self, done: SnapshotDone) -> None:
        if self._unseen is not None:
            self.orphans = self._unseen
            self._unseen = None
        self._advance(done.revision)
        self._ready.set()
        if self.orphans and self._on_reset is not None:
            self._on_reset()

    def _begin_new_world(self) -> None:
        _log.warning("store_recreated", bucket=self._bucket.spec.bucket, known=len(self.items))
        self._unseen = dict(self.items)
        self.worlds += 1
        self._revisions.clear()
        self.revision = 0

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        if self._advanced:
            due = [future for wanted, future in self._advanced if wanted <= self.revision]
            self._advanced = [(wanted, future) for wanted, future in self._advanced if wanted > self.revision]
            for future in due:
                if not future.done():
                    future.set_result(None)
