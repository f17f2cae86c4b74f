"""What happened, in the stable names of the outcome: read from the streams, the way anybody outside could."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.buckets import BucketSpec, is_bookkeeping
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    MigrationRecord,
    NodeInventory,
    OvercommitRecord,
    PodSchedRecord,
    PodStatusRecord,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.model import resources
from cotenant_common.model.ids import encode_token
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_gateway.adapters.records import to_seen, to_spec, to_waiting
from cotenant_gateway.core import views
from cotenant_gateway.core.records import PodState
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.core.charges import used_by_quota

M = TypeVar("M", bound=Message)
Json = dict[str, Any]

_POD: Final = "Pod."


@dataclass(frozen=True, slots=True)
class Ledger:
    """``charged`` are the bindings of pods that have not ended; ``quotas`` the maxima as written."""

    bound: list[Binding]
    charged: list[Binding]
    allocatable: dict[str, dict[str, int]]
    quotas: dict[str, dict[str, Any]]
    pods: list[str]


class Recorder:
    """Keeps the last words about pods that are gone; everything else stands in the buckets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._decoded: dict[tuple[str, str], tuple[int, Any]] = {}
        self._pods: dict[str, Json] = {}
        self._last: dict[str, Entry] = {}
        self._raw_bindings: dict[str, bytes] = {}
        self._raw_statuses: dict[str, bytes] = {}
        self._events: list[Json] = []
        cluster.server.store(buckets.SPECS).listeners.append(self._on_spec)
        cluster.server.store(buckets.BINDINGS).listeners.append(self._on_binding)
        cluster.server.store(buckets.PODSTATUS).listeners.append(self._on_status)

    def _on_spec(self, entry: Entry) -> None:
        if not entry.key.startswith(_POD):
            return
        if entry.value is not None:
            self._last[entry.key] = entry
            self._pods.pop(_name_of(entry.key), None)
        elif (last := self._last.pop(entry.key, None)) is not None and last.value is not None:
            record = codec.decode(SpecRecord, last.value)
            self._pods[f"{record.namespace}/{record.name}"] = self._deleted(record)

    def _on_binding(self, entry: Entry) -> None:
        if entry.value is not None and not is_bookkeeping(entry.key):
            self._raw_bindings[entry.key.partition(".")[0]] = entry.value

    def _on_status(self, entry: Entry) -> None:
        if entry.value is not None and not is_bookkeeping(entry.key):
            self._raw_statuses[entry.key.partition(".")[2]] = entry.value

    def _last_binding(self, uid: str) -> Binding | None:
        raw = self._raw_bindings.get(uid)
        return None if raw is None else codec.decode(Binding, raw)

    def _read(self, spec: BucketSpec, model: type[M]) -> dict[str, M]:
        """Every live value by key; one that has not changed is not decoded again."""
        found: dict[str, M] = {}
        for entry in self._cluster.server.store(spec).live(">"):
            if is_bookkeeping(entry.key) or entry.value is None:
                continue
            known = self._decoded.get((spec.name, entry.key))
            if known is None or known[0] != entry.revision:
                known = (entry.revision, codec.decode(model, entry.value))
                self._decoded[spec.name, entry.key] = known
            found[entry.key] = known[1]
        return found

    def outcome(self) -> Json:
        """Everything as it stands now."""
        specs = self._read(buckets.SPECS, SpecRecord)
        statuses = _by_uid(self._read(buckets.PODSTATUS, PodStatusRecord).values())
        bindings = {one.uid: one for one in self._read(buckets.BINDINGS, Binding).values()}
        charged = _charged(bindings.values(), statuses)
        events = self.events()
        return {
            "virtual_ms": self._cluster.clock.now_ms() - self._cluster.epoch_ms,
            "pods": self._pods_now(specs, statuses, bindings, events),
            "nodes": self._nodes_now(specs, charged, events),
            "quotas": self._quotas_now(specs.values(), charged),
            "reservations": {},
            "migrations": self._migrations_now(),
            "events": events,
        }

    def ledger(self) -> "Ledger":
        """What is charged to whom, straight from the buckets."""
        specs = self._read(buckets.SPECS, SpecRecord)
        statuses = _by_uid(self._read(buckets.PODSTATUS, PodStatusRecord).values())
        bound = list(self._read(buckets.BINDINGS, Binding).values())
        return Ledger(
            bound=bound,
            charged=_charged(bound, statuses),
            allocatable={one.node: one.allocatable for one in self._read(buckets.NODES, NodeInventory).values()},
            quotas={
                one.name: (one.manifest.get("spec") or {}).get("max") or {}
                for one in specs.values()
                if one.kind == "ElasticQuota"
            },
            pods=[f"{one.namespace}/{one.name}" for one in specs.values() if one.kind == "Pod"],
        )

    def charged(self) -> list[Binding]:
        """The bindings of pods that have not ended."""
        statuses = _by_uid(self._read(buckets.PODSTATUS, PodStatusRecord).values())
        return _charged(self._read(buckets.BINDINGS, Binding).values(), statuses)

    # Pods

    def _pods_now(
        self,
        specs: Mapping[str, SpecRecord],
        statuses: Mapping[str, list[PodStatusRecord]],
        bindings: Mapping[str, Binding],
        events: Iterable[Json],
    ) -> Json:
        waiting = self._read(buckets.PODSCHED, PodSchedRecord)
        pods = self._gone(events)
        for record in specs.values():
            if record.kind == "Pod":
                uid = record.uid
                pods[f"{record.namespace}/{record.name}"] = _pod(
                    record, statuses.get(uid, []), bindings.get(uid), waiting.get(uid)
                )
        return dict(sorted(pods.items()))

    def _deleted(self, record: SpecRecord) -> Json:
        """As it was when it left; the reason is that of its mark."""
        raw = self._raw_statuses.get(record.uid)
        statuses = [] if raw is None else [codec.decode(PodStatusRecord, raw)]
        last = self._last_binding(record.uid)
        shown = _pod(record, statuses, last, None)
        return shown | {"phase": "Deleted", "node": None if last is None else last.node}

    def _gone(self, events: Iterable[Json]) -> Json:
        """Pods that nobody wants any more, with the reason that the gateway gave for each."""
        pods = dict(self._pods)
        for event in events:
            name = event["object"].partition("/")[2]
            if event["type"] == "pod.deleted" and name in pods:
                pods[name] = pods[name] | {"reason": event["reason"], "message": event["message"]}
        return pods

    # Nodes

    def _nodes_now(self, specs: Mapping[str, SpecRecord], charged: Iterable[Binding], events: list[Json]) -> Json:
        inventories = self._read(buckets.NODES, NodeInventory)
        sold = self._read(buckets.OVERCOMMIT, OvercommitRecord)
        heat = _heat(events)
        requested: dict[str, dict[str, int]] = {}
        for binding in charged:
            requested[binding.node] = resources.add(requested.get(binding.node, {}), binding.requests)
        found: Json = {}
        for record in specs.values():
            if record.kind != "Node":
                continue
            key = encode_token(record.name)
            inventory, offer = inventories.get(key), sold.get(key)
            found[record.name] = {
                "allocatable": None if inventory is None else dict(inventory.allocatable),
                "requested": dict(sorted(requested.get(record.name, {}).items())),
                "usage": self._usage(record.name),
                "batch": _sold(None if offer is None else offer.batch),
                "mid": _sold(None if offer is None else offer.mid),
                "classification": heat.get(record.name),
            }
        return dict(sorted(found.items()))

    def _usage(self, name: str) -> Json:
        """What the simulated kernel gave, whatever the agent was shown."""
        node = self._cluster.nodes.get(name)
        if node is None:
            return {CPU: None, MEMORY: None}
        return {CPU: node.machine.used_milli(), MEMORY: node.machine.used_bytes()}

    # Quotas and migrations

    def _quotas_now(self, specs: Iterable[SpecRecord], charged: Iterable[Binding]) -> Json:
        used = used_by_quota(specs, charged)
        found: Json = {}
        for tree in self._read(buckets.QUOTASTATUS, QuotaTreeStatus).values():
            for quota in tree.quotas:
                named = used.get(quota.name, {})
                keys = quota.max or (CPU, MEMORY, *named)
                dimensions = sorted({*quota.min, *quota.used, *keys})
                found[quota.name] = {
                    "min": dict(quota.min),
                    "max": dict(quota.max),
                    "request": dict(quota.request),
                    "used": {name: named.get(name, 0) for name in dimensions},
                    "runtime": dict(quota.runtime),
                    "guaranteed": dict(quota.guaranteed),
                }
        return dict(sorted(found.items()))

    def _migrations_now(self) -> Json:
        return {
            record.id: {
                "phase": record.phase,
                "node": record.target_node,
                "reason": record.reason,
                "message": record.message,
                "pod": f"{record.pod.namespace}/{record.pod.name}",
                "from": record.source_node,
            }
            for _, record in sorted(self._read(buckets.MIGRATIONS, MigrationRecord).items())
        }

    # Events

    def events(self) -> list[Json]:
        """In the order of the stream."""
        store = self._cluster.server.events
        for received in store.replay(after_sequence=len(self._events), since_ms=None):
            event = codec.decode(Event, received.data)
            self._events.append(
                {
                    "t_ms": event.at_ms - self._cluster.epoch_ms,
                    "type": event.type,
                    "object": event.object,
                    "reason": event.reason,
                    "message": event.message,
                    "data": event.data,
                }
            )
        return self._events


def _name_of(key: str) -> str:
    _, namespace, name = key.split(".", 2)
    return f"{namespace}/{name}".replace("_", ".")


def _by_uid(statuses: Iterable[PodStatusRecord]) -> dict[str, list[PodStatusRecord]]:
    found: dict[str, list[PodStatusRecord]] = {}
    for status in statuses:
        found.setdefault(status.uid, []).append(status)
    return found


def _charged(bound: Iterable[Binding], statuses: Mapping[str, Sequence[PodStatusRecord]]) -> list[Binding]:
    """Those of pods that have not ended."""
    return [one for one in bound if not any(status.terminal for status in statuses.get(one.uid, ()))]


def _pod(
    record: SpecRecord,
    statuses: list[PodStatusRecord],
    binding: Binding | None,
    waiting: PodSchedRecord | None,
) -> Json:
    spec = to_spec(record)
    state = PodState(spec, to_seen(statuses), None if binding is None else binding.node)
    phase, reason, message = views.pod_state(state, to_waiting(waiting))
    pod = spec.pod()
    return {
        # A container that is still being started is not running yet; that is all the difference people care for.
        "phase": "Pending" if phase == "Starting" else phase,
        "node": state.node,
        "reason": reason,
        "message": message,
        "incarnation": record.incarnation,
        "cpuset": None if binding is None else binding.cpuset,
        "devices": (binding.devices or None) if binding is not None else None,
        "reservation": None,
        "quota": (binding.quota if binding is not None else None) or pod.quota_label,
        "priority_class": pod.band.value or None,
        "qos": pod.qos.value or None,
    }


def _sold(offer: Mapping[str, int] | None) -> Json:
    """Null is *not sold*, which is not zero."""
    return {CPU: None if offer is None else offer.get(CPU), MEMORY: None if offer is None else offer.get(MEMORY)}


def _heat(events: Iterable[Json]) -> dict[str, str]:
    """``hot`` from the event that says so until the one that takes it back."""
    found: dict[str, str] = {}
    for event in events:
        name = event["object"].rpartition("/")[2]
        if event["type"] == "node.hot":
            found[name] = "hot"
        elif event["type"] in ("node.cooled", "node.ready"):
            found[name] = "fine"
    return found
