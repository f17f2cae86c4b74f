"""ElasticQuotaProfile: a pool of nodes as the root of a quota tree of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from cotenant_common.model import labels, resources
from cotenant_common.model.quota.profile import QuotaProfile
from cotenant_common.model.resources import ResourceList

# Koordinator writes MaxInt64 / 2000 so that milli-values stay inside 64 bits: there is no max for a pool.
POOL_MAX: Final = (2**63 - 1) // 2000


@dataclass(frozen=True, slots=True)
class PoolNode:
    """``schedulable`` is false for a node that is cordoned, not ready or lost."""

    labels: Mapping[str, str]
    allocatable: ResourceList
    schedulable: bool = True


@dataclass(frozen=True, slots=True)
class Pool:
    total: ResourceList
    unschedulable: ResourceList


def pool_of(profile: QuotaProfile, nodes: Iterable[PoolNode]) -> Pool:
    """Σ allocatable of the selected nodes × ratio, rounded down. A cordoned node stays in the total: what runs there
    still uses the quota."""
    total: dict[str, int] = dict.fromkeys(profile.resource_keys, 0)
    unschedulable = dict(total)
    for node in nodes:
        if not profile.selects(node.labels):
            continue
        for name in profile.resource_keys:
            amount = node.allocatable.get(name, 0)
            total[name] += amount
            if not node.schedulable:
                unschedulable[name] += amount
    return Pool(_scaled(total, profile.ratio), _scaled(unschedulable, profile.ratio))


def _scaled(amounts: ResourceList, ratio: Fraction) -> dict[str, int]:
    return {name: amount * ratio.numerator // ratio.denominator for name, amount in amounts.items()}


def root_quota(profile: QuotaProfile, pool: Pool, existing: Mapping[str, Any] | None) -> dict[str, Any]:
    """The manifest of the tree's root. What others wrote into the existing one and is not ours stays."""
    metadata: Mapping[str, Any] = (existing or {}).get("metadata") or {}
    ours = {
        labels.QUOTA_IS_PARENT: "true",
        **profile.quota_labels,
        labels.QUOTA_PROFILE: profile.name,
        labels.QUOTA_TREE_ID: profile.tree_id,
        labels.QUOTA_IS_ROOT: "true",
    }
    annotations = {
        labels.QUOTA_TOTAL_RESOURCE: _text(pool.total),
        labels.QUOTA_UNSCHEDULABLE_RESOURCE: _text(pool.unschedulable),
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": profile.quota_name,
            "namespace": profile.namespace,
            "labels": {**(metadata.get("labels") or {}), **ours},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
        },
        "spec": {
            "min": {name: resources.render(name, amount) for name, amount in sorted(pool.total.items())},
            "max": {name: str(POOL_MAX) for name in sorted(pool.total)},
        },
    }


def _text(amounts: ResourceList) -> str:
    """JSON by hand, so that equal amounts are equal text."""
    return "{" + ", ".join(f'"{name}": "{resources.render(name, amounts[name])}"' for name in sorted(amounts)) + "}"
