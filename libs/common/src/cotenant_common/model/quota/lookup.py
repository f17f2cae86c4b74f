"""Which quota a pod is charged to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cotenant_common.model.quota.spec import DEFAULT, ROOT, QuotaSpec
from cotenant_common.model.quota.tree import Forest


class FoundBy(StrEnum):
    """Why a pod belongs to a quota, strongest first."""

    LABEL = "label"
    NAMESPACE_NAME = "namespace-name"
    NAMESPACES_ANNOTATION = "namespaces-annotation"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class PodQuota:
    """``unknown`` is the name a label asked for when no such quota exists."""

    name: str
    found_by: FoundBy
    unknown: str | None = None


class QuotaLookup:
    """Answers from indexes, since every pod is looked up again whenever a quota changes."""

    def __init__(self, specs: Mapping[str, QuotaSpec], *, use_default: bool = True) -> None:
        self._specs = specs
        self._use_default = use_default
        self._own_namespace = {spec.namespace: name for name, spec in specs.items() if name == spec.namespace}
        self._annotated: dict[str, str] = {}
        for name in sorted(specs):
            for namespace in specs[name].namespaces:
                self._annotated.setdefault(namespace, name)

    @classmethod
    def of(cls, forest: Forest, *, use_default: bool = True) -> "QuotaLookup":
        return cls(forest.specs, use_default=use_default)

    def find(self, namespace: str, label: str | None) -> PodQuota | None:
        """None only when nothing names a quota and the default quota is switched off."""
        if label and label != ROOT and label in self._specs:
            return PodQuota(label, FoundBy.LABEL)
        if label:
            return self._default(unknown=label)
        if (name := self._own_namespace.get(namespace)) is not None:
            return PodQuota(name, FoundBy.NAMESPACE_NAME)
        if (name := self._annotated.get(namespace)) is not None:
            return PodQuota(name, FoundBy.NAMESPACES_ANNOTATION)
        return self._default(unknown=None)

    def _default(self, unknown: str | None) -> PodQuota | None:
        return PodQuota(DEFAULT, FoundBy.DEFAULT, unknown) if self._use_default else None
