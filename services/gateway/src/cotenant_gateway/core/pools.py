"""Pods of a quota tree that stands for a pool of nodes stay in the pool (Koordinator's multi-quota-tree affinity)."""

from typing import Any

from cotenant_common.model.quota.spec import QuotaSpec
from cotenant_gateway.core.catalog import Catalog

Manifest = dict[str, Any]


def pin_to_pool(spec: Manifest, quota: QuotaSpec, catalog: Catalog) -> None:
    """Require the labels of the pool's nodes beside whatever the pod requires itself. What it uses is shared out of the
    pool's capacity; anywhere else it would take what that does not count."""
    profile = catalog.profile_of_tree(quota.name)
    if profile is None or not profile.node_selector:
        return
    wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(profile.node_selector.items())]
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    # Terms are alternatives, so each of them has to say it.
    own: list[Manifest] = required.get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *wanted]} for term in own]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {**required, "nodeSelectorTerms": terms}
    spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}
