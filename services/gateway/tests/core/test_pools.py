from typing import Any

from cotenant_common.testing.builders import pod_manifest, quota_manifest
from cotenant_gateway.core.admission import admit_pod
from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.validate.schema import Report

GOLD = {"key": "pool", "operator": "In", "values": ["gold"]}


def _catalog(**spec: Any) -> Catalog:
    catalog = Catalog()
    profile = {
        "metadata": {"name": "gold", "labels": {"quota.scheduling.koordinator.sh/tree-id": "t"}},
        "spec": {"quotaName": "root", "nodeSelector": {"pool": "gold"}, **spec},
    }
    catalog.add("ElasticQuotaProfile", "default", "gold", profile)
    quotas = [
        quota_manifest("root", maximum={"cpu": 9}, is_parent=True, tree="t"),
        quota_manifest("team", maximum={"cpu": 9}, parent="root"),
        quota_manifest("other", maximum={"cpu": 9}),
    ]
    for quota in quotas:
        catalog.add("ElasticQuota", "default", quota["metadata"]["name"], quota)
    return catalog


def _terms(quota: str | None, catalog: Catalog, **spec: Any) -> list[Any] | None:
    admitted = admit_pod(pod_manifest("p", cpu=1, quota=quota, spec=spec), catalog, Report())
    assert admitted is not None
    affinity = (admitted.manifest["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required["nodeSelectorTerms"] if required else None


def test_a_pod_of_the_pools_tree_stays_in_the_pool():
    assert _terms("team", _catalog()) == [{"matchExpressions": [GOLD]}]


def test_every_alternative_of_the_pods_own_affinity_is_bound_to_the_pool():
    zone = {"key": "zone", "operator": "Exists"}
    own = [{"matchExpressions": [zone]}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}}
    assert _terms("team", _catalog(), affinity=affinity) == [
        {"matchExpressions": [zone, GOLD]},
        {**own[1], "matchExpressions": [GOLD]},
    ]


def test_other_pods_go_where_they_like():
    assert _terms("other", _catalog()) is None
    assert _terms(None, _catalog()) is None
    assert _terms("team", _catalog(nodeSelector={})) is None
