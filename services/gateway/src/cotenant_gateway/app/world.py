"""Everything the gateway knows, kept current from the buckets, and what has changed since it was last looked at."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.bus.protocol import Bus
from cotenant_common.contracts import buckets
from cotenant_common.contracts.messages.state import (
    Binding,
    Heartbeat,
    LeaseRecord,
    NodeInventory,
    OvercommitRecord,
    PodSchedRecord,
    PodStatusRecord,
    PolicyRecord,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.model.ids import InvalidNameError, decode_token, encode_token, spec_key
from cotenant_common.runtime.clock import Clock
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_gateway.adapters.records import to_inventory, to_seen, to_spec, to_survivor, to_waiting
from cotenant_gateway.core import names, observe, slo_config
from cotenant_gateway.core.catalog import CATALOG_KINDS, Catalog
from cotenant_gateway.core.nodes import Inventory, Watched
from cotenant_gateway.core.observe import Observing
from cotenant_gateway.core.records import PodState, Seen, Spec
from cotenant_gateway.core.slo_config import SloConfig
from cotenant_gateway.core.views import Waiting

SNAPSHOT_TIMEOUT_S: Final = 30.0
Listener = Callable[[str, Spec | None, Spec | None], None]


@dataclass(slots=True)
class Dirty:
    """What has to be decided again. Dictionaries, because their order is that of arrival and sets have none."""

    pods: dict[str, None]
    owners: dict[str, None]
    nodes: dict[str, None]
    policies: bool = True
    everything: bool = True

    @staticmethod
    def all() -> "Dirty":
        return Dirty({}, {}, {})

    @property
    def any(self) -> bool:
        return bool(self.pods or self.owners or self.nodes or self.policies or self.everything)


class World:
    """Mirrors with indexes over them. Nothing in here writes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.dirty = Dirty.all()
        self.wake = asyncio.Event()
        self.catalog = Catalog()
        self.slo_config = SloConfig()
        self.slo_problems: list[slo_config.Problem] = []
        self.listeners: list[Listener] = []
        self.usage: dict[str, NodeUsage] = {}
        self.retired: dict[str, str] = {}
        """Node → agent whose node a user deleted; that agent instance does not bring it back."""
        self.listening_since_ms = clock.now_ms()
        self._specs: dict[str, Spec] = {}
        self._kinds: dict[str, dict[str, None]] = {}
        self._key_of_uid: dict[str, str] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._statuses: dict[str, dict[str, PodStatusRecord]] = {}
        self._seen: dict[str, Seen] = {}
        """What the statuses of a pod come to: asked of each pod with every sweep."""
        self._bindings: dict[str, Binding] = {}
        self._uids_on_node: dict[str, dict[str, None]] = {}
        self._beats: dict[str, int] = {}
        self._survivors: dict[str, Spec] = {}
        """Pods that outlived their store, by the key of the spec they want back."""
        self._silent: dict[str, None] = {}
        self._inventories: dict[str, Inventory] = {}
        self._config_data: dict[str, dict[str, str] | None] = {}
        self._observing: Observing | None = None
        """Read once from the ConfigMaps, which a sweep asks for each node."""

    async def open(self, bus: Bus) -> None:
        """Make the mirrors; ``run`` fills them."""
        self.specs_bucket = await bus.bucket(buckets.SPECS)
        self.policies_bucket = await bus.bucket(buckets.POLICIES)
        self.leases_bucket = await bus.bucket(buckets.LEASES)
        self.specs = BucketMirror(self.specs_bucket, SpecRecord, on_change=self._on_spec)
        self.policies = BucketMirror(self.policies_bucket, PolicyRecord)
        self.leases = BucketMirror(self.leases_bucket, LeaseRecord)
        self.statuses = BucketMirror(await bus.bucket(buckets.PODSTATUS), PodStatusRecord, on_change=self._on_status)
        self.bindings = BucketMirror(await bus.bucket(buckets.BINDINGS), Binding, on_change=self._on_binding)
        self.sched = BucketMirror(await bus.bucket(buckets.PODSCHED), PodSchedRecord)
        self.inventories = BucketMirror(await bus.bucket(buckets.NODES), NodeInventory, on_change=self._on_inventory)
        self.heartbeats = BucketMirror(await bus.bucket(buckets.HEARTBEATS), Heartbeat, on_change=self._on_beat)
        self.overcommit = BucketMirror(await bus.bucket(buckets.OVERCOMMIT), OvercommitRecord)
        self.quotas = BucketMirror(await bus.bucket(buckets.QUOTASTATUS), QuotaTreeStatus)

    @property
    def mirrors(self) -> tuple[BucketMirror[Any], ...]:
        return (
            self.specs, self.policies, self.leases, self.statuses, self.bindings, self.sched, self.inventories,
            self.heartbeats, self.overcommit, self.quotas,
        )  # fmt: skip

    async def wait_ready(self) -> None:
        """Raise MirrorNotReadyError."""
        for mirror in self.mirrors:
            await mirror.wait_ready(SNAPSHOT_TIMEOUT_S)

    # Reading

    def find(self, key: str) -> Spec | None:
        return self._specs.get(key)

    def find_object(self, kind: str, namespace: str | None, name: str) -> Spec | None:
        return self._specs.get(spec_key(kind, namespace, name))

    def of_kind(self, kind: str) -> list[Spec]:
        return [self._specs[key] for key in sorted(self._kinds.get(kind, ()))]

    def count(self, kind: str) -> int:
        return len(self._kinds.get(kind, ()))

    def pod(self, spec: Spec) -> PodState:
        binding = self._bindings.get(spec.uid)
        return PodState(spec, self._seen.get(spec.uid), binding.node if binding else None)

    def pod_of_uid(self, uid: str) -> PodState | None:
        spec = self._specs.get(self._key_of_uid.get(uid, ""))
        return self.pod(spec) if spec is not None and spec.uid == uid else None

    def pods(self) -> Iterator[PodState]:
        return (self.pod(spec) for spec in self.of_kind("Pod"))

    def children(self, owner: str) -> list[PodState]:
        return [self.pod(self._specs[key]) for key in sorted(self._children.get(owner, ()))]

    def pods_on(self, node: str) -> list[PodState]:
        found = (self.pod_of_uid(uid) for uid in sorted(self._uids_on_node.get(node, ())))
        return [pod for pod in found if pod is not None and pod.node == node]

    def waiting(self, uid: str) -> Waiting | None:
        return to_waiting(self.sched.items.get(uid))

    def binding(self, uid: str) -> Binding | None:
        return self._bindings.get(uid)

    def inventory(self, node: str) -> Inventory | None:
        return self._inventories.get(node)

    def node_names(self) -> list[str]:
        known = {**dict.fromkeys(self._inventories), **{spec.name: None for spec in self.of_kind("Node")}}
        return sorted(known)

    def silent_nodes(self) -> list[str]:
        """Known and without a live heartbeat: of all nodes only these change by time alone."""
        return sorted(self._silent)

    def _note_silence(self, node: str) -> None:
        if self.is_node(node) and encode_token(node) not in self.heartbeats.items:
            self._silent[node] = None
        else:
            self._silent.pop(node, None)

    def is_node(self, name: str) -> bool:
        try:
            return name in self._inventories or self.find_object("Node", None, name) is not None
        except InvalidNameError:
            return False

    def watched(self, node: str) -> Watched:
        return Watched(
            name=node,
            since_ms=self.listening_since_ms,
            beat_ms=self._beats.get(node),
            alive=encode_token(node) in self.heartbeats.items,
            spec=self.find_object("Node", None, node),
            inventory=self._inventories.get(node),
            retired_agent=self.retired.get(node),
        )

    def quota_used(self, name: str) -> dict[str, int]:
        """Empty while the quota service has said nothing of it."""
        known = (quota for tree in self.quotas.items.values() for quota in tree.quotas if quota.name == name)
        return next((quota.used for quota in known), {})

    def frozen(self) -> str | None:
        data = self.config_data(names.FREEZE)
        return None if data is None else str(data.get("reason") or "no reason given")

    def observing(self) -> Observing:
        if self._observing is None:
            self._observing = observe.parse(self.config_data(names.OBSERVE) or {})
        return self._observing

    def config_data(self, name: str) -> dict[str, str] | None:
        """Of the system ConfigMap that is looked at first; None when there is none."""
        if name not in self._config_data:
            self._config_data[name] = self._read_config_data(name)
        return self._config_data[name]

    def _read_config_data(self, name: str) -> dict[str, str] | None:
        for namespace in names.SYSTEM_NAMESPACES:
            spec = self.find_object("ConfigMap", namespace, name)
            if spec is not None and spec.deletion is None:
                return dict(spec.manifest.get("data") or {})
        return None

    def survivor(self, key: str) -> Spec | None:
        """What runs under this name though no object says so; None where there is an object or nothing runs."""
        return self._survivors.get(key) if key not in self._specs else None

    def survivors(self) -> list[Spec]:
        return [spec for key, spec in sorted(self._survivors.items()) if key not in self._specs]

    def survivors_of(self, owner: str) -> list[str]:
        return [spec.key for spec in self.survivors() if spec.owner == owner]

    def find_or_survivor(self, key: str) -> Spec | None:
        return self.find(key) or self.survivor(key)

    # Following

    def listen_again(self) -> None:
        """Our own connection came back: what was silent meanwhile may have spoken."""
        self.listening_since_ms = self.clock.now_ms()
        self._beats.clear()

    def touch_node(self, node: str) -> None:
        self.dirty.nodes[node] = None
        self.wake.set()

    def touch_pods(self, pods: Iterable[PodState]) -> None:
        for pod in pods:
            self.dirty.pods[pod.spec.key] = None
        self.wake.set()

    def take_dirty(self) -> Dirty:
        taken, self.dirty = self.dirty, Dirty({}, {}, {}, policies=False, everything=False)
        self.wake.clear()
        return taken

    def give_back(self, dirty: Dirty) -> None:
        """What could not be done is still to do."""
        self.dirty.pods = {**dirty.pods, **self.dirty.pods}
        self.dirty.owners = {**dirty.owners, **self.dirty.owners}
        self.dirty.nodes = {**dirty.nodes, **self.dirty.nodes}
        self.dirty.policies |= dirty.policies
        self.dirty.everything |= dirty.everything

    def _on_spec(self, key: str, _old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        before = self._specs.pop(key, None)
        after = to_spec(new) if new is not None else None
        if before is not None:
            self._forget(key, before)
        if after is not None:
            self._remember(key, after)
        self._mark_spec(before, after)
        for listener in tuple(self.listeners):
            listener(key, before, after)
        self.wake.set()

    def _forget(self, key: str, spec: Spec) -> None:
        self._kinds.get(spec.kind, {}).pop(key, None)
        if self._key_of_uid.get(spec.uid) == key:
            del self._key_of_uid[spec.uid]
        if spec.owner is not None:
            siblings = self._children.get(spec.owner, {})
            siblings.pop(key, None)
            if not siblings:
                self._children.pop(spec.owner, None)

    def _remember(self, key: str, spec: Spec) -> None:
        self._specs[key] = spec
        self._kinds.setdefault(spec.kind, {})[key] = None
        self._key_of_uid[spec.uid] = key
        if spec.owner is not None:
            self._children.setdefault(spec.owner, {})[key] = None

    def _mark_spec(self, before: Spec | None, after: Spec | None) -> None:
        spec = after or before
        if spec is None:
            return
        if spec.kind == "Pod":
            self._mark_pod(spec)
        elif spec.kind in ("Deployment", "Job"):
            self.dirty.owners[spec.object] = None
            self.dirty.pods.update(dict.fromkeys(self._children.get(spec.object, ())))
        elif spec.kind == "Node":
            self.dirty.nodes[spec.name] = None
            self.dirty.policies = True
            self._note_silence(spec.name)
        elif spec.kind == "ConfigMap":
            self._reload_config()
        if spec.kind in CATALOG_KINDS:
            self.catalog = Catalog(s for kind in CATALOG_KINDS for s in self.of_kind(kind))

    def _mark_pod(self, spec: Spec) -> None:
        self.dirty.pods[spec.key] = None
        if spec.owner is not None:
            self.dirty.owners[spec.owner] = None

    def _reload_config(self) -> None:
        self._config_data.clear()
        self._observing = None
        data: dict[str, str] = {}
        for namespace in reversed(names.SYSTEM_NAMESPACES):
            spec = self.find_object("ConfigMap", namespace, names.SLO_CONFIG)
            if spec is not None:
                data = dict(spec.manifest.get("data") or {})
        self.slo_config, problems = slo_config.parse(data, self.slo_config)
        self.slo_problems = [problem for problem in problems if problem.fatal]
        self.dirty.policies = True

    def _on_status(self, _key: str, old: PodStatusRecord | None, new: PodStatusRecord | None, _revision: int) -> None:
        record = new or old
        if record is None:
            return
        self._note_survivor(old, new)
        by_node = self._statuses.setdefault(record.uid, {})
        if new is not None:
            by_node[record.node] = new
            self._place(record.uid, record.node)
        else:
            by_node.pop(record.node, None)
            if not by_node:
                self._statuses.pop(record.uid, None)
            self._unplace(record.uid, record.node)
        seen = to_seen(by_node.values())
        if seen is not None:
            self._seen[record.uid] = seen
        else:
            self._seen.pop(record.uid, None)
        self._mark_uid(record.uid)

    def _note_survivor(self, old: PodStatusRecord | None, new: PodStatusRecord | None) -> None:
        for record in (old, new):
            spec = to_survivor(record) if record is not None else None
            if spec is None:
                continue
            if record is new:
                self._survivors[spec.key] = spec
            elif self._survivors.get(spec.key) == spec:
                del self._survivors[spec.key]
            self.dirty.pods[spec.key] = None

    def _on_binding(self, _key: str, old: Binding | None, new: Binding | None, _revision: int) -> None:
        # The next attempt's key is written in the batch that deletes the last one's: order must not lose it.
        if new is not None:
            self._bindings[new.uid] = new
            self._place(new.uid, new.node)
            self._mark_uid(new.uid)
        elif old is not None:
            current = self._bindings.get(old.uid)
            if current is not None and current.node == old.node:
                del self._bindings[old.uid]
            self._unplace(old.uid, old.node)
            self._mark_uid(old.uid)

    def _place(self, uid: str, node: str) -> None:
        self._uids_on_node.setdefault(node, {})[uid] = None

    def _unplace(self, uid: str, node: str) -> None:
        binding = self._bindings.get(uid)
        if node not in self._statuses.get(uid, {}) and (binding is None or binding.node != node):
            self._uids_on_node.get(node, {}).pop(uid, None)

    def _mark_uid(self, uid: str) -> None:
        spec = self._specs.get(self._key_of_uid.get(uid, ""))
        if spec is not None:
            self._mark_pod(spec)
            self.wake.set()

    def _on_inventory(self, key: str, _old: NodeInventory | None, new: NodeInventory | None, _revision: int) -> None:
        node = decode_token(key)
        if new is None:
            self._inventories.pop(node, None)
        else:
            self._inventories[node] = to_inventory(new)
        self.dirty.policies = True
        self._note_silence(node)
        self.touch_node(node)

    def _on_beat(self, key: str, old: Heartbeat | None, new: Heartbeat | None, _revision: int) -> None:
        node = decode_token(key)
        self._beats[node] = self.clock.now_ms()
        if old is None or new is None:
            self._note_silence(node)
            self.touch_node(node)
