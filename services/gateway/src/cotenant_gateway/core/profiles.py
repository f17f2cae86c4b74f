"""ClusterColocationProfile: labels, priority and resources of a pod changed on its way in.

One thing differs from the reference on purpose: whether a profile with a probability applies is decided by a hash of
profile and pod name, not by chance, so that applying a manifest again gives the same pod.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.model import labels as names
from cotenant_common.model import qos
from cotenant_common.model.pod import container_resources
from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.quantity import ceil, parse_quantity
from cotenant_common.model.resources import CPU, MEMORY, RESOURCES_BY_BAND
from cotenant_gateway.core.validate.kinds import KINDS
from cotenant_gateway.core.validate.meta import selector_matches
from cotenant_gateway.core.validate.schema import Report

Manifest = Mapping[str, Any]

_TRANSLATED: Final = (PriorityBand.MID, PriorityBand.BATCH)
# Lists that Kubernetes merges by a key; every other list is replaced as a whole.
_MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath",
    "ports": "containerPort", "schedulingGates": "name", "imagePullSecrets": "name", "hostAliases": "ip",
}  # fmt: skip


class ProfileError(ValueError):
    """A profile that matches and cannot be applied."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    value: int
    preemption_policy: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    spec: Manifest
    skip_resources: bool = False

    @staticmethod
    def of(manifest: Manifest) -> "Profile":
        metadata = manifest["metadata"]
        skip = names.PROFILE_SKIP_UPDATE_RESOURCES in (metadata.get("annotations") or {})
        return Profile(str(metadata["name"]), manifest.get("spec") or {}, skip)

    def matches(self, pod_labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        return selector_matches(self.spec.get("namespaceSelector"), namespace_labels) and selector_matches(
            self.spec.get("selector"), pod_labels
        )


@dataclass(frozen=True, slots=True)
class Mutation:
    manifest: dict[str, Any]
    matched: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()


def mutate(
    manifest: Manifest,
    profiles: Sequence[Profile],
    namespace_labels: Mapping[str, str],
    priority_classes: Mapping[str, PriorityClass],
) -> Mutation:
    """Apply every matching profile in name order; the later one wins. Raise ProfileError."""
    pod = _copy(manifest)
    metadata = pod.setdefault("metadata", {})
    original = dict(metadata.get("labels") or {})
    matching = [p for p in sorted(profiles, key=lambda p: p.name) if p.matches(original, namespace_labels)]
    applied = [p for p in matching if _chosen(p, f"{metadata.get('namespace')}/{metadata.get('name')}")]
    for profile in applied:
        pod = _apply(pod, profile, priority_classes)
        _check_result(pod, manifest, profile)
    if matching and not any(p.skip_resources for p in matching):
        _translate(pod)
    return Mutation(pod, tuple(p.name for p in matching), tuple(p.name for p in applied))


def _check_result(pod: Manifest, before: Manifest, applied: Profile) -> None:
    """A patch or a suffix can make anything of a pod that was judged before."""
    found = Report()
    KINDS["Pod"].shape.check(pod, (), found)
    problem = str(found.errors[0]) if found.errors else None
    if problem is None and any(_identity(pod, name) != _identity(before, name) for name in ("name", "namespace")):
        problem = "metadata: a profile cannot rename a pod"
    if problem is not None:
        raise ProfileError(f"with profile {applied.name} applied: {problem}")


def _identity(pod: Manifest, name: str) -> Any:
    return pod["metadata"].get(name)


def percent_of(probability: int | str | None) -> int:
    if probability is None:
        return 100
    return int(str(probability).removesuffix("%"))


def _chosen(profile: Profile, pod: str) -> bool:
    percent = percent_of(profile.spec.get("probability"))
    digest = hashlib.sha256(f"{profile.name}\0{pod}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < percent


def _apply(pod: dict[str, Any], profile: Profile, priority_classes: Mapping[str, PriorityClass]) -> dict[str, Any]:
    spec = profile.spec
    labels = _section(pod["metadata"], "labels")
    annotations = _section(pod["metadata"], "annotations")
    labels.update(spec.get("labels") or {})
    annotations.update(spec.get("annotations") or {})
    _map_keys(labels, spec.get("labelKeysMapping") or {})
    _map_keys(annotations, spec.get("annotationKeysMapping") or {})
    for key, suffix in (spec.get("labelSuffixes") or {}).items():
        if key in labels:
            labels[key] += suffix
    if scheduler := spec.get("schedulerName"):
        pod["spec"]["schedulerName"] = scheduler
    if qos_class := spec.get("qosClass"):
        labels[names.QOS_CLASS] = qos_class
    if class_name := spec.get("priorityClassName"):
        _set_priority(pod["spec"], class_name, profile.name, priority_classes)
    if (priority := spec.get("koordinatorPriority")) is not None:
        labels[names.PRIORITY] = str(priority)
    return merge_patch(pod, spec["patch"]) if spec.get("patch") else pod


def _set_priority(
    pod_spec: dict[str, Any], class_name: str, profile: str, classes: Mapping[str, PriorityClass]
) -> None:
    found = classes.get(class_name)
    if found is None:
        raise ProfileError(f"profile {profile} names the PriorityClass {class_name!r}, which does not exist")
    pod_spec["priorityClassName"] = class_name
    pod_spec["priority"] = found.value
    if found.preemption_policy:
        pod_spec["preemptionPolicy"] = found.preemption_policy


def _map_keys(section: dict[str, str], mapping: Mapping[str, str]) -> None:
    for old, new in mapping.items():
        section[new] = section.get(old, "")


def _section(parent: dict[str, Any], name: str) -> dict[str, str]:
    section: dict[str, str] = dict(parent.get(name) or {})
    parent[name] = section
    return section


def merge_patch(target: Any, patch: Any, field: str = "") -> Any:
    """Strategic merge without ``$`` directives: mappings merge, null deletes, lists with a merge key merge by it."""
    if isinstance(patch, Mapping):
        if any(str(key).startswith("$") for key in patch):
            raise ProfileError("spec.patch: directives such as $patch are not supported")
        merged = dict(target) if isinstance(target, Mapping) else {}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge_patch(merged.get(key), value, key)
        return merged
    key_name = _MERGE_KEYS.get(field)
    if isinstance(patch, list) and isinstance(target, list) and key_name:
        return _merge_lists(target, patch, key_name)
    return _copy(patch)


def _merge_lists(target: Sequence[Any], patch: Sequence[Any], key_name: str) -> list[Any]:
    merged = list(target)
    where = {item.get(key_name): at for at, item in enumerate(merged) if isinstance(item, Mapping)}
    for item in patch:
        at = where.get(item.get(key_name)) if isinstance(item, Mapping) else None
        if at is None:
            merged.append(_copy(item))
        else:
            merged[at] = merge_patch(merged[at], item)
    return merged


def _translate(pod: dict[str, Any]) -> None:
    """Charge mid and batch pods in the resources of their band; the CPU becomes milli-cores as a whole number."""
    spec = pod["spec"]
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    kubernetes = qos.kubernetes_qos([container_resources(container) for container in containers])
    band = qos.effective_band(pod["metadata"].get("labels") or {}, spec.get("priority"), kubernetes)
    if band not in _TRANSLATED:
        return
    target = RESOURCES_BY_BAND[band.short]
    for container in containers:
        section = container.get("resources")
        if section:
            container["resources"] = _translated_section(section, target)
    if spec.get("overhead"):
        spec["overhead"] = _translated(spec["overhead"], target)


def _translated_section(section: Manifest, target: Mapping[str, str]) -> dict[str, Any]:
    result = dict(section)
    limits = _translated(section.get("limits") or {}, target)
    requests = _translated(section.get("requests") or {}, target)
    translated = frozenset(target.values())
    requests = {name: value for name, value in limits.items() if name in translated} | requests
    if limits:
        result["limits"] = limits
    if requests:
        result["requests"] = requests
    return result


def _translated(amounts: Manifest, target: Mapping[str, str]) -> dict[str, Any]:
    result = {name: value for name, value in amounts.items() if name not in (CPU, MEMORY)}
    if CPU in amounts:
        result[target[CPU]] = str(ceil(parse_quantity(amounts[CPU]) * 1000))
    if MEMORY in amounts:
        result[target[MEMORY]] = amounts[MEMORY]
    return result


def _copy(value: Any) -> Any:
    """A deep copy of plain data; manifests in the records are shared and must not change."""
    if isinstance(value, Mapping):
        return {key: _copy(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copy(entry) for entry in value]
    return value
