"""A pod on its way in: defaults, profiles, priority, and the rules that hold for the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant_common.model import labels
from cotenant_common.model.pod import pod_requests
from cotenant_common.model.qos import PriorityBand, raw_band
from cotenant_common.model.quota.spec import QuotaSpec
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.demand import Demand
from cotenant_gateway.core.pools import pin_to_pool
from cotenant_gateway.core.profiles import ProfileError, mutate
from cotenant_gateway.core.validate.objects import check_classes
from cotenant_gateway.core.validate.schema import Path, Report

Manifest = Mapping[str, Any]

DEFAULT_NAMESPACE = "default"
_IMMUTABLE_LABELS = (labels.QOS_CLASS, labels.PRIORITY_CLASS, labels.PRIORITY, labels.QUOTA_PREEMPTIBLE)


@dataclass(frozen=True, slots=True)
class Admitted:
    manifest: dict[str, Any]
    profiles: tuple[str, ...] = ()


def admit_pod(
    manifest: Manifest, catalog: Catalog, report: Report, at: Path = (), demand: Demand | None = None
) -> Admitted | None:
    """``at`` prefixes the paths of problems. None after an error. ``demand`` is given for a pod that is new."""
    before = len(report.errors)
    namespace = str(manifest["metadata"].get("namespace") or DEFAULT_NAMESPACE)
    try:
        mutation = mutate(manifest, catalog.profiles(), catalog.namespace_labels(namespace), catalog.priority_classes())
    except ProfileError as problem:
        report.error((*at, "metadata", "labels"), str(problem))
        return None
    pod = mutation.manifest
    _set_priority(pod["spec"], catalog, report, at)
    check_classes(pod, report, at)
    label = (pod["metadata"].get("labels") or {}).get(labels.QUOTA_NAME) or None
    quota = catalog.quota_of(namespace, label)
    _check_quota(label, quota, namespace, report, at)
    if quota is not None:
        pin_to_pool(pod["spec"], quota, catalog)
    _warn_native(pod, report, at)
    if demand is not None and quota is not None and len(report.errors) == before:
        _check_demand(pod["spec"], quota, demand, report, at)
    if len(report.errors) > before:
        return None
    return Admitted(pod, mutation.applied)


def _set_priority(spec: dict[str, Any], catalog: Catalog, report: Report, at: Path) -> None:
    """``spec.priority`` without a class name is taken as given."""
    class_name = spec.get("priorityClassName")
    if class_name is None and spec.get("priority") is None:
        class_name = catalog.default_priority_class()
        if class_name is None:
            return
        spec["priorityClassName"] = class_name
    if class_name is None:
        return
    classes = catalog.priority_classes()
    found = classes.get(class_name)
    path: Path = (*at, "spec", "priorityClassName")
    if found is None:
        report.error(path, f"the PriorityClass {class_name!r} does not exist; there are {', '.join(sorted(classes))}")
        return
    given = spec.get("priority")
    if given is not None and given != found.value:
        report.error((*at, "spec", "priority"), f"{given} is not the {found.value} of PriorityClass {class_name}")
        return
    spec["priority"] = found.value
    if found.preemption_policy and "preemptionPolicy" not in spec:
        spec["preemptionPolicy"] = found.preemption_policy


def _warn_native(pod: Manifest, report: Report, at: Path) -> None:
    """Legal, and rarely meant: such a pod takes what services were promised, not what they leave over."""
    if report.errors or _band(pod) is not PriorityBand.BATCH:
        return
    native = sorted(name for name in pod_requests(pod["spec"]) if name in (CPU, MEMORY))
    if native:
        report.warn(
            (*at, "spec", "containers"),
            f"a {pod['spec'].get('priorityClassName') or 'batch'} pod that requests native {' and '.join(native)} is "
            "charged like a service; request kubernetes.io/batch-cpu and batch-memory, or let a "
            "ClusterColocationProfile translate",
        )


def _band(pod: Manifest) -> PriorityBand:
    return raw_band(pod["metadata"].get("labels") or {}, pod["spec"].get("priority"))


def _check_demand(spec: Manifest, quota: QuotaSpec, demand: Demand, report: Report, at: Path) -> None:
    refusal = demand.take(quota, pod_requests(spec))
    if refusal is not None:
        report.error((*at, "spec", "containers"), refusal)


def _check_quota(name: str | None, quota: QuotaSpec | None, namespace: str, report: Report, at: Path) -> None:
    path: Path = (*at, "metadata", "labels", labels.QUOTA_NAME)
    if name and (quota is None or quota.name != name):
        report.warn(path, f"there is no ElasticQuota {name!r} yet; the default quota is charged until there is")
    elif quota is not None and quota.is_parent:
        bound = "" if name else f", and namespace {namespace} is bound to it"
        report.error(path, f"quota {quota.name} is a parent{bound}; name one of its children")


def check_pod_update(old: Manifest, new: Manifest, report: Report) -> None:
    """Labels and annotations may change, except those that charges and order depend on."""
    if old["spec"] != new["spec"]:
        changed = sorted(k for k in {*old["spec"], *new["spec"]} if old["spec"].get(k) != new["spec"].get(k))
        report.error(("spec", changed[0]), "a pod cannot change once it exists; delete it and apply it again")
    before = old["metadata"].get("labels") or {}
    after = new["metadata"].get("labels") or {}
    for name in _IMMUTABLE_LABELS:
        if before.get(name) != after.get(name):
            report.error(
                ("metadata", "labels", name),
                f"cannot change from {before.get(name)!r} to {after.get(name)!r} while the pod exists",
            )
