"""Mirrors of the buckets kept in step with the engine: a change of one object touches only what it is about."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.bus.protocol import Bus
from cotenant_common.contracts import buckets
from cotenant_common.contracts.messages.state import (
    Binding,
    NodeInventory,
    OvercommitRecord,
    PodSchedRecord,
    PodStatusRecord,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.model.ids import decode_token, encode_token
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_scheduler.adapters import facts
from cotenant_scheduler.adapters.requests import RequestReader
from cotenant_scheduler.adapters.usage import UsageWindow
from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.estimate import Aggregation, LoadPolicy
from cotenant_scheduler.core.ledger import Drift
from cotenant_scheduler.core.profile import Profile
from cotenant_scheduler.core.request import PodRequest

_NODE_PREFIX: Final = "Node.-."
_READ_AT_A_TIME: Final = 64
_BUDGET_PREFIX: Final = "PodDisruptionBudget."


@dataclass(frozen=True, slots=True)
class Rejection:
    """An agent refused a binding; the pod goes back to the queue once this is on record."""

    binding: Binding
    reason: str
    message: str


@dataclass(slots=True)
class Listeners:
    """What the service does when reality changes; all plain and quick."""

    work: Callable[[], None] = lambda: None
    rejected: Callable[[Rejection], None] = lambda _: None
    orphaned: Callable[[str, int | None], None] = lambda _key, _revision: None
    forgotten: Callable[[str], None] = lambda _uid: None
    started: Callable[[PodStatusRecord], None] = lambda _status: None
    configured: Callable[[], None] = lambda: None


class ClusterState:
    """``engine`` is None until ``rebuild``: nothing is derived from half a snapshot."""

    def __init__(self, make_engine: Callable[[Profile], Engine], profile: Profile, windows_ms: tuple[int, int]) -> None:
        self.engine: Engine | None = None
        self.listeners = Listeners()
        self.profile = profile
        self.in_flight: dict[str, None] = {}
        """uids whose binding is on its way: charged though the mirror does not show it yet."""
        self._make_engine = make_engine
        self._windows_ms = windows_ms
        self._windows: dict[str, UsageWindow] = {}
        self._requests: dict[str, PodRequest] = {}
        self._reader = RequestReader(profile.load)
        self._read_for: tuple[LoadPolicy, frozenset[str]] = (profile.load, frozenset())
        self._spec_key_of: dict[str, str] = {}
        self._binding_of: dict[str, str] = {}
        self._charges: dict[str, tuple[tuple[Binding, PodRequest | None, PodStatusRecord | None], Charge]] = {}
        """Made once from what never changes: an audit asks for all of them."""
        self._recorded: dict[str, int] = {}
        self._ended: dict[str, None] = {}
        """Bound pods of which nothing runs any more; they stay ended when their status goes before the binding."""

    async def open(self, bus: Bus) -> None:
        self.specs = BucketMirror(await bus.bucket(buckets.SPECS), SpecRecord, on_change=self._on_spec)
        self.bindings = BucketMirror(await bus.bucket(buckets.BINDINGS), Binding, on_change=self._on_binding)
        self.statuses = BucketMirror(await bus.bucket(buckets.PODSTATUS), PodStatusRecord, on_change=self._on_status)
        self.nodes = BucketMirror(await bus.bucket(buckets.NODES), NodeInventory, on_change=self._on_node)
        self.overcommit = BucketMirror(await bus.bucket(buckets.OVERCOMMIT), OvercommitRecord, on_change=self._on_node)
        self.quotas = BucketMirror(await bus.bucket(buckets.QUOTASTATUS), QuotaTreeStatus, on_change=self._on_quota)
        self.records = BucketMirror(await bus.bucket(buckets.PODSCHED), PodSchedRecord)

    def mirrors(self) -> list[BucketMirror[Any]]:
        return [self.specs, self.bindings, self.statuses, self.nodes, self.overcommit, self.quotas, self.records]

    def rebuild(self, profile: Profile | None = None) -> Engine:
        """A new engine from what the buckets say now; assumptions of an earlier leadership go with the old one."""
        self.profile = profile or self.profile
        self.in_flight.clear()
        self._recorded.clear()
        self._ended.clear()
        self._spec_key_of = {
            record.uid: key for key, record in sorted(self.specs.items.items()) if record.kind == "Pod"
        }
        self._binding_of = {}
        self._charges.clear()
        for key, binding in sorted(self.bindings.items.items(), key=lambda item: item[1].attempt):
            self._binding_of[binding.uid] = key
        engine = self.engine = self._make_engine(self.profile)
        self._read_with(self.profile.load, engine.annotations)
        engine.set_quota_objects(facts.quota_objects(self.all_specs()))
        self._refresh_budgets()
        for status in self._sorted(self.quotas):
            engine.set_quota_tree(facts.quota_tree(status))
        for name in self._node_names():
            self._refresh_node(name)
        for uid in sorted({**self._spec_key_of, **self._binding_of}):
            self.refresh_pod(uid)
        self._keep_promises(engine)
        return engine

    async def read_ahead(self, profile: Profile) -> None:
        """Read the pods that ``rebuild`` will need, with pauses.

        Thousands of pods that all differ take longer to read than a lease lives, and who rebuilt from them in one go
        had lost it by then, and the next one too.
        """
        self._read_with(profile.load, self._make_engine(profile).annotations)
        for count, uid in enumerate(tuple(self._spec_key_of), start=1):
            self.request(uid)
            if count % _READ_AT_A_TIME == 0:
                await asyncio.sleep(0)

    def _read_with(self, policy: LoadPolicy, annotations: frozenset[str]) -> None:
        """What was read for another policy says something else."""
        if self._read_for != (policy, annotations):
            self._read_for = (policy, annotations)
            self._requests.clear()
            self._reader = RequestReader(policy, annotations)

    def stand_by(self) -> None:
        """Keep the mirrors warm and decide nothing."""
        self.engine = None
        self.in_flight.clear()

    def _sorted(self, mirror: BucketMirror[Any]) -> list[Any]:
        return [mirror.items[key] for key in sorted(mirror.items)]

    def _node_names(self) -> list[str]:
        specs = (key.removeprefix(_NODE_PREFIX) for key in self.specs.items if key.startswith(_NODE_PREFIX))
        return sorted({decode_token(token) for token in (*specs, *self.nodes.items)})

    def _on_node(self, key: str, *_: object) -> None:
        self._refresh_node(decode_token(key))

    def _refresh_node(self, name: str) -> None:
        if self.engine is None:
            return
        token = encode_token(name)
        inventory, record = self.nodes.items.get(token), self.specs.items.get(_NODE_PREFIX + token)
        if inventory is None and record is None:
            self._windows.pop(name, None)
            self.engine.remove_node(name)
        else:
            self.engine.set_node(facts.node_facts(name, inventory, record, self.overcommit.items.get(token)))
            self._refresh_metric(name)
        self.listeners.work()

    def add_usage(self, sample: NodeUsage) -> None:
        window = self._windows.get(sample.node)
        if window is None:
            window = self._windows[sample.node] = UsageWindow(*self._windows_ms)
        if window.add(sample) and self.engine is not None:
            self._refresh_metric(sample.node)
            self.listeners.work()

    def _refresh_metric(self, name: str) -> None:
        window = self._windows.get(name)
        if window is not None and self.engine is not None:
            self.engine.set_metric(name, window.metric(self._wanted(name)))

    def _wanted(self, name: str) -> list[Aggregation]:
        engine = self.engine
        own = None
        if engine is not None and name in engine.cluster.rows:
            own = engine.cluster.node(engine.cluster.rows[name]).thresholds
        policy = self.profile.load
        wanted = (policy.thresholds.aggregation, policy.score_aggregation, own.aggregation if own else None)
        return list(dict.fromkeys(each for each in wanted if each is not None))

    def _on_quota(self, _key: str, old: QuotaTreeStatus | None, new: QuotaTreeStatus | None, _revision: int) -> None:
        if self.engine is None:
            return
        if new is not None:
            if old is not None and new.generation < old.generation:
                # The mirror keeps the order of writes, so this is a store made anew and not a late message.
                self.engine.remove_quota_tree(new.tree)
            self.engine.set_quota_tree(facts.quota_tree(new))
        elif old is not None:
            self.engine.remove_quota_tree(old.tree)
        self.listeners.work()

    def _on_spec(self, key: str, old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        kind = key.partition(".")[0]
        if kind == "Pod":
            self._on_pod(key, old, new)
        elif kind == "Node":
            self._refresh_node(decode_token(key.removeprefix(_NODE_PREFIX)))
        elif kind == "ElasticQuota" and self.engine is not None:
            self.engine.set_quota_objects(facts.quota_objects(self.all_specs()))
            self.listeners.work()
        elif kind == "PodDisruptionBudget":
            self._refresh_budgets()
        elif kind == "ConfigMap" and self.engine is not None:
            self.listeners.configured()

    def _on_pod(self, key: str, old: SpecRecord | None, new: SpecRecord | None) -> None:
        """A successor has its predecessor's key and a uid of its own."""
        if old is not None and (new is None or new.uid != old.uid):
            self._spec_key_of.pop(old.uid, None)
            self._requests.pop(old.uid, None)
            self._recorded.pop(old.uid, None)
            self.refresh_pod(old.uid)
            self.listeners.forgotten(old.uid)
        if new is not None:
            self._spec_key_of[new.uid] = key
            self._requests.pop(new.uid, None)
            self.refresh_pod(new.uid)

    def _on_binding(self, key: str, old: Binding | None, new: Binding | None, _revision: int) -> None:
        if new is not None:
            self.in_flight.pop(new.uid, None)
            known = self.binding(new.uid)
            if known is None or known.attempt <= new.attempt:
                self._binding_of[new.uid] = key
            self.refresh_pod(new.uid)
        elif old is not None:
            if self._binding_of.get(old.uid) == key:
                del self._binding_of[old.uid]
                self._charges.pop(old.uid, None)
            self.refresh_pod(old.uid)

    def _on_status(self, _key: str, old: PodStatusRecord | None, new: PodStatusRecord | None, _revision: int) -> None:
        status = new or old
        if status is None or self.engine is None:
            return
        before = (old.terminal, old.rejected, old.attempt, old.started_ms) if old is not None else None
        if new is None or before != (new.terminal, new.rejected, new.attempt, new.started_ms):
            self.refresh_pod(status.uid)
        if new is not None and new.started_ms is not None and (old is None or old.started_ms != new.started_ms):
            self.listeners.started(new)

    def refresh_pod(self, uid: str) -> None:
        """Make the engine agree with the buckets about one pod: it holds something, or waits, or neither."""
        engine = self.engine
        if engine is None:
            return
        self._note_end(uid)
        if uid in self.in_flight:
            # The placement is newer than anything the buckets say; its binding comes or is lost, and both end here.
            return
        charge = self.charge(uid)
        if charge is not None:
            self._note_leaving(engine, uid)
            engine.put_charge(charge)
            self._drop_orphan(uid)
        else:
            engine.release(uid)
            self._queue_or_forget(engine, uid)
        self.listeners.work()

    def _note_leaving(self, engine: Engine, uid: str) -> None:
        record = self.record(uid)
        if record is not None and (leaving := facts.leaving(record)) is not None:
            engine.room.set_leaving(uid, leaving)

    def _keep_promises(self, engine: Engine) -> None:
        """Room that was freed for somebody before this engine was built, told by the successors of those who left."""
        for record in self.all_specs():
            pod = self.request(record.uid) if record.kind == "Pod" and record.evicted else None
            for promise in facts.promises(record, pod.shape.request) if pod is not None else ():
                row = engine.cluster.rows.get(promise.node)
                if row is not None and engine.ledger.get(promise.uid) is None:
                    engine.room.promise(promise, list(engine.cluster.placed[row].values()))

    def _refresh_budgets(self) -> None:
        if self.engine is not None:
            keys = sorted(key for key in self.specs.items if key.startswith(_BUDGET_PREFIX))
            self.engine.budgets.set(facts.budgets(self.specs.items[key] for key in keys))

    def _note_end(self, uid: str) -> None:
        binding, record = self.binding(uid), self.record(uid)
        if binding is None:
            self._ended.pop(uid, None)
            return
        status = self.status(binding)
        ended = status is not None and status.terminal and not status.rejected
        if ended or (record is not None and record.terminal_ms is not None):
            self._ended[uid] = None

    def _queue_or_forget(self, engine: Engine, uid: str) -> None:
        record, rejection = self.record(uid), self.rejection(uid)
        if record is None or not self._wants_a_place(record):
            engine.withdraw(uid)
            self._drop_orphan(uid)
        elif rejection is not None and self._recorded.get(uid) != rejection.binding.attempt:
            engine.hold(uid)
            self.listeners.rejected(rejection)
        elif rejection is not None or self.binding(uid) is None:
            self._submit(engine, uid)

    def _submit(self, engine: Engine, uid: str) -> None:
        """A pod that can no longer be read must not be placed as it was read once."""
        pod = self.request(uid)
        if pod is None:
            engine.withdraw(uid)
        else:
            engine.submit(pod)

    def requeue(self, rejection: Rejection, until_ms: int) -> None:
        """The refusal is on record: the pod may try elsewhere."""
        uid = rejection.binding.uid
        record = self.record(uid)
        current = self.rejection(uid)
        if self.engine is None or current != rejection or record is None or not self._wants_a_place(record):
            return
        if (pod := self.request(uid)) is not None:
            self._recorded[uid] = rejection.binding.attempt
            self.engine.exclude(uid, rejection.binding.node, until_ms)
            self.engine.submit(pod)
            self.listeners.work()

    def _drop_orphan(self, uid: str) -> None:
        """A binding whose spec went is removed; one that a re-created store merely lost is kept for a human."""
        key = self._binding_of.get(uid)
        if uid in self.in_flight:
            return
        if key is not None and self.record(uid) is None and not self.specs.orphans:
            self.listeners.orphaned(key, self.bindings.revision_of(key))

    @staticmethod
    def _wants_a_place(record: SpecRecord) -> bool:
        return record.deletion is None and record.terminal_ms is None

    def all_specs(self) -> list[SpecRecord]:
        return self._sorted(self.specs)

    def record(self, uid: str) -> SpecRecord | None:
        key = self._spec_key_of.get(uid)
        return self.specs.items.get(key) if key is not None else None

    def request(self, uid: str) -> PodRequest | None:
        """The pod as read from its spec; None when there is no spec or it cannot be read."""
        key = self._spec_key_of.get(uid)
        record = self.specs.items.get(key) if key is not None else None
        if key is None or record is None:
            return None
        if uid not in self._requests:
            pod = self._reader.read(record, self.specs.revision_of(key) or 0)
            if pod is None:
                return None
            self._requests[uid] = pod
        return self._requests[uid]

    def binding(self, uid: str) -> Binding | None:
        key = self._binding_of.get(uid)
        return self.bindings.items.get(key) if key is not None else None

    def binding_key(self, uid: str) -> tuple[str, int | None] | None:
        key = self._binding_of.get(uid)
        return None if key is None else (key, self.bindings.revision_of(key))

    def status(self, binding: Binding) -> PodStatusRecord | None:
        return self.statuses.items.get(f"{encode_token(binding.node)}.{binding.uid}")

    def rejection(self, uid: str) -> Rejection | None:
        """The agent's refusal of the binding as it stands."""
        binding = self.binding(uid)
        status = self.status(binding) if binding is not None else None
        if binding is None or status is None or not status.rejected or status.attempt != binding.attempt:
            return None
        return Rejection(binding, status.reason or "BindRejected", status.message or "the agent gave no reason")

    def charge(self, uid: str) -> Charge | None:
        """What the buckets say the pod holds. Refused and ended bindings hold nothing, though their keys stand."""
        binding = self.binding(uid)
        if binding is None or uid in self._ended or self.rejection(uid) is not None:
            return None
        made_from = (binding, self.request(uid), self.status(binding))
        known = self._charges.get(uid)
        if known is None or not all(was is now for was, now in zip(known[0], made_from, strict=True)):
            known = self._charges[uid] = (made_from, facts.charge_from(*made_from))
        return known[1]

    def charges(self) -> dict[str, Charge]:
        found = ((uid, self.charge(uid)) for uid in self._binding_of)
        return {uid: charge for uid, charge in found if charge is not None}

    def audit(self) -> tuple[Drift, ...]:
        """Compare, repair, report. What is being written right now is left alone."""
        engine = self.engine
        if engine is None:
            return ()
        drifts = tuple(drift for drift in engine.audit(self.charges()) if drift.uid not in self.in_flight)
        for drift in drifts:
            self.refresh_pod(drift.uid)
        for uid in sorted(self._binding_of):
            self._drop_orphan(uid)
        return drifts
