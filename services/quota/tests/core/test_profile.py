from fractions import Fraction

from cotenant_common.model import labels
from cotenant_common.model.quota.profile import QuotaProfile
from cotenant_common.model.quota.spec import parse_quota
from cotenant_quota.core.profile import Pool, PoolNode, pool_of, root_quota

PROFILE = QuotaProfile(
    "gold", "ops", "gold-root", {"team": "x"}, {"pool": "gold"}, Fraction("0.9"), "t1", ("cpu", "memory")
)
GOLD = {"pool": "gold", "zone": "a"}


def test_a_pool_is_the_part_of_its_nodes_that_the_ratio_says() -> None:
    nodes = [
        PoolNode(GOLD, {"cpu": 10_001, "memory": 100, "pods": 110}),
        PoolNode(GOLD, {"cpu": 10_000, "memory": 100}, schedulable=False),
        PoolNode({"pool": "silver"}, {"cpu": 99_000, "memory": 9}),
    ]
    assert pool_of(PROFILE, nodes) == Pool({"cpu": 18_000, "memory": 180}, {"cpu": 9_000, "memory": 90})


def test_a_pool_without_nodes_has_nothing_and_says_so() -> None:
    assert pool_of(PROFILE, []) == Pool({"cpu": 0, "memory": 0}, {"cpu": 0, "memory": 0})


def test_the_root_quota_says_whose_it_is_and_keeps_what_others_wrote() -> None:
    existing = {"metadata": {"labels": {"keep": "me", labels.QUOTA_TREE_ID: "old"}, "annotations": {"note": "mine"}}}
    manifest = root_quota(PROFILE, Pool({"cpu": 18_000}, {"cpu": 9_000}), existing)
    spec, problems = parse_quota(manifest)
    assert problems == ()
    assert spec is not None
    assert (spec.name, spec.namespace, spec.tree_id, spec.is_root, spec.is_parent) == (
        "gold-root", "ops", "t1", True, True,
    )  # fmt: skip
    assert (spec.min, spec.total_resource) == ({"cpu": 18_000}, {"cpu": 18_000})
    assert (
        manifest["metadata"]["labels"] | {"keep": "me", "team": "x", labels.QUOTA_PROFILE: "gold"}
        == (manifest["metadata"]["labels"])
    )
    assert manifest["metadata"]["annotations"]["note"] == "mine"
    assert manifest["metadata"]["annotations"][labels.QUOTA_UNSCHEDULABLE_RESOURCE] == '{"cpu": "9"}'
