"""Which pods are bound to this node: copies of each write as it happens, a full read at the start and now and then."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from cotenant_common.bus.protocol import Bucket, Bus, BusClosedError, BusError, Entry, SnapshotDone, Subscription
from cotenant_common.contracts import codec, subjects
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.model.ids import encode_token
from cotenant_common.runtime import requests
from cotenant_common.telemetry.logging import Logger

_RETRY_S = 0.5
_SNAPSHOT_TIMEOUT_S = 30.0


class BindingFollower:
    """`items` is complete once `ready`. A thousand agents with a consumer each would slow every write to the bucket,
    so between snapshots the node lives on republished copies; one that was lost is found by the next snapshot.
    """

    def __init__(
        self, bus: Bus, bucket: Bucket, node: str, on_change: Callable[[str], None], interval_ms: int, log: Logger
    ) -> None:
        self.items: dict[str, Binding] = {}
        self.ready = asyncio.Event()
        self._bus = bus
        self._bucket = bucket
        self._node = node
        self._on_change = on_change
        self._interval_s = interval_ms / 1_000
        self._log = log
        self._revisions: dict[str, int] = {}
        self._last_snapshot = 0

    async def run(self) -> None:
        subscription = await self._subscribe()
        try:
            while True:
                try:
                    async with asyncio.timeout(_SNAPSHOT_TIMEOUT_S):
                        if not await self.snapshot():
                            continue
                    self.ready.set()
                except (BusError, TimeoutError) as error:
                    self._log.warning("binding_snapshot_failed", error=str(error) or "not complete in time")
                    await asyncio.sleep(_RETRY_S)
                    continue
                await self._until_due()
        finally:
            await subscription.stop()

    async def _subscribe(self) -> Subscription:
        while True:
            try:
                return await requests.subscribe_republished(
                    self._bus,
                    subjects.BOUND,
                    self._copy,  # type: ignore[type-var]  # mypy takes the optional for the message type itself
                    node=self._node,
                )
            except BusClosedError:
                raise
            except BusError as error:
                self._log.warning("bindings_not_subscribed", error=str(error))
                await asyncio.sleep(_RETRY_S)

    async def _until_due(self) -> None:
        """The interval, or a reconnect: copies sent while we were away are gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._bus.wait_reconnected()

    async def snapshot(self) -> bool:
        """False when it has to be taken again: it came from a bucket made anew, which counts from the start."""
        present: list[str] = []
        async with aclosing(self._bucket.watch(f"*.{encode_token(self._node)}")) as watch:
            async for item in watch:
                if isinstance(item, SnapshotDone):
                    return self._drop_absent(present, item.revision)
                if isinstance(item, Entry):
                    uid = item.key.partition(".")[0]
                    if item.value is not None:
                        present.append(uid)
                    self._entry(uid, item)
        return False

    def _drop_absent(self, present: list[str], revision: int) -> bool:
        newest = max(self._revisions.values(), default=0)
        if revision < newest:
            # Absence from a new world deletes nothing.
            self._log.warning("bindings_recreated", known=len(self.items), revision=revision, newest=newest)
            self._revisions = dict.fromkeys(self.items, 0)
            self._last_snapshot = 0
            return False
        here = set(present)
        for uid in [uid for uid in self.items if uid not in here and self._revisions[uid] <= revision]:
            self._apply(uid, None, revision)
        self._forget_gone()
        self._last_snapshot = revision
        return True

    def _forget_gone(self) -> None:
        """A late copy of what was gone a whole interval ago will not come any more."""
        gone = [uid for uid, seen in self._revisions.items() if uid not in self.items and seen <= self._last_snapshot]
        for uid in gone:
            del self._revisions[uid]

    def _entry(self, uid: str, entry: Entry) -> None:
        if entry.value is None:
            self._apply(uid, None, entry.revision)
            return
        try:
            self._apply(uid, codec.decode(Binding, entry.value), entry.revision)
        except codec.DecodeError as error:
            self._log.error("malformed_entry", bucket="bindings", key=entry.key, error=str(error))

    async def _copy(self, key: str, binding: Binding | None, revision: int) -> None:
        self._apply(key.partition(".")[0], binding, revision)

    def _apply(self, uid: str, binding: Binding | None, revision: int) -> None:
        """Copies and snapshots overlap; the higher revision is the truth."""
        if revision <= self._revisions.get(uid, 0) and uid in self._revisions:
            return
        self._revisions[uid] = revision
        before = self.items.get(uid)
        if binding is None:
            self.items.pop(uid, None)
        else:
            self.items[uid] = binding
        if before != binding:
            self._on_change(uid)
