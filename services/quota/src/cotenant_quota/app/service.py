"""The quota service: mirrors demand and capacity, publishes every quota's share, tells who borrows from whom, and has
back what is owed for too long."""

import asyncio
from typing import Any, Final

from cotenant_common.bus.protocol import Bucket
from cotenant_common.contracts.buckets import LEASES
from cotenant_common.contracts.messages.commands import QuotaTreeReply, QuotaTreeRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.subjects import QUOTA_TREE
from cotenant_common.runtime import requests
from cotenant_common.runtime.audit import Auditor
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import wait_for_snapshots
from cotenant_common.runtime.service import ServiceContext
from cotenant_quota.app.pools import Pools
from cotenant_quota.app.publishing import Publisher
from cotenant_quota.app.revoking import Revoker
from cotenant_quota.app.world import World
from cotenant_quota.config import QuotaSettings
from cotenant_quota.core.timers import OverTimers
from cotenant_quota.core.tree_book import Options

_RETRY_S: Final = 0.5


class QuotaService:
    """Every replica keeps the book; only the one that holds the lease publishes, revokes and has quotas written."""

    def __init__(self, context: ServiceContext, settings: QuotaSettings) -> None:
        self._context = context
        self._settings = settings
        options = Options(
            scale_min=settings.scale_min_quota,
            guarantee_usage=settings.guarantee_usage,
            use_default_quota=settings.use_default_quota,
            enable_runtime=settings.enable_runtime_quota,
        )
        self._world = World(options, context.log)
        self._opened = False
        self._leading = False
        self._repaired = 0

    async def run(self) -> None:
        bus = self._context.bus
        await self._world.open(bus)
        self._announcer = Announcer(bus, self._world.own, "quota", self._context.clock)
        self._lease = await self._make_lease(self._world.own)
        timers = OverTimers()
        self._publisher = Publisher(self._context, self._settings, self._world, self._lease, self._announcer, timers)
        self._revoker = Revoker(self._context, self._settings, self._world, timers)
        self._pools = Pools(self._context, self._settings, self._world)
        self._opened = True
        serving = await requests.serve(bus, QUOTA_TREE, self._on_tree_request, queue="quota")
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._world.mirrors():
                    group.create_task(mirror.run(), name="quota mirror")
                group.create_task(self._lead(), name="quota leads")
        finally:
            await serving.stop()
            await self._announcer.close()

    async def _make_lease(self, bucket: Bucket) -> Lease:
        context = self._context
        discovery = await context.bus.bucket(LEASES)
        return Lease(bucket, "quota", context.instance, context.clock, self._settings.lease_ttl_s, discovery=discovery)

    async def _lead(self) -> None:
        await self._wait_for_snapshots()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run(on_lost=self._on_lease_lost), name="quota lease")
            group.create_task(self._audit_for_ever(), name="quota audit")
            group.create_task(self._revoker.run(self._leads), name="quota revoke")
            group.create_task(self._pools.run(self._leads), name="quota pools")
            while True:
                await self._lease.wait_held()
                epoch = self._lease.epoch
                if not await self._publisher.take_over():
                    await asyncio.sleep(_RETRY_S)
                    continue
                # Nobody is evicted by the book as a standby left it. A lease lost on the way is another epoch's.
                self._leading = self._lease.held and self._lease.epoch == epoch
                while self._leads():
                    await self._publisher.publish_once()

    def _leads(self) -> bool:
        return self._leading and self._lease.held

    def _on_lease_lost(self) -> None:
        # It may be ours again before the loop looks: what was led before is over all the same.
        self._leading = False
        self._world.changed.set()

    async def _wait_for_snapshots(self) -> None:
        """No share is published from a part of the cluster: it would be a cut for the rest."""
        context = self._context
        mirrors = self._world.mirrors()
        await wait_for_snapshots(mirrors, context.health, context.log, self._settings.snapshot_timeout_s)
        context.health.set_ready(True)

    # Audit

    async def _audit_for_ever(self) -> None:
        auditor = Auditor(self._context, self._say)
        while True:
            await asyncio.sleep(self._settings.audit_interval_s)
            self._context.health.beat("audit", within_s=3 * self._settings.audit_interval_s)
            drifts = self._world.audit()
            self._repaired += len(drifts)
            await auditor.repaired(drifts)

    async def _say(self, event: Event) -> None:
        """Every replica keeps a book and repairs it; the one that leads tells of it."""
        if self._lease.held:
            await self._announcer.announce(event)

    # Questions

    async def _on_tree_request(self, request: QuotaTreeRequest) -> QuotaTreeReply:
        statuses = {**self._world.statuses.items, **self._publisher.published}
        chosen = [statuses[tree] for tree in sorted(statuses) if request.tree in (None, tree)]
        return QuotaTreeReply(trees=[status.model_dump(exclude_none=True) for status in chosen])

    def debug_state(self) -> dict[str, Any]:
        if not self._opened:
            return {"state": "opening buckets"}
        book, published = self._world.book, self._publisher.published
        return {
            "leading": self._lease.held,
            "epoch": self._lease.epoch,
            "trees": {tree_id: len(tree.specs) for tree_id, tree in book.forest.trees.items()},
            "detached": {name: problem.message for name, problem in book.forest.detached.items()},
            "pods": len(book.pods()),
            "generations": {tree_id: status.generation for tree_id, status in published.items()},
            "revisions": {"specs": self._world.specs.revision, "bindings": self._world.bindings.revision},
            "too_large": dict(self._publisher.too_large),
            "pending_events": self._announcer.pending,
            "charges_repaired": self._repaired,
            "revocations": self._revoker.granted,
        }
