"""Messages of the bus → plain values of the core."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from cotenant_common.contracts.messages.state import (
    Binding,
    NodeInventory,
    OvercommitRecord,
    PodStatusRecord,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.model import labels as names
from cotenant_common.model import resources
from cotenant_common.model.pod import parse_pod
from cotenant_common.model.quantity import QuantityError
from cotenant_common.model.resources import CPU, PODS, RESOURCES_BY_BAND
from cotenant_common.telemetry.logging import get_logger
from cotenant_scheduler.arguments import own_thresholds
from cotenant_scheduler.core.budgets import Budget
from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.decisions import Placement
from cotenant_scheduler.core.estimate import Estimate, LoadPolicy, PlacedLoad, Thresholds
from cotenant_scheduler.core.quota import QuotaObject, QuotaShare, QuotaTree, countable
from cotenant_scheduler.core.request import PodRequest, read_request
from cotenant_scheduler.core.room import Leaving, Promise
from cotenant_scheduler.core.selectors import parse_label_selector
from cotenant_scheduler.core.snapshot import NodeFacts, Sold
from cotenant_scheduler.core.taints import parse_taints

_log = get_logger("scheduler")
_HANGS_AFTER_MS: Final = 30_000
_RESERVED_CPUS_ONLY: Final = "ReservedCPUsOnly"


def pod_request(
    record: SpecRecord, revision: int, policy: LoadPolicy, extras: Collection[str] = ()
) -> PodRequest | None:
    """None, logged, for a manifest that the gateway should have refused: one bad pod must not stop the rest."""
    try:
        pod = parse_pod(record.manifest, uid=record.uid, created_ms=record.created_ms, incarnation=record.incarnation)
        return read_request(pod, policy, revision, extras)
    except (QuantityError, KeyError, ValueError, TypeError, AttributeError) as error:
        _log.error("pod_unusable", pod=f"{record.namespace}/{record.name}", uid=record.uid, error=str(error))
        return None


def node_facts(
    name: str, inventory: NodeInventory | None, record: SpecRecord | None, sold: OvercommitRecord | None
) -> NodeFacts:
    """A node needs both: an agent that measured it, and an object by which the gateway admitted it."""
    manifest: Mapping[str, Any] = record.manifest if record is not None else {}
    metadata: Mapping[str, Any] = manifest.get("metadata") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    spec: Mapping[str, Any] = manifest.get("spec") or {}
    allocatable = dict(inventory.allocatable) if inventory is not None else {}
    absent = _absent(inventory, record)
    return NodeFacts(
        name=name,
        allocatable=_without_reservation(name, allocatable, annotations),
        load_capacity={**allocatable, **_raw_allocatable(name, annotations)},
        labels={
            names.HOSTNAME: name,
            **(inventory.labels if inventory is not None else {}),
            **{str(key): str(value) for key, value in (metadata.get("labels") or {}).items()},
        },
        taints=parse_taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        registered=not absent,
        absent=absent,
        thresholds=_thresholds(name, annotations),
        sold=_sold(sold),
    )


def _absent(inventory: NodeInventory | None, record: SpecRecord | None) -> str:
    if inventory is None:
        return "no agent has reported what it has"
    if record is None:
        return "the gateway has not admitted it"
    if record.deletion is not None:
        return "it is being deleted"
    return ""


def _json(name: str, annotations: Mapping[str, str], key: str) -> Mapping[str, Any]:
    text = annotations.get(key)
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        _log.warning("annotation_ignored", node=name, annotation=key, error=str(error))
        return {}
    return value if isinstance(value, dict) else {}


def _amounts(name: str, section: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for resource, text in section.items():
        try:
            found[str(resource)] = resources.parse(str(resource), str(text))
        except QuantityError as error:
            _log.warning("annotation_ignored", node=name, resource=resource, error=str(error))
    return found


def _raw_allocatable(name: str, annotations: Mapping[str, str]) -> dict[str, int]:
    return _amounts(name, _json(name, annotations, names.RAW_ALLOCATABLE))


def _without_reservation(name: str, allocatable: dict[str, int], annotations: Mapping[str, str]) -> dict[str, int]:
    """Policy Default takes the reservation off what is allocatable; reservedCPUs outrank the number of CPUs."""
    reservation = _json(name, annotations, names.NODE_RESERVATION)
    if not reservation or reservation.get("applyPolicy") == _RESERVED_CPUS_ONLY:
        return allocatable
    reserved = _amounts(name, reservation.get("resources") or {})
    if cpus := reservation.get("reservedCPUs"):
        reserved[CPU] = 1000 * _count_cpus(name, str(cpus))
    return {key: max(0, value - reserved.get(key, 0)) for key, value in allocatable.items()}


def _count_cpus(name: str, text: str) -> int:
    """Length of a kernel CPU list such as ``0-3,8``."""
    try:
        bounds = [part.split("-") for part in text.split(",") if part.strip()]
        return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in bounds)
    except ValueError:
        _log.warning("annotation_ignored", node=name, annotation=names.NODE_RESERVATION, cpus=text)
        return 0


def _thresholds(name: str, annotations: Mapping[str, str]) -> Thresholds | None:
    section = _json(name, annotations, names.USAGE_THRESHOLDS)
    if not section:
        return None
    try:
        return own_thresholds(section)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        _log.warning(
            "annotation_ignored", node=name, annotation=names.USAGE_THRESHOLDS, field=place, error=first["msg"]
        )
        return None


def _sold(record: OvercommitRecord | None) -> Sold | None:
    if record is None:
        return None
    amounts = {**_band("batch", record.batch), **_band("mid", record.mid)}
    return Sold(amounts, record.degraded, record.message)


def _band(band: str, amounts: Mapping[str, int] | None) -> dict[str, int]:
    """Accepts native names and the band's own."""
    translated = RESOURCES_BY_BAND[band]
    return {translated.get(name, name): value for name, value in (amounts or {}).items()}


def quota_tree(status: QuotaTreeStatus) -> QuotaTree:
    shares = {
        each.name: QuotaShare(
            each.name,
            each.max,
            each.runtime,
            each.min,
            parent=each.parent or None,
            allow_lent=each.allow_lent,
            held=each.stop_policy != "None",
        )
        for each in status.quotas
    }
    return QuotaTree(status.tree, status.generation, status.specs_revision, shares)


def quota_objects(records: Iterable[SpecRecord]) -> list[QuotaObject]:
    return [
        QuotaObject(record.name, record.namespace or "", _listed_namespaces(record))
        for record in records
        if record.kind == "ElasticQuota" and record.deletion is None
    ]


def leaving(record: SpecRecord) -> Leaving | None:
    """None for a pod that nobody told to go."""
    mark = record.deletion
    if mark is None:
        return None
    until_ms, owner = mark.data.get("promised_until_ms"), mark.data.get("beneficiary")
    ends_ms = mark.at_ms + mark.grace_ms + _HANGS_AFTER_MS if until_ms is None else int(until_ms)
    return Leaving(ends_ms, str(owner) if owner is not None else None)


def promises(record: SpecRecord, requests: Mapping[str, int]) -> list[Promise]:
    """What earlier incarnations left behind, as far as it was promised; each asked for what its successor asks for."""
    found = []
    for past in record.evicted:
        owner, until_ms = past.data.get("beneficiary"), past.data.get("promised_until_ms")
        node = past.node or past.data.get("node")
        if owner is not None and until_ms is not None and node:
            name = (record.namespace or "", record.name)
            found.append(Promise(past.uid, name, str(node), requests, str(owner), past.at_ms, int(until_ms)))
    return found


def budgets(records: Iterable[SpecRecord]) -> list[Budget]:
    found = []
    for record in records:
        if record.kind == "PodDisruptionBudget" and record.deletion is None:
            spec: Mapping[str, Any] = record.manifest.get("spec") or {}
            selector = parse_label_selector(spec.get("selector"))
            amounts = spec.get("minAvailable"), spec.get("maxUnavailable")
            found.append(Budget(record.namespace or "", record.name, selector, *amounts))
    return found


def _listed_namespaces(record: SpecRecord) -> tuple[str, ...]:
    annotations = (record.manifest.get("metadata") or {}).get("annotations") or {}
    try:
        listed = json.loads(annotations.get(names.QUOTA_NAMESPACES) or "[]")
    except ValueError:
        return ()
    return tuple(str(each) for each in listed) if isinstance(listed, list) else ()


def binding_of(placement: Placement, attempt: int, epoch: int) -> Binding:
    pod, charge = placement.pod, placement.charge
    cpu, memory = charge.load.estimate.used
    return Binding(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=placement.node,
        attempt=attempt,
        epoch=epoch,
        spec_digest=pod.digest,
        requests=countable(charge.requests),
        estimate={resources.CPU: cpu, resources.MEMORY: memory},
        quota=placement.quota,
        quota_chain=list(placement.quota_chain),
        qos=pod.qos,
        band=pod.band,
        priority=pod.priority,
        preemptible=pod.preemptible,
        bound_ms=charge.load.placed_ms,
        queued_ms=pod.created_ms,
        score=placement.score,
    )


def charge_from(binding: Binding, pod: PodRequest | None, status: PodStatusRecord | None) -> Charge:
    """What a binding holds. The spec adds what a binding does not carry; without one the pod is on its way out."""
    shape = pod.shape if pod is not None else None
    bound = (binding.estimate.get(resources.CPU, 0), binding.estimate.get(resources.MEMORY, 0))
    estimate = shape.estimate if shape is not None else Estimate(bound)
    started = status.started_ms if status is not None and estimate.after_initialized_ms else None
    return Charge(
        uid=binding.uid,
        namespace=binding.namespace,
        name=binding.name,
        node=binding.node,
        requests={**dict(sorted(binding.requests.items())), PODS: 1},
        load=PlacedLoad(binding.uid, estimate, binding.band == "prod", binding.bound_ms, started),
        ports=shape.ports if shape is not None else (),
        labels=pod.labels if pod is not None else (),
        anti_affinity=shape.anti_affinity if shape is not None else (),
        quota_label=pod.quota_label if pod is not None else binding.quota,
        preemptible=binding.preemptible,
        priority=binding.priority,
        evictable=pod.evictable if pod is not None else binding.preemptible,
    )
