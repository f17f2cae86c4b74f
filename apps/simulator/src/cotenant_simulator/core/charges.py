"""Who is charged for what is bound, worked out from the objects alone."""

from collections.abc import Iterable

from cotenant_common.contracts.messages.state import Binding, SpecRecord
from cotenant_common.model import labels, resources
from cotenant_common.model.quota.lookup import QuotaLookup
from cotenant_common.model.quota.spec import parse_quota
from cotenant_common.model.quota.tree import build_forest

Used = dict[str, dict[str, int]]


def used_by_quota(specs: Iterable[SpecRecord], charged: Iterable[Binding]) -> Used:
    """By the quotas as they stand: a pod moves to its quota as soon as that exists, and its binding does not say so."""
    records = list(specs)
    written = [quota for one in records if one.kind == "ElasticQuota" and (quota := parse_quota(one.manifest)[0])]
    forest = build_forest(written)
    lookup = QuotaLookup.of(forest)
    label_of = {one.uid: _label(one) for one in records if one.kind == "Pod"}
    used: Used = {}
    for binding in charged:
        found = lookup.find(binding.namespace, label_of.get(binding.uid, binding.quota))
        if found is None:
            continue
        tree = forest.tree_of.get(found.name)
        for name in (found.name,) if tree is None else forest.trees[tree].chain(found.name):
            used[name] = resources.add(used.get(name, {}), binding.requests)
    return used


def _label(record: SpecRecord) -> str | None:
    given = (record.manifest.get("metadata") or {}).get("labels") or {}
    return given.get(labels.QUOTA_NAME) or None
