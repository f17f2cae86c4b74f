"""A copy of a live system in virtual time: what its buckets hold, and machines that run what its nodes run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cotenant_agent.core.cpuset import parse_cpuset
from cotenant_agent.runtime import LaunchError
from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.buckets import BUCKETS, BucketSpec, is_bookkeeping
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.state import Binding, NodeInventory, PodStatusRecord, SpecRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.model.ids import spec_key
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.config import own_settings, sealed
from cotenant_simulator.core.scenario import AGENT, Demand, SetUsage
from cotenant_simulator.errors import SimulationError
from cotenant_simulator.node.host import NodeShape, SimulatedNode

M = TypeVar("M", bound=Message)
Json = dict[str, Any]

# A copy's nodes beat by themselves, and its services lead by leases of their own.
_SIGNS_OF_LIFE: Final = (buckets.HEARTBEATS.name, buckets.LEASES.name)
_FEW_NODES: Final = 20
_REPORT_MS: Final = 5_000
# Machines that report every second are mostly reports. What they use does not change here but by a decision, so two
# reports say as much as ten.
_SLOW_REPORTS: Final[Mapping[str, dict[str, Any]]] = {
    AGENT: {"usage_interval_ms": _REPORT_MS, "signal_interval_ms": _REPORT_MS},
    "descheduler": {"node_metric_expiration_ms": 3 * _REPORT_MS, "usage_window_ms": 2 * _REPORT_MS},
}


class SnapshotError(SimulationError):
    """What came is no snapshot that this version can read."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What ``GET /v1/snapshot`` gives, decoded. ``beating`` are the nodes whose heartbeat had not expired."""

    at_ms: int
    revisions: Mapping[str, int]
    entries: Mapping[str, Sequence[Entry]]
    usage: Mapping[str, NodeUsage]
    beating: Sequence[str]
    settings: Mapping[str, Mapping[str, Any]]
    consistent: bool
    moved: Sequence[str] = ()
    skew_ms: int = 0

    def read(self, spec: BucketSpec, model: type[M]) -> list[M]:
        """Every record of a bucket, in the order in which they were written."""
        return [
            codec.decode(model, entry.value)
            for entry in self.entries.get(spec.name, ())
            if entry.value is not None and not is_bookkeeping(entry.key)
        ]


def read_snapshot(body: Json) -> Snapshot:
    """Raise SnapshotError."""
    try:
        kept = {name: bucket for name, bucket in body["buckets"].items() if name not in _SIGNS_OF_LIFE}
        beats = body["buckets"][buckets.HEARTBEATS.name]["entries"]
        return Snapshot(
            at_ms=int(body["at_ms"]),
            revisions={name: int(bucket["revision"]) for name, bucket in kept.items()},
            entries={name: [_entry(one) for one in bucket["entries"]] for name, bucket in kept.items()},
            usage={one["node"]: NodeUsage.model_validate(one) for one in body["usage"]},
            beating=[str(one["value"]["node"]) for one in beats if isinstance(one["value"], Mapping)],
            settings=body.get("settings") or {},
            consistent=bool(body["consistent"]),
            moved=list(body.get("moved") or ()),
            skew_ms=int(body.get("skew_ms") or 0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"the gateway's snapshot cannot be read: {type(error).__name__}: {error}") from error


def _entry(one: Json) -> Entry:
    return Entry(str(one["key"]), codec.pack(one["value"]), int(one["revision"]))


@dataclass(slots=True)
class Restored:
    """``unknown`` are running pods that nobody measured: their request stands in for their use."""

    cluster: Cluster
    unknown: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    down: list[str] = field(default_factory=list)
    """Nodes without a heartbeat: no agent runs on them here either."""


def overrides_of(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """The settings that the snapshot tells of; unknown ones come from another version and are left out."""
    found: dict[str, dict[str, Any]] = {}
    for service, values in snapshot.settings.items():
        known = own_settings(service).values()
        found[service] = {name: value for name, value in values.items() if name in known}
        sealed(service)(**found[service])
    if len(snapshot.beating) > _FEW_NODES:
        found.update(_SLOW_REPORTS)
    return found


def restore(snapshot: Snapshot) -> Restored:
    """An empty cluster at the time of the snapshot: ``fill`` it, ``power_on``, then start its services."""
    return Restored(Cluster(overrides_of(snapshot), seed=0, epoch_ms=snapshot.at_ms))


def fill(restored: Restored, snapshot: Snapshot) -> None:
    """Buckets under the revisions they have in life: records compare them, such as a quota's share with a binding."""
    for spec in BUCKETS:
        if spec.name in snapshot.entries:
            restored.cluster.server.store(spec).restore(snapshot.entries[spec.name], snapshot.revisions[spec.name])


def power_on(restored: Restored, snapshot: Snapshot) -> None:
    """Machines with what runs on them, then their agents, which adopt it."""
    cluster = restored.cluster
    inventories = {one.node: one for one in snapshot.read(buckets.NODES, NodeInventory)}
    alive = [name for name in sorted(inventories) if name in snapshot.beating]
    restored.down = sorted(set(inventories) - set(alive))
    running = _running(snapshot)
    _set_usage(restored, snapshot, running, inventories)
    for name in alive:
        cluster.boot(name)
    nodes = {name: cluster.add_node(_shape(inventories[name])) for name in alive}
    specs = {spec_key(one.kind, one.namespace, one.name): one for one in snapshot.read(buckets.SPECS, SpecRecord)}
    for status in running:
        record = specs.get(spec_key("Pod", status.namespace, status.name))
        if status.node in nodes and record is not None and record.uid == status.uid:
            _resume(restored, nodes[status.node], record, status)
    for node in nodes.values():
        cluster.start_agent(node)


def _shape(inventory: NodeInventory) -> NodeShape:
    allocatable = {name: inventory.allocatable.get(name, amount) for name, amount in inventory.capacity.items()}
    return NodeShape(
        inventory.node, inventory.capacity, allocatable, parse_cpuset(inventory.cpus), dict(inventory.labels)
    )


def _running(snapshot: Snapshot) -> list[PodStatusRecord]:
    """Of what is bound: a status whose binding is gone belongs to a pod that was stopped."""
    bound = {(one.node, one.uid) for one in snapshot.read(buckets.BINDINGS, Binding)}
    return [
        one
        for one in snapshot.read(buckets.PODSTATUS, PodStatusRecord)
        if one.phase == "Running" and not one.rejected and (one.node, one.uid) in bound
    ]


def _resume(restored: Restored, node: SimulatedNode, record: SpecRecord, status: PodStatusRecord) -> None:
    try:
        node.runtime.resume(node.runtime.read_plan(record, node.name), status.started_ms)
    except LaunchError as error:
        restored.unreadable.append(f"{record.namespace}/{record.name}: {error}")


def _set_usage(
    restored: Restored,
    snapshot: Snapshot,
    running: Iterable[PodStatusRecord],
    inventories: Mapping[str, NodeInventory],
) -> None:
    """What pods and systems used last is what they go on using, wherever a pod moves."""
    measured = {pod.uid: pod for usage in snapshot.usage.values() for pod in usage.pods}
    pods: dict[str, Demand] = {}
    held: dict[str, int] = {}
    for status in running:
        usage = measured.get(status.uid)
        if usage is None or (usage.cpu_milli is None and usage.memory_bytes is None):
            restored.unknown.append(f"{status.namespace}/{status.name}")
            continue
        pods[f"{status.namespace}/{status.name}"] = Demand(usage.cpu_milli, usage.memory_bytes)
        held[status.node] = held.get(status.node, 0) + (usage.memory_bytes or 0)
    demands = restored.cluster.demands
    demands.begin(SetUsage(None, None, pods))
    for name, usage_of_node in sorted(snapshot.usage.items()):
        if name in inventories:
            system = usage_of_node.system
            room = max(0, inventories[name].capacity[MEMORY] - held.get(name, 0))
            # Two samples of one second may add up to more than there is; nothing was killed for it in life.
            memory = None if system.memory_bytes is None else min(system.memory_bytes, room)
            cpu = None if system.cpu_milli is None else min(system.cpu_milli, inventories[name].capacity[CPU])
            demands.begin(SetUsage(name, Demand(cpu, memory), {}))
