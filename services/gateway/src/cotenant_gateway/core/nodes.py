"""A node's life from its heartbeats: ready, not ready after 40 s of silence, lost after five minutes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cotenant_common.model.labels import TAINT_NOT_READY
from cotenant_gateway.core import names
from cotenant_gateway.core.digest import digest
from cotenant_gateway.core.records import Manifest, Put, Spec

_READY: Final = "Ready"
_NOT_READY_TAINT: Final = {"key": TAINT_NOT_READY, "effect": "NoSchedule"}


class Health(StrEnum):
    """Values of the condition ``Ready``; UNSEEN has none yet."""

    READY = "True"
    NOT_READY = "False"
    LOST = "Unknown"
    UNSEEN = ""


@dataclass(frozen=True, slots=True)
class NodeLimits:
    not_ready_ms: int = 40_000
    lost_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Inventory:
    """What an agent measured of its machine."""

    node: str
    agent_id: str
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    idle_class: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of one node. ``beat_ms`` is when *we* last saw it alive; None: not since ``since_ms``.

    ``since_ms`` is when we began to listen, again after every break of our own connection: our deafness is not its
    silence.
    """

    name: str
    since_ms: int
    beat_ms: int | None = None
    alive: bool = False
    spec: Spec | None = None
    inventory: Inventory | None = None
    retired_agent: str | None = None


def health_of(spec: Spec | None) -> Health:
    condition = _condition(spec)
    return Health(condition.get("status", "")) if condition else Health.UNSEEN


def is_gone(spec: Spec | None) -> bool:
    """Pods bound to it have to start again elsewhere. A node that never was is not gone."""
    return health_of(spec) is Health.LOST


def decide(node: Watched, now_ms: int, seed_uid: str, limits: NodeLimits = NodeLimits()) -> Put | None:
    """At most one write: register, or one transition, or labels that the agent brought."""
    if node.spec is None:
        return _register(node, now_ms, seed_uid)
    if node.spec.deletion is not None:
        return None
    health, message = _judge(node, node.spec, now_ms, limits)
    if health is health_of(node.spec):
        return _labels(node, node.spec)
    event = {Health.READY: "node.ready", Health.NOT_READY: "node.notready", Health.LOST: "node.lost"}[health]
    manifest = _with_health(node.spec.manifest, health, message, now_ms, node.beat_ms)
    return Put(node.spec.changed(_with_labels(manifest, node.inventory), event), node.spec)


def _register(node: Watched, now_ms: int, uid: str) -> Put | None:
    """Only a beating agent registers: an inventory alone may be what a machine left behind."""
    if node.inventory is None or not node.alive or node.inventory.agent_id == node.retired_agent:
        return None
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "spec": {}}
    manifest = _with_labels(_with_health(manifest, Health.READY, "registered", now_ms, node.beat_ms), node.inventory)
    # That it registered is the agent's to tell, with what the machine has.
    return Put(Spec("Node", None, node.name, uid, now_ms, manifest, tells=("node.ready",)))


def _judge(node: Watched, spec: Spec, now_ms: int, limits: NodeLimits) -> tuple[Health, str]:
    if node.alive:
        return Health.READY, "heartbeats arrive"
    current = health_of(spec)
    listening_ms = now_ms - node.since_ms
    if listening_ms < limits.not_ready_ms and node.beat_ms is None:
        return (current, "") if current is not Health.UNSEEN else (Health.NOT_READY, "no heartbeat yet")
    silent_ms = now_ms - _last_beat(node, spec)
    if current is Health.LOST or silent_ms >= limits.lost_ms:
        return Health.LOST, f"no heartbeat for {limits.lost_ms // 1000} s"
    if current in (Health.NOT_READY, Health.UNSEEN) or silent_ms >= limits.not_ready_ms:
        return Health.NOT_READY, f"no heartbeat for {limits.not_ready_ms // 1000} s"
    return current, ""


def _last_beat(node: Watched, spec: Spec) -> int:
    """A restart of ours must not give a silent node another five minutes: the condition remembers."""
    if node.beat_ms is not None:
        return node.beat_ms
    noted = (_condition(spec) or {}).get("lastHeartbeatMs")
    return int(noted) if noted is not None and health_of(spec) is not Health.READY else node.since_ms


def _condition(spec: Spec | None) -> Manifest | None:
    conditions = ((spec.manifest.get("status") or {}).get("conditions") or ()) if spec else ()
    return next((c for c in conditions if c.get("type") == _READY), None)


def _with_health(manifest: Manifest, health: Health, message: str, now_ms: int, beat_ms: int | None) -> dict[str, Any]:
    condition = {
        "type": _READY,
        "status": health.value,
        "message": message,
        "lastTransitionMs": now_ms,
        "lastHeartbeatMs": beat_ms,
    }
    return {
        **manifest,
        "spec": _with_taint(manifest.get("spec") or {}, tainted=health is not Health.READY),
        "status": {**(manifest.get("status") or {}), "conditions": [condition]},
    }


def _with_taint(spec: Manifest, *, tainted: bool) -> dict[str, Any]:
    taints = [taint for taint in spec.get("taints") or () if taint.get("key") != TAINT_NOT_READY]
    if tainted:
        taints.append(dict(_NOT_READY_TAINT))
    rest = {key: value for key, value in spec.items() if key != "taints"}
    return {**rest, "taints": taints} if taints else rest


def _labels(node: Watched, spec: Spec) -> Put | None:
    manifest = _with_labels(spec.manifest, node.inventory)
    return None if manifest == spec.manifest else Put(spec.changed(manifest), spec)


def _with_labels(manifest: Manifest, inventory: Inventory | None) -> dict[str, Any]:
    """What a user wrote wins over what the agent found."""
    metadata = manifest.get("metadata") or {}
    merged = {**(inventory.labels if inventory else {}), **(metadata.get("labels") or {})}
    return {**manifest, "metadata": {**metadata, "labels": merged}} if merged else dict(manifest)


def with_user_part(old: Spec | None, wanted: Manifest) -> dict[str, Any]:
    """A user's manifest over what the system keeps in the same object: taint, condition, cordon."""
    metadata = wanted["metadata"]
    annotations = {**(metadata.get("annotations") or {}), names.APPLIED_DIGEST: digest(wanted)}
    manifest = {**wanted, "metadata": {**metadata, "annotations": annotations}, "spec": dict(wanted.get("spec") or {})}
    if old is None:
        return manifest
    if "unschedulable" not in manifest["spec"] and old.body.get("unschedulable"):
        manifest["spec"]["unschedulable"] = True
    condition = _condition(old)
    if condition is not None:
        manifest["status"] = {**(wanted.get("status") or {}), "conditions": [dict(condition)]}
        manifest["spec"] = _with_taint(manifest["spec"], tainted=health_of(old) is not Health.READY)
    return manifest


def same_user_part(old: Spec | None, wanted: Manifest) -> bool:
    return old is not None and old.annotations.get(names.APPLIED_DIGEST) == digest(wanted)


def closed(spec: Spec) -> str | None:
    """Why nothing new goes there; None while it is open."""
    if spec.deletion is not None:
        return "is being deleted"
    if spec.body.get("unschedulable"):
        return "is cordoned"
    return None if health_of(spec) in (Health.READY, Health.UNSEEN) else "is not ready"


def cordon(spec: Spec, *, unschedulable: bool) -> Put | None:
    """None when it already is as wanted."""
    if bool(spec.body.get("unschedulable")) is unschedulable:
        return None
    rest = {key: value for key, value in spec.body.items() if key != "unschedulable"}
    body = {**rest, "unschedulable": True} if unschedulable else rest
    return Put(spec.changed({**spec.manifest, "spec": body}, "object.applied"), spec)
