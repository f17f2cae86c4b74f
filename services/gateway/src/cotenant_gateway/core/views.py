"""What people see: pods, nodes and quotas as plain JSON. CPU in milli-cores, memory in bytes, times in milliseconds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cotenant_common.model import resources
from cotenant_gateway.core import nodes
from cotenant_gateway.core.names import APPLIED_DIGEST
from cotenant_gateway.core.nodes import Inventory
from cotenant_gateway.core.records import PodState, Spec
from cotenant_gateway.core.workloads import job_condition

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the scheduler says of a pod that waits."""

    state: str
    reason: str | None = None
    message: str | None = None
    attempts: int = 0
    nominated_node: str | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """None is *not measured*."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None

    def json(self) -> Json:
        return {resources.CPU: self.cpu_milli, resources.MEMORY: self.memory_bytes}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """``usage`` None: no sample; ``batch`` None: not sold, which is not zero."""

    spec: Spec | None
    inventory: Inventory | None = None
    usage: Amounts | None = None
    system: Amounts | None = None
    batch: Mapping[str, int] | None = None
    mid: Mapping[str, int] | None = None
    sold_message: str = ""
    be_limit_milli: int | None = None
    be_limit_message: str | None = None
    pods: Sequence[PodState] = ()
    usage_age_ms: int | None = None
    pressure: Mapping[str, float | None] = field(default_factory=dict)


def pod_state(pod: PodState, waiting: Waiting | None) -> tuple[str, str | None, str | None]:
    """(phase, reason, message). A Pending pod always has a reason."""
    mark, seen = pod.spec.deletion, pod.seen
    if mark is not None and not pod.finished:
        phase = seen.phase if seen and not seen.rejected else "Pending"
        return phase, mark.reason, f"leaving: {mark.message}"
    if seen is not None and not seen.rejected and seen.phase != "Pending":
        return seen.phase, seen.reason, seen.message
    if pod.bound_node is not None:
        refused = f"{pod.bound_node} refused: {seen.message}" if seen is not None and seen.rejected else None
        return "Pending", "Bound", refused or f"bound to {pod.bound_node}; its agent has not started it yet"
    if waiting is not None:
        text = waiting.message or f"the scheduler has tried {waiting.attempts} times"
        return "Pending", waiting.reason or waiting.state, text
    return "Pending", "Queued", "waiting for the scheduler to look at it"


def pod_view(
    pod: PodState, waiting: Waiting | None, now_ms: int, usage: Amounts | None = None, bound_ms: int | None = None
) -> Json:
    spec, seen = pod.spec, pod.seen
    parsed = spec.pod()
    phase, reason, message = pod_state(pod, waiting)
    return {
        "namespace": spec.namespace,
        "name": spec.name,
        "uid": spec.uid,
        "phase": phase,
        "ready": pod.ready,
        "reason": reason,
        "message": message,
        "node": pod.node,
        "restarts": seen.restarts if seen else 0,
        "deleting": pod.leaving,
        "qos": parsed.qos.value,
        "band": parsed.band.short,
        "priority": parsed.priority,
        "quota": parsed.quota_label,
        "requests": dict(parsed.requests),
        "limits": dict(parsed.limits),
        "usage": usage.json() if usage else None,
        "incarnation": spec.incarnation,
        "requeue_reason": spec.requeue_reason,
        "evictions": len(spec.evicted),
        "owner": spec.owner,
        "labels": dict(spec.labels),
        "created_ms": spec.created_ms,
        "age_s": max(0, now_ms - spec.created_ms) // 1000,
        "bound_ms": bound_ms,
        "started_ms": seen.started_ms if seen else None,
        "finished_ms": seen.finished_ms if seen else None,
        "exit_code": seen.exit_code if seen else None,
        "warnings": list(seen.warnings) if seen else [],
    }


def node_view(node: NodeFacts, name: str, now_ms: int) -> Json:
    inventory, spec = node.inventory, node.spec
    health = nodes.health_of(spec)
    requested: dict[str, int] = {}
    for pod in node.pods:
        if not pod.finished:
            requested = resources.add(requested, pod.spec.pod().requests)
    unschedulable = bool(spec and spec.body.get("unschedulable"))
    return {
        "name": name,
        "ready": health is nodes.Health.READY,
        "health": {"True": "Ready", "False": "NotReady", "Unknown": "Lost", "": "Unseen"}[health.value],
        "unschedulable": unschedulable,
        "message": _health_message(spec),
        "capacity": dict(inventory.capacity) if inventory else None,
        "allocatable": dict(inventory.allocatable) if inventory else None,
        "batch": _sold(node.batch),
        "mid": _sold(node.mid),
        "overcommit_message": node.sold_message or None,
        "requested": requested,
        "usage": node.usage.json() if node.usage else None,
        "system": node.system.json() if node.system else None,
        "usage_age_ms": node.usage_age_ms,
        "be_limit_milli": node.be_limit_milli,
        "be_limit_message": node.be_limit_message,
        "pressure": dict(node.pressure),
        "pods": sum(not pod.finished for pod in node.pods),
        "idle_class": inventory.idle_class if inventory else None,
        "labels": dict(spec.labels) if spec else {},
        "taints": list(spec.body.get("taints") or ()) if spec else [],
        "details": dict(inventory.details) if inventory else {},
        "created_ms": spec.created_ms if spec else None,
        "age_s": max(0, now_ms - spec.created_ms) // 1000 if spec else None,
    }


def _health_message(spec: Spec | None) -> str | None:
    conditions = (spec.manifest.get("status") or {}).get("conditions") or () if spec else ()
    return next((c.get("message") for c in conditions), None)


def _sold(amounts: Mapping[str, int] | None) -> Json | None:
    """``kubernetes.io/batch-cpu`` → ``cpu``: the column says which band it is."""
    if amounts is None:
        return None
    return {resources.NATIVE_OF.get(name, name): value for name, value in amounts.items()}


def object_view(spec: Spec, status: Json | None = None) -> Json:
    """A manifest as ``get -o yaml`` shows it."""
    metadata = {key: value for key, value in spec.metadata.items() if key != "annotations"}
    annotations = {key: value for key, value in spec.annotations.items() if key != APPLIED_DIGEST}
    metadata |= {"uid": spec.uid, "generation": spec.generation, "creationTimestamp": _moment(spec.created_ms)}
    if annotations:
        metadata["annotations"] = annotations
    if spec.deletion is not None:
        metadata["deletionTimestamp"] = _moment(spec.deletion.at_ms)
    merged = {**(spec.manifest.get("status") or {}), **(status or {})}
    rest = {key: value for key, value in spec.manifest.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": metadata, **({"status": merged} if merged else {})}


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def workload_status(owner: Spec, pods: Iterable[PodState]) -> Json:
    """Counted when asked, not stored: a status in the record would cost a write for every pod that gets ready."""
    members = [pod for pod in pods if not pod.leaving]
    active = [pod for pod in members if not pod.finished]
    if owner.kind == "Job":
        return {
            "active": len(active),
            "phase": job_condition(owner) or ("Running" if active else "Pending"),
        }
    return {
        "replicas": len(active),
        "readyReplicas": sum(pod.ready for pod in active),
        "wantedReplicas": int(owner.body.get("replicas", 1)),
    }


def story(pod: PodState) -> list[Json]:
    """What happened to this pod and to the incarnations before it, oldest first."""
    spec = pod.spec
    lines = [
        {"at_ms": past.at_ms, "type": "evicted", "reason": past.reason, "message": past.message, "node": past.node}
        for past in spec.evicted
    ]
    again = f"incarnation {spec.incarnation}, again after {spec.requeue_reason}" if spec.requeue_reason else "created"
    lines.append({"at_ms": spec.created_ms, "type": "queued", "reason": spec.requeue_reason, "message": again})
    if pod.seen is not None and pod.seen.started_ms is not None:
        lines.append(
            {"at_ms": pod.seen.started_ms, "type": "started", "reason": None, "message": f"on {pod.seen.node}"}
        )
    if spec.deletion is not None:
        mark = spec.deletion
        asked = f"{mark.message} (asked by {mark.requested_by})"
        lines.append({"at_ms": mark.at_ms, "type": "leaving", "reason": mark.reason, "message": asked})
    if pod.seen is not None and pod.seen.finished_ms is not None:
        end = pod.seen
        lines.append({"at_ms": end.finished_ms, "type": end.phase, "reason": end.reason, "message": end.message or ""})
    return sorted(lines, key=lambda line: line["at_ms"] or 0)
