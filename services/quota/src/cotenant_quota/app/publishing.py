"""One message per tree, written when something in it changed, with the events that follow from it."""

import asyncio
from typing import Final

from cotenant_common.bus.protocol import BusClosedError, BusError, Delete, Entry, PayloadTooLargeError, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import is_bookkeeping
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import QuotaTreeStatus
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.service import ServiceContext
from cotenant_quota.adapters import messages
from cotenant_quota.adapters.status import StatusWriter
from cotenant_quota.app.world import World
from cotenant_quota.config import QuotaSettings
from cotenant_quota.core.book import TreeView
from cotenant_quota.core.borrow import Standing, transitions
from cotenant_quota.core.timers import OverTimers

_RETRY_S: Final = 0.5
_LEASE_CHECK_S: Final = 1.0
_QUOTAS_PER_MS: Final = 10
"""Readers decode the whole message: with a thousand quotas they get a tenth of a second between two of them."""
_LONGEST_GAP_MS: Final = 150
"""The scheduler waits 200 ms for a status that covers a new pod."""


class Publisher:
    """``published`` is what the bucket holds, ``pending`` what it should hold and does not yet."""

    def __init__(
        self,
        context: ServiceContext,
        settings: QuotaSettings,
        world: World,
        lease: Lease,
        announcer: Announcer,
        timers: OverTimers,
    ) -> None:
        self.published: dict[str, QuotaTreeStatus] = {}
        self._context = context
        self._settings = settings
        self._world = world
        self._lease = lease
        self._announcer = announcer
        self._timers = timers
        self._pending: dict[str, TreeView] = {}
        self._standing: dict[str, Standing] = {}
        """Loans and over-use as last told, by tree: what comes next is told against it."""
        self._writer = StatusWriter()
        self._last_s = float("-inf")
        self._cost_s = 0.0
        self.too_large: dict[str, str] = {}
        """What the server said, by tree whose state it would not take."""
        self._publications = context.metrics.counter("cotenant_quota_publications_total", "Tree states published")
        self._refusals = context.metrics.counter(
            "cotenant_quota_publications_too_large_total", "Tree states larger than a message of the bus may be"
        )

    async def take_over(self) -> bool:
        """Continue the generations of whoever led before, and tell what they may not have told. False: try again."""
        world = self._world
        try:
            await world.statuses.wait_revision(await world.own.last_revision())
            self.published = dict(world.statuses.items)
            told = await self._announcer.catch_up(self._derive)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("take_over_waits", error=str(error))
            return False
        for tree_id, status in self.published.items():
            since = {one.name: one.over_since_ms for one in status.quotas if one.over_since_ms is not None}
            self._timers.restore(tree_id, since)
        self._standing = {tree_id: messages.standing_of(status) for tree_id, status in self.published.items()}
        world.refresh()
        self._pending = {tree_id: world.book.view(tree_id) for tree_id in world.book.forest.trees}
        world.specs_changed = True
        world.changed.set()
        self._last_s = float("-inf")
        self._context.log.info("leading", epoch=self._lease.epoch, trees=len(self.published), events_repeated=told)
        return True

    def _derive(self, entry: Entry) -> list[Event]:
        if entry.value is None or is_bookkeeping(entry.key):
            return []
        return messages.events_of(codec.decode(QuotaTreeStatus, entry.value), entry.revision, self._context.instance)

    async def publish_once(self) -> None:
        """Wait for a change, let those that come close behind it arrive, publish what they changed."""
        self._context.health.beat("publish")
        try:
            async with asyncio.timeout(_LEASE_CHECK_S):
                await self._world.changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._pause_s())
        self._world.changed.clear()
        began_s = self._context.clock.monotonic()
        self._refresh()
        try:
            await self._publish_pending()
        except BusClosedError:
            raise
        except BusError as error:
            # Not connected, or not the leader any more: the lease will say which.
            self._context.log.warning("publication_delayed", error=str(error))
            await asyncio.sleep(_RETRY_S)
            self._world.changed.set()
        self._last_s = self._context.clock.monotonic()
        self._cost_s = self._last_s - began_s

    def _pause_s(self) -> float:
        """At once after a quiet time, but for what the same write brings along; else at a pace that readers can keep
        and that leaves half of a core for the news itself."""
        quotas = sum(len(tree.specs) for tree in self._world.book.forest.trees.values())
        gap_ms = max(self._settings.coalesce_ms, quotas // _QUOTAS_PER_MS, round(1000 * self._cost_s))
        gap_ms = min(gap_ms, _LONGEST_GAP_MS)
        since_last_ms = 1000 * (self._context.clock.monotonic() - self._last_s)
        return max(self._settings.gather_ms, gap_ms - since_last_ms) / 1000

    def _refresh(self) -> None:
        views = self._world.refresh()
        trees = self._world.book.forest.trees
        self._pending = {tree_id: view for tree_id, view in self._pending.items() if tree_id in trees}
        self._pending.update({view.tree_id: view for view in views})

    async def _publish_pending(self) -> None:
        """What could not be written stays pending."""
        world = self._world
        revisions = world.revisions()
        always, world.specs_changed = world.specs_changed, False
        try:
            for tree_id, view in sorted(self._pending.items()):
                try:
                    await self._publish(view, revisions, always=always)
                    self.too_large.pop(tree_id, None)
                except PayloadTooLargeError as error:
                    # Trying again changes nothing before the tree does, and the other trees fit.
                    self._note_too_large(view, error)
                del self._pending[tree_id]
            for tree_id in [one for one in self.published if one not in world.book.forest.trees]:
                await world.own.batch([self._lease.guard(), Delete(tree_id)])
                del self.published[tree_id]
                self._standing.pop(tree_id, None)
                self._timers.forget(tree_id)
                self._writer.forget(tree_id)
                self.too_large.pop(tree_id, None)
        except BusError:
            world.specs_changed |= always
            raise

    def _note_too_large(self, view: TreeView, error: PayloadTooLargeError) -> None:
        self._refusals.add(1)
        if view.tree_id not in self.too_large:
            self._context.log.error(
                "tree_too_large",
                tree=view.tree_id,
                quotas=len(view.quotas),
                error=str(error),
                help="raise max_payload of the NATS server, or give parts of the quotas trees of their own (tree-id)",
            )
        self.too_large[view.tree_id] = str(error)

    async def _publish(self, view: TreeView, revisions: dict[str, int], *, always: bool) -> None:
        before = self.published.get(view.tree_id)
        now_ms = self._context.clock.now_ms()
        over = dict.fromkeys(one.quota for one in view.standing.overuse)
        status = self._writer.status(
            view,
            transitions(self._standing.get(view.tree_id, Standing()), view.standing),
            generation=before.generation + 1 if before else 1,
            revisions=revisions,
            over_since=self._timers.note(view.tree_id, over, now_ms),
            now_ms=now_ms,
        )
        if not always and messages.same_shares(before, status):
            return
        # The guard comes first, so that the revision of the batch is the status's own.
        revision = await self._world.own.batch([self._lease.guard(), Put(view.tree_id, self._writer.encode(status))])
        self.published[view.tree_id] = status
        self._standing[view.tree_id] = view.standing
        self._publications.add(1)
        for event in messages.events_of(status, revision, self._context.instance):
            await self._announcer.announce(event)
