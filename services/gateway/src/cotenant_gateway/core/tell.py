"""The events of one write, read from the written value alone: after a crash the same value tells the same story."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant_gateway.core import names
from cotenant_gateway.core.records import Change, Put, Remove, Spec


@dataclass(frozen=True, slots=True)
class Fact:
    type: str
    object: str
    uid: str | None = None
    reason: str | None = None
    message: str = ""
    at_ms: int | None = None
    """When it was decided, where the value knows; else the moment of telling."""
    data: Mapping[str, Any] = field(default_factory=dict)


def of_change(change: Change) -> list[Fact]:
    return of_put(change.spec) if isinstance(change, Put) else of_removal(change)


def of_put(spec: Spec) -> list[Fact]:
    return [_fact(kind, spec) for kind in spec.tells]


def of_removal(change: Remove) -> list[Fact]:
    spec = change.spec
    deleted = "pod.deleted" if spec.kind == "Pod" else "object.deleted"
    return [
        Fact(kind, spec.object, spec.uid, change.reason, change.message, data={"incarnation": spec.incarnation})
        for kind in (*change.tells, deleted)
    ]


def of_lost_removal(kind: str, object_key: str) -> list[Fact]:
    """A removal found after a restart, when the value is gone: what every removal of the kind tells."""
    match kind:
        case "Pod":
            types: tuple[str, ...] = ("pod.deleted",)
        case "Node":
            types = ("node.lost", "object.deleted")
        case "ConfigMap" if object_key.endswith(f"/{names.FREEZE}"):
            types = ("cluster.unfrozen", "object.deleted")
        case _:
            types = ("object.deleted",)
    return [Fact(name, object_key) for name in types]


def _fact(kind: str, spec: Spec) -> Fact:
    match kind:
        case "pod.evicted" | "pod.preempted" | "emergency.used":
            return _removal(kind, spec)
        case "pod.queued":
            return _queued(spec)
        case "node.ready" | "node.notready" | "node.lost":
            conditions = (spec.manifest.get("status") or {}).get("conditions") or ()
            condition = conditions[0] if conditions else {}
            message, at_ms = str(condition.get("message", "")), condition.get("lastTransitionMs")
            return Fact(kind, spec.object, spec.uid, None, message, at_ms)
        case "cluster.frozen" | "cluster.observed":
            data = dict(spec.manifest.get("data") or {})
            return Fact(kind, spec.object, spec.uid, None, str(data.get("reason", "")), data=data)
        case _:
            return Fact(kind, spec.object, spec.uid, data={"generation": spec.generation})


def _removal(kind: str, spec: Spec) -> Fact:
    """Either the mark says it, or, where the pod was lost, the successor that replaced it."""
    mark = spec.deletion
    if mark is not None:
        data = {**mark.data, "requested_by": mark.requested_by, "requeue": mark.requeue, "command_id": mark.command_id}
        return Fact(kind, spec.object, spec.uid, mark.reason, mark.message, mark.at_ms, data)
    past = spec.evicted[-1]
    data = {**past.data, "node": past.node, "requested_by": past.requested_by, "requeue": True}
    return Fact(kind, spec.object, past.uid, past.reason, past.message, past.at_ms, data)


def _queued(spec: Spec) -> Fact:
    data: dict[str, Any] = {"incarnation": spec.incarnation}
    if spec.requeued_from:
        data["requeued_from"] = spec.requeued_from
    message = f"again after {spec.requeue_reason}" if spec.requeue_reason else ""
    return Fact("pod.queued", spec.object, spec.uid, spec.requeue_reason, message, spec.created_ms, data)
