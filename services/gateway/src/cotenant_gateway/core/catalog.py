"""Objects seen together: what is stored, overlaid with what one request would add."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant_common.model.ids import spec_key
from cotenant_common.model.qos import SHIPPED_PRIORITY_CLASSES
from cotenant_common.model.quota.lookup import QuotaLookup
from cotenant_common.model.quota.profile import QuotaProfile, parse_profile
from cotenant_common.model.quota.spec import QuotaSpec, parse_quota
from cotenant_common.model.quota.tree import build_forest
from cotenant_gateway.core import names
from cotenant_gateway.core.profiles import PriorityClass, Profile
from cotenant_gateway.core.records import Spec

Manifest = Mapping[str, Any]


CATALOG_KINDS: Final = (
    "ClusterColocationProfile",
    "ElasticQuota",
    "ElasticQuotaProfile",
    "Namespace",
    "PriorityClass",
)
"""Kinds that other objects are judged by; pods are too many to copy for every request."""


class Catalog:
    """Manifests by kind and key. An overlay never reaches the catalog underneath."""

    def __init__(self, specs: Iterable[Spec] = (), base: "Mapping[str, Mapping[str, Manifest]] | None" = None) -> None:
        self._kinds = {kind: dict((base or {}).get(kind) or {}) for kind in CATALOG_KINDS}
        self._quotas: list[QuotaSpec] | None = None
        self._lookup: tuple[QuotaLookup, dict[str, QuotaSpec]] | None = None
        self._pools: dict[str, QuotaProfile] | None = None
        for spec in specs:
            if spec.deletion is None:
                self.add(spec.kind, spec.namespace, spec.name, spec.manifest)

    def overlay(self) -> "Catalog":
        return Catalog(base=self._kinds)

    def add(self, kind: str, namespace: str | None, name: str, manifest: Manifest) -> None:
        if kind in self._kinds:
            self._kinds[kind][spec_key(kind, namespace, name)] = manifest
            self._quotas = self._lookup = self._pools = None

    def of_kind(self, kind: str) -> list[Manifest]:
        objects = self._kinds.get(kind, {})
        return [objects[key] for key in sorted(objects)]

    def profiles(self) -> list[Profile]:
        return [Profile.of(manifest) for manifest in self.of_kind("ClusterColocationProfile")]

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        found = self._kinds.get("Namespace", {}).get(spec_key("Namespace", None, namespace)) or {}
        return {**((found.get("metadata") or {}).get("labels") or {}), names.NAMESPACE_LABEL: namespace}

    def priority_classes(self) -> dict[str, PriorityClass]:
        """The shipped ones may be redefined by an object of the same name."""
        shipped = {**SHIPPED_PRIORITY_CLASSES, **names.SHIPPED_SYSTEM_CLASSES}
        classes = {name: PriorityClass(value) for name, value in shipped.items()}
        for manifest in self.of_kind("PriorityClass"):
            classes[manifest["metadata"]["name"]] = PriorityClass(manifest["value"], manifest.get("preemptionPolicy"))
        return classes

    def default_priority_class(self) -> str | None:
        marked = [m for m in self.of_kind("PriorityClass") if m.get("globalDefault")]
        return min(marked, key=lambda m: (m["value"], m["metadata"]["name"]))["metadata"]["name"] if marked else None

    def quotas(self) -> list[QuotaSpec]:
        """Those that can be read; read once, because every pod of a request is looked up in them."""
        if self._quotas is None:
            self._quotas = [spec for m in self.of_kind("ElasticQuota") if (spec := parse_quota(m)[0]) is not None]
        return self._quotas

    def quota_of(self, namespace: str, label: str | None) -> QuotaSpec | None:
        """The quota that a pod is charged to; None while it is the built-in default."""
        if self._lookup is None:
            by_name = {one.name: one for one in reversed(self.quotas())}
            self._lookup = QuotaLookup(by_name), by_name
        lookup, by_name = self._lookup
        found = lookup.find(namespace, label)
        return None if found is None else by_name.get(found.name)

    def profile_of_tree(self, quota: str) -> QuotaProfile | None:
        """The first profile whose tree the quota belongs to; None for a tree that stands for no pool of nodes."""
        if self._pools is None:
            profiles = [p for m in self.of_kind("ElasticQuotaProfile") if (p := parse_profile(m)[0]) is not None]
            by_tree = {profile.tree_id: profile for profile in reversed(profiles)}
            trees = build_forest(self.quotas()).tree_of if by_tree else {}
            self._pools = {name: by_tree[tree] for name, tree in trees.items() if tree in by_tree}
        return self._pools.get(quota)
