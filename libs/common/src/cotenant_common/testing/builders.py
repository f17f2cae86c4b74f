"""Small objects for tests: say what matters, get the rest filled in."""

from collections.abc import Mapping, Sequence
from typing import Any

from cotenant_common.contracts.messages.state import NodeInventory, SpecRecord
from cotenant_common.model import ids, labels, quantity, resources
from cotenant_common.model.pod import Pod, parse_pod
from cotenant_common.model.qos import SHIPPED_PRIORITY_CLASSES, PriorityBand, QosClass

Quantity = str | int


def pod_manifest(  # noqa: PLR0913 - a builder names every field a test may care about
    name: str,
    *,
    namespace: str = "default",
    cpu: Quantity | None = None,
    memory: Quantity | None = None,
    limits: Mapping[str, Quantity] | None = None,
    requests: Mapping[str, Quantity] | None = None,
    qos: QosClass | str | None = None,
    band: PriorityBand | str | None = None,
    priority: int | None = None,
    quota: str | None = None,
    gang: str | None = None,
    extra_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    command: Sequence[str] = ("sleep", "infinity"),
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A one-container Pod. ``band`` is prod, mid, batch or free (or the full class name) and picks the resource names.

    ``cpu`` and ``memory`` become requests: native ones, or the batch or mid ones of the band. ``spec`` is merged last.
    """
    chosen = None if band is None else _band(band)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, namespace, _labels(qos, quota, gang, extra_labels), annotations),
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "command": list(command),
                    "resources": _resources(chosen, cpu, memory, requests, limits),
                }
            ],
            **({} if chosen is None else {"priorityClassName": chosen.value}),
            **_priority(chosen, priority),
            **(spec or {}),
        },
    }


def _band(band: PriorityBand | str) -> PriorityBand:
    return band if isinstance(band, PriorityBand) else PriorityBand(f"koord-{str(band).removeprefix('koord-')}")


def _priority(band: PriorityBand | None, priority: int | None) -> dict[str, int]:
    if priority is not None:
        return {"priority": priority}
    return {} if band is None else {"priority": SHIPPED_PRIORITY_CLASSES[band.value]}


def _labels(
    qos: QosClass | str | None, quota: str | None, gang: str | None, extra: Mapping[str, str] | None
) -> dict[str, str]:
    named = {
        labels.QOS_CLASS: qos and str(qos),
        labels.QUOTA_NAME: quota,
        "pod-group.scheduling.sigs.k8s.io": gang,
    }
    return {key: value for key, value in named.items() if value} | dict(extra or {})


def _metadata(
    name: str, namespace: str | None, named: Mapping[str, str], annotations: Mapping[str, str] | None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if named:
        metadata["labels"] = dict(named)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def _resources(
    band: PriorityBand | None,
    cpu: Quantity | None,
    memory: Quantity | None,
    requests: Mapping[str, Quantity] | None,
    limits: Mapping[str, Quantity] | None,
) -> dict[str, Any]:
    names = resources.RESOURCES_BY_BAND["none" if band is None else band.short]
    asked: dict[str, Quantity] = dict(requests or {})
    if cpu is not None:
        name = names.get(resources.CPU, resources.CPU)
        # Batch and mid CPU are published in milli-cores as plain numbers.
        asked[name] = cpu if name == resources.CPU else quantity.cpu_milli(cpu)
    if memory is not None:
        asked[names.get(resources.MEMORY, resources.MEMORY)] = memory
    return {key: value for key, value in (("requests", asked), ("limits", dict(limits or {}))) if value}


def pod(name: str, *, uid: str | None = None, created_ms: int = 0, incarnation: int = 0, **fields: Any) -> Pod:
    """The parsed Pod of ``pod_manifest(name, **fields)``; uid ``uid-<name>``."""
    manifest = pod_manifest(name, **fields)
    return parse_pod(manifest, uid=uid or f"uid-{name}", created_ms=created_ms, incarnation=incarnation)


def spec_record(
    manifest: Mapping[str, Any],
    *,
    uid: str | None = None,
    incarnation: int = 0,
    generation: int = 1,
    created_ms: int = 0,
    **fields: Any,
) -> SpecRecord:
    """What the gateway would write to ``specs`` for a manifest; uid by namespace, name and incarnation."""
    metadata = manifest["metadata"]
    namespace, name = metadata.get("namespace"), metadata["name"]
    return SpecRecord(
        kind=manifest["kind"],
        namespace=namespace,
        name=name,
        uid=uid or ids.pod_uid(namespace or ids.CLUSTER_SCOPE, name, incarnation, "test"),
        incarnation=incarnation,
        generation=generation,
        created_ms=created_ms,
        manifest=dict(manifest),
        **fields,
    )


def spec_key(record: SpecRecord) -> str:
    """The record's key in the bucket."""
    return ids.spec_key(record.kind, record.namespace, record.name)


def node_inventory(
    node: str,
    *,
    cpu: Quantity = "4",
    memory: Quantity = "8Gi",
    pods: int = 110,
    extra: Mapping[str, Quantity] | None = None,
    node_labels: Mapping[str, str] | None = None,
    **fields: Any,
) -> NodeInventory:
    """A node whose allocatable is its capacity, unless a field says otherwise."""
    capacity = {
        resources.CPU: quantity.cpu_milli(cpu),
        resources.MEMORY: quantity.whole(memory),
        resources.PODS: pods,
        **{name: resources.parse(name, value) for name, value in (extra or {}).items()},
    }
    defaults: dict[str, Any] = {
        "boot_id": f"boot-{node}",
        "agent_id": f"agent-{node}",
        "started_ms": 0,
        "capacity": capacity,
        "allocatable": capacity,
        "labels": {labels.HOSTNAME: node, **(node_labels or {})},
        "cpus": f"0-{max(0, capacity[resources.CPU] // 1000 - 1)}",
        "runtime": "simulated",
    }
    return NodeInventory(node=node, **{**defaults, **fields})


def node_manifest(
    name: str,
    *,
    cpu: Quantity = "4",
    memory: Quantity = "8Gi",
    node_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    allocatable: Mapping[str, Quantity] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    capacity = {"cpu": str(cpu), "memory": str(memory), "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, None, {labels.HOSTNAME: name, **(node_labels or {})}, annotations),
        "spec": dict(spec or {}),
        "status": {"capacity": capacity, "allocatable": {**capacity, **(allocatable or {})}},
    }


def quota_manifest(  # noqa: PLR0913
    name: str,
    *,
    namespace: str = "default",
    minimum: Mapping[str, Quantity] | None = None,
    maximum: Mapping[str, Quantity] | None = None,
    parent: str | None = None,
    is_parent: bool = False,
    allow_lent: bool | None = None,
    tree: str | None = None,
    extra_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """An ElasticQuota in the reference system's form."""
    named = {
        labels.QUOTA_PARENT: parent,
        labels.QUOTA_IS_PARENT: "true" if is_parent else None,
        labels.QUOTA_ALLOW_LENT: None if allow_lent is None else str(allow_lent).lower(),
        labels.QUOTA_TREE_ID: tree,
    }
    kept = {key: value for key, value in named.items() if value} | dict(extra_labels or {})
    bounds = (("min", minimum), ("max", maximum))
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": _metadata(name, namespace, kept, annotations),
        "spec": {key: dict(value) for key, value in bounds if value is not None},
    }


def pod_group_manifest(name: str, min_member: int, *, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": min_member, **spec},
    }
