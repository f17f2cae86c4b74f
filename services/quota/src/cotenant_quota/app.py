"""The quota service: mirrors demand and capacity, publishes every quota's share, tells who borrows from whom."""

import asyncio
from typing import Any, Final

from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError, Delete, Entry, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import (
    BINDINGS,
    LEASES,
    NODES,
    OVERCOMMIT,
    PODSTATUS,
    QUOTASTATUS,
    SPECS,
    is_bookkeeping,
)
from cotenant_common.contracts.messages.commands import QuotaTreeReply, QuotaTreeRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    NodeInventory,
    OvercommitRecord,
    PodStatusRecord,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.contracts.subjects import QUOTA_TREE
from cotenant_common.model.ids import encode_token, object_key
from cotenant_common.model.quantity import QuantityError
from cotenant_common.model.quota.spec import QuotaSpec, parse_quota
from cotenant_common.model.quota.validate import check_apply
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import BucketMirror, wait_for_snapshots
from cotenant_common.runtime.service import ServiceContext
from cotenant_quota.adapters import messages
from cotenant_quota.config import QuotaSettings
from cotenant_quota.core.book import Options, PodFacts, QuotaBook, TreeView
from cotenant_quota.core.borrow import transitions

_RETRY_S: Final = 0.5
_LEASE_CHECK_S: Final = 1.0


class QuotaService:
    """Every replica keeps the book; only the one that holds the lease publishes."""

    def __init__(self, context: ServiceContext, settings: QuotaSettings) -> None:
        self._context = context
        self._settings = settings
        self._book = QuotaBook(Options(settings.scale_min_quota, settings.guarantee_usage, settings.use_default_quota))
        self._quota_specs: dict[str, QuotaSpec] = {}
        self._pod_specs: dict[str, SpecRecord] = {}
        self._bindings_of: dict[str, Binding] = {}
        self._quotas_changed = True
        self._cluster_changed = True
        self._specs_changed = False
        self._changed = asyncio.Event()
        self._pending: dict[str, TreeView] = {}
        self._published: dict[str, QuotaTreeStatus] = {}
        self._opened = False
        self._leading = False
        self._repaired = 0
        self._publications = context.metrics.counter("cotenant_quota_publications_total", "Tree states published")
        self._repairs = context.metrics.counter("cotenant_quota_repairs_total", "Charges that an audit corrected")

    async def run(self) -> None:
        bus = self._context.bus
        self._own = await bus.bucket(QUOTASTATUS)
        self._statuses = BucketMirror(self._own, QuotaTreeStatus)
        self._specs = BucketMirror(await bus.bucket(SPECS), SpecRecord, on_change=self._on_spec)
        self._bindings = BucketMirror(await bus.bucket(BINDINGS), Binding, on_change=self._on_binding)
        self._pods = BucketMirror(await bus.bucket(PODSTATUS), PodStatusRecord, on_change=self._on_pod_status)
        self._nodes = BucketMirror(await bus.bucket(NODES), NodeInventory, on_change=self._on_capacity)
        self._overcommit = BucketMirror(await bus.bucket(OVERCOMMIT), OvercommitRecord, on_change=self._on_capacity)
        self._announcer = Announcer(bus, self._own, "quota", self._context.clock)
        self._lease = await self._make_lease(self._own)
        self._opened = True
        serving = await requests.serve(bus, QUOTA_TREE, self._on_tree_request, queue="quota")
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._mirrors():
                    group.create_task(mirror.run(), name="quota mirror")
                group.create_task(self._lead(), name="quota leads")
        finally:
            await serving.stop()
            await self._announcer.close()

    def _mirrors(self) -> list[BucketMirror[Any]]:
        return [self._statuses, self._specs, self._bindings, self._pods, self._nodes, self._overcommit]

    async def _make_lease(self, bucket: Bucket) -> Lease:
        context = self._context
        discovery = await context.bus.bucket(LEASES)
        return Lease(bucket, "quota", context.instance, context.clock, self._settings.lease_ttl_s, discovery=discovery)

    async def _lead(self) -> None:
        await self._wait_for_snapshots()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run(on_lost=self._on_lease_lost), name="quota lease")
            group.create_task(self._audit_for_ever(), name="quota audit")
            while True:
                await self._lease.wait_held()
                self._leading = True
                if not await self._take_over():
                    await asyncio.sleep(_RETRY_S)
                    continue
                while self._leading and self._lease.held:
                    await self._publish_once()

    def _on_lease_lost(self) -> None:
        # It may be ours again before the loop looks: what was led before is over all the same.
        self._leading = False
        self._changed.set()

    async def _wait_for_snapshots(self) -> None:
        """No share is published from a part of the cluster: it would be a cut for the rest."""
        context = self._context
        await wait_for_snapshots(self._mirrors(), context.health, context.log, self._settings.snapshot_timeout_s)
        context.health.set_ready(True)

    async def _take_over(self) -> bool:
        """Continue the generations of whoever led before, and tell what they may not have told. False: try again."""
        try:
            await self._statuses.wait_revision(await self._own.last_revision())
            self._published = dict(self._statuses.items)
            told = await self._announcer.catch_up(self._derive)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("take_over_waits", error=str(error))
            return False
        self._refresh()
        self._pending = {tree_id: self._book.view(tree_id) for tree_id in self._book.forest.trees}
        self._specs_changed = True
        self._changed.set()
        self._context.log.info("leading", epoch=self._lease.epoch, trees=len(self._published), events_repeated=told)
        return True

    def _derive(self, entry: Entry) -> list[Event]:
        if entry.value is None or is_bookkeeping(entry.key):
            return []
        return messages.events_of(codec.decode(QuotaTreeStatus, entry.value), entry.revision, self._context.instance)

    # Mirror callbacks: plain and quick. They note what changed; the next publication does the work once.

    def _on_spec(self, _key: str, old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        changed = new or old
        if changed is not None and changed.kind == "Pod":
            self._on_pod_spec(old, new)
        elif changed is not None and changed.kind == "ElasticQuota":
            self._on_quota_spec(old, new)

    def _on_pod_spec(self, old: SpecRecord | None, new: SpecRecord | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            # A successor keeps the key and has a uid of its own.
            self._pod_specs.pop(old.uid, None)
            self._update_pod(old.uid)
        if new is not None:
            self._pod_specs[new.uid] = new
            self._update_pod(new.uid)
            # The scheduler waits for a status that covers the pod's spec, whatever changed in it.
            self._book.touch(new.uid)
        self._specs_changed = True
        self._changed.set()

    def _on_quota_spec(self, old: SpecRecord | None, new: SpecRecord | None) -> None:
        if new is None:
            if old is not None:
                self._quota_specs.pop(object_key(old.kind, old.namespace, old.name), None)
        else:
            spec, problems = parse_quota(new.manifest)
            if spec is None:
                # The last good version holds; a quota that never was good does not exist.
                self._context.log.error("quota_unusable", quota=new.name, problems=[str(one) for one in problems])
                return
            self._warn_of(spec)
            self._quota_specs[object_key(new.kind, new.namespace, new.name)] = spec
        self._quotas_changed = self._specs_changed = True
        self._changed.set()

    def _warn_of(self, spec: QuotaSpec) -> None:
        """A quota that breaks a rule is used all the same: sharing copes, and its author should hear of it.

        Not during the snapshot, where parents may still be on their way.
        """
        if not self._specs.ready:
            return
        existing = {one.name: one for one in self._quota_specs.values()}
        for problem in check_apply(existing, spec):
            self._context.log.warning(
                "quota_questionable", quota=spec.name, field=problem.path, problem=problem.message
            )

    def _on_binding(self, _key: str, old: Binding | None, new: Binding | None, _revision: int) -> None:
        changed = new or old
        if changed is None:
            return
        if new is not None:
            self._bindings_of[new.uid] = new
        elif self._bindings_of.get(changed.uid) == old:
            # A later attempt may be known already: its key is another one.
            self._bindings_of.pop(changed.uid, None)
        self._update_pod(changed.uid)
        self._changed.set()

    def _on_pod_status(
        self, _key: str, old: PodStatusRecord | None, new: PodStatusRecord | None, _revision: int
    ) -> None:
        """Only refused bindings matter here: that a pod ended is in its spec."""
        changed = new or old
        if changed is not None and _refused_attempt(old) != _refused_attempt(new):
            self._update_pod(changed.uid)
            self._changed.set()

    def _on_capacity(self, *_: object) -> None:
        self._cluster_changed = True
        self._changed.set()

    def _update_pod(self, uid: str) -> None:
        facts = self._facts_of(uid)
        if facts is None:
            self._book.remove_pod(uid)
        else:
            self._book.set_pod(facts)

    def _facts_of(self, uid: str) -> PodFacts | None:
        try:
            return messages.pod_facts(self._pod_specs.get(uid), self._accepted_binding(uid))
        except QuantityError as error:
            self._context.log.warning("pod_unusable", uid=uid, error=str(error))
            return None

    def _accepted_binding(self, uid: str) -> Binding | None:
        """A binding that its agent refused holds nothing, though it stands until the next attempt replaces it."""
        binding = self._bindings_of.get(uid)
        if binding is None:
            return None
        status = self._pods.items.get(f"{encode_token(binding.node)}.{uid}")
        return None if _refused_attempt(status) == binding.attempt else binding

    # Publication

    async def _publish_once(self) -> None:
        """Wait for a change, let those that come with it arrive, publish what they changed."""
        self._context.health.beat("publish")
        try:
            async with asyncio.timeout(_LEASE_CHECK_S):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._settings.coalesce_ms / 1000)
        self._changed.clear()
        self._refresh()
        try:
            await self._publish_pending()
        except BusClosedError:
            raise
        except BusError as error:
            # Not connected, or not the leader any more: the lease will say which.
            self._context.log.warning("publication_delayed", error=str(error))
            await asyncio.sleep(_RETRY_S)
            self._changed.set()

    def _refresh(self) -> None:
        if self._quotas_changed:
            self._quotas_changed = False
            self._book.set_quotas(self._quota_specs.values())
            trees = self._book.forest.trees
            self._pending = {tree_id: view for tree_id, view in self._pending.items() if tree_id in trees}
        if self._cluster_changed:
            self._cluster_changed = False
            self._book.set_cluster(messages.cluster_allocatable(self._nodes.items, self._overcommit.items))
        self._pending.update({view.tree_id: view for view in self._book.refresh()})

    async def _publish_pending(self) -> None:
        """What could not be written stays pending."""
        revisions = {
            "specs": self._specs.revision,
            "bindings": self._bindings.revision,
            "nodes": self._nodes.revision,
        }
        always, self._specs_changed = self._specs_changed, False
        try:
            for tree_id, view in sorted(self._pending.items()):
                await self._publish(view, revisions, always=always)
                del self._pending[tree_id]
            for tree_id in [one for one in self._published if one not in self._book.forest.trees]:
                await self._own.batch([self._lease.guard(), Delete(tree_id)])
                del self._published[tree_id]
        except BusError:
            self._specs_changed |= always
            raise

    async def _publish(self, view: TreeView, revisions: dict[str, int], *, always: bool) -> None:
        before = self._published.get(view.tree_id)
        status = messages.tree_status(
            view,
            transitions(messages.standing_of(before), view.standing),
            generation=before.generation + 1 if before else 1,
            revisions=revisions,
            now_ms=self._context.clock.now_ms(),
        )
        if not always and messages.same_shares(before, status):
            return
        # The guard comes first, so that the revision of the batch is the status's own.
        revision = await self._own.batch([self._lease.guard(), Put(view.tree_id, codec.encode(status))])
        self._published[view.tree_id] = status
        self._publications.add(1)
        for event in messages.events_of(status, revision, self._context.instance):
            await self._announcer.announce(event)

    # Audit

    async def _audit_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.audit_interval_s)
            self._context.health.beat("audit", within_s=3 * self._settings.audit_interval_s)
            if (wrong := self._audit()) and self._lease.held:
                await self._announcer.announce(self._repair_event(wrong))

    def _audit(self) -> list[str]:
        """Compare the book with the snapshots it was made from; correct it, and return the uids that were wrong."""
        uids = {**self._pod_specs, **self._bindings_of, **self._book.pods()}
        wrong = [uid for uid in uids if self._facts_of(uid) != self._book.pods().get(uid)]
        for uid in wrong:
            self._update_pod(uid)
        if wrong:
            self._repaired += len(wrong)
            self._repairs.add(len(wrong))
            self._context.log.error("ledger_repaired", charges=len(wrong), first=wrong[0])
            self._changed.set()
        return wrong

    def _repair_event(self, wrong: list[str]) -> Event:
        now_ms = self._context.clock.now_ms()
        return Event(
            id=event_id(QUOTASTATUS, "audit", self._statuses.revision, f"at-{now_ms}"),
            type="ledger.repaired",
            at_ms=now_ms,
            source=self._context.instance,
            object=object_key("Ledger", None, "quota"),
            message=f"{len(wrong)} charges differed from specs and bindings and were corrected",
            data={"charges": len(wrong), "uids": wrong[:20]},
        )

    # Questions

    async def _on_tree_request(self, request: QuotaTreeRequest) -> QuotaTreeReply:
        statuses = {**self._statuses.items, **self._published}
        chosen = [statuses[tree] for tree in sorted(statuses) if request.tree in (None, tree)]
        return QuotaTreeReply(trees=[status.model_dump(exclude_none=True) for status in chosen])

    def debug_state(self) -> dict[str, Any]:
        if not self._opened:
            return {"state": "opening buckets"}
        forest = self._book.forest
        return {
            "leading": self._lease.held,
            "epoch": self._lease.epoch,
            "trees": {tree_id: len(tree.specs) for tree_id, tree in forest.trees.items()},
            "detached": {name: problem.message for name, problem in forest.detached.items()},
            "pods": len(self._book.pods()),
            "generations": {tree_id: status.generation for tree_id, status in self._published.items()},
            "revisions": {"specs": self._specs.revision, "bindings": self._bindings.revision},
            "pending_events": self._announcer.pending,
            "charges_repaired": self._repaired,
        }


def _refused_attempt(status: PodStatusRecord | None) -> int | None:
    return status.attempt if status is not None and status.rejected else None
