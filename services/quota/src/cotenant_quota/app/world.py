"""What quota knows of pods, quotas and capacity, kept current from the buckets."""

import asyncio
from typing import Any

from cotenant_common.bus.protocol import Bus
from cotenant_common.contracts.buckets import BINDINGS, NODES, OVERCOMMIT, PODSTATUS, QUOTASTATUS, SPECS
from cotenant_common.contracts.messages.state import (
    Binding,
    NodeInventory,
    OvercommitRecord,
    PodStatusRecord,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.model.ids import encode_token, object_key, spec_key
from cotenant_common.model.pod import Pod
from cotenant_common.model.quantity import QuantityError
from cotenant_common.model.quota.spec import QuotaSpec, parse_quota
from cotenant_common.model.quota.validate import check_apply
from cotenant_common.runtime.audit import Drift
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.telemetry.logging import Logger
from cotenant_quota.adapters import capacity, pods
from cotenant_quota.core.book import QuotaBook, TreeView
from cotenant_quota.core.pods import PodFacts
from cotenant_quota.core.tree_book import Options


class World:
    """Mirrors with the book over them. Nothing in here writes.

    Callbacks are plain and quick: they note what changed, and ``refresh`` does the work once for all of it.
    """

    def __init__(self, options: Options, log: Logger) -> None:
        self.book = QuotaBook(options)
        self.changed = asyncio.Event()
        self.specs_changed = False
        """Somebody waits to hear that a spec was seen, even if it changes no share."""
        self.profiles: dict[str, SpecRecord] = {}
        self.node_specs: dict[str, SpecRecord] = {}
        self._log = log
        self._quota_specs: dict[str, QuotaSpec] = {}
        self._pod_specs: dict[str, SpecRecord] = {}
        self._parsed: dict[str, tuple[SpecRecord, Pod]] = {}
        self._pod_groups: dict[str, SpecRecord] = {}
        self._bindings_of: dict[str, Binding] = {}
        self._quotas_changed = True
        self._capacity_changed = True

    async def open(self, bus: Bus) -> None:
        """Make the mirrors; ``run`` of each fills them."""
        self.own = await bus.bucket(QUOTASTATUS)
        self.statuses = BucketMirror(self.own, QuotaTreeStatus)
        self.specs = BucketMirror(await bus.bucket(SPECS), SpecRecord, on_change=self._on_spec)
        self.bindings = BucketMirror(await bus.bucket(BINDINGS), Binding, on_change=self._on_binding)
        self.pod_statuses = BucketMirror(await bus.bucket(PODSTATUS), PodStatusRecord, on_change=self._on_pod_status)
        self.nodes = BucketMirror(await bus.bucket(NODES), NodeInventory, on_change=self._on_capacity)
        self.overcommit = BucketMirror(await bus.bucket(OVERCOMMIT), OvercommitRecord, on_change=self._on_capacity)

    def mirrors(self) -> list[BucketMirror[Any]]:
        return [self.statuses, self.specs, self.bindings, self.pod_statuses, self.nodes, self.overcommit]

    def revisions(self) -> dict[str, int]:
        return {
            "specs": self.specs.revision,
            "bindings": self.bindings.revision,
            "nodes": self.nodes.revision,
        }

    def refresh(self) -> tuple[TreeView, ...]:
        """The trees that changed since the last call."""
        if self._quotas_changed:
            self._quotas_changed = False
            self.book.set_quotas(self._quota_specs.values())
        if self._capacity_changed:
            self._capacity_changed = False
            self.book.set_cluster(self._cluster())
        return self.book.refresh()

    def _cluster(self) -> dict[str, int]:
        return capacity.cluster_allocatable(self.nodes.items, self.overcommit.items, self.node_specs)

    def manifest(self, namespace: str, quota: str) -> dict[str, Any] | None:
        """An ElasticQuota as it is stored."""
        record = self.specs.items.get(spec_key("ElasticQuota", namespace, quota))
        return record.manifest if record is not None else None

    # Mirror callbacks

    def _on_spec(self, _key: str, old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        record = new or old
        if record is None:
            return
        match record.kind:
            case "Pod":
                self._on_pod_spec(old, new)
            case "ElasticQuota":
                self._on_quota_spec(old, new)
            case "PodGroup":
                self._keep(self._pod_groups, record, new)
                self._update_members(record)
            case "Node":
                self._keep(self.node_specs, record, new)
                self._on_capacity()
            case "ElasticQuotaProfile":
                self._keep(self.profiles, record, new)

    @staticmethod
    def _keep(records: dict[str, SpecRecord], record: SpecRecord, new: SpecRecord | None) -> None:
        key = record.name if record.namespace is None else f"{record.namespace}/{record.name}"
        if new is None:
            records.pop(key, None)
        else:
            records[key] = new

    def _on_pod_spec(self, old: SpecRecord | None, new: SpecRecord | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            # A successor keeps the key and has a uid of its own.
            self._pod_specs.pop(old.uid, None)
            self._parsed.pop(old.uid, None)
            self._update_pod(old.uid)
        if new is not None:
            self._pod_specs[new.uid] = new
            self._update_pod(new.uid)
            # The scheduler waits for a status that covers the pod's spec, whatever changed in it.
            self.book.touch(new.uid)
        self.specs_changed = True
        self.changed.set()

    def _on_quota_spec(self, old: SpecRecord | None, new: SpecRecord | None) -> None:
        if new is None:
            if old is not None:
                self._quota_specs.pop(object_key(old.kind, old.namespace, old.name), None)
        else:
            spec, problems = parse_quota(new.manifest)
            if spec is None:
                # The last good version holds; a quota that never was good does not exist.
                self._log.error("quota_unusable", quota=new.name, problems=[str(one) for one in problems])
                return
            self._warn_of(spec)
            self._quota_specs[object_key(new.kind, new.namespace, new.name)] = spec
        self._quotas_changed = self.specs_changed = True
        self.changed.set()

    def _warn_of(self, spec: QuotaSpec) -> None:
        """A quota that breaks a rule is used all the same: sharing copes, and its author should hear of it.

        Not during the snapshot, where parents may still be on their way.
        """
        if not self.specs.ready:
            return
        existing = {one.name: one for one in self._quota_specs.values()}
        for problem in check_apply(existing, spec):
            self._log.warning("quota_questionable", quota=spec.name, field=problem.path, problem=problem.message)

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
        self.changed.set()

    def _on_pod_status(
        self, _key: str, old: PodStatusRecord | None, new: PodStatusRecord | None, _revision: int
    ) -> None:
        """Only refused bindings matter here: that a pod ended is in its spec."""
        changed = new or old
        if changed is not None and _refused_attempt(old) != _refused_attempt(new):
            self._update_pod(changed.uid)
            self.changed.set()

    def _on_capacity(self, *_: object) -> None:
        self._capacity_changed = True
        self.changed.set()

    def _update_members(self, group: SpecRecord) -> None:
        """What a gang cannot do without has changed. Rare, so that an index would cost more than it saves."""
        for uid, known in list(self.book.pods().items()):
            if known.gang is not None and (known.namespace, known.gang.name) == (group.namespace, group.name):
                self._update_pod(uid)

    def _update_pod(self, uid: str) -> None:
        facts = self._facts_of(uid)
        if facts is None:
            self.book.remove_pod(uid)
        else:
            self.book.set_pod(facts)

    def _facts_of(self, uid: str) -> PodFacts | None:
        try:
            return pods.pod_facts(self._pod_specs.get(uid), self._accepted_binding(uid), self._pod_groups, self._read)
        except QuantityError as error:
            self._log.warning("pod_unusable", uid=uid, error=str(error))
            return None

    def _read(self, spec: SpecRecord) -> Pod:
        """Parsing costs far more than all else an audit of the book does, and a record never changes."""
        known = self._parsed.get(spec.uid)
        if known is None or known[0] is not spec:
            known = self._parsed[spec.uid] = (spec, pods.read_pod(spec))
        return known[1]

    def _accepted_binding(self, uid: str) -> Binding | None:
        """A binding that its agent refused holds nothing, though it stands until the next attempt replaces it."""
        binding = self._bindings_of.get(uid)
        if binding is None:
            return None
        status = self.pod_statuses.items.get(f"{encode_token(binding.node)}.{uid}")
        return None if _refused_attempt(status) == binding.attempt else binding

    def audit(self) -> list[Drift]:
        """Compare the book with the snapshots it was made from; correct it, and return what was wrong."""
        drifts = []
        for uid in {**self._pod_specs, **self._bindings_of, **self.book.pods()}:
            believed, actual = self.book.pods().get(uid), self._facts_of(uid)
            if believed != actual:
                drifts.append(_drift(uid, believed, actual))
                self._update_pod(uid)
        if drifts:
            self.changed.set()
        return drifts


def _refused_attempt(status: PodStatusRecord | None) -> int | None:
    return status.attempt if status is not None and status.rejected else None


def _drift(uid: str, believed: PodFacts | None, actual: PodFacts | None) -> Drift:
    known = actual or believed
    named = object_key("Pod", known.namespace, known.name) if known is not None else f"Pod/-/{uid}"
    return Drift("quota_charges", named, _charged(believed), _charged(actual), uid)


def _charged(pod: PodFacts | None) -> dict[str, Any] | None:
    if pod is None:
        return None
    return {"quota": pod.quota_label, "request": dict(pod.request), "node": pod.node, "preemptible": pod.preemptible}
