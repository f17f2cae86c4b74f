import pytest

from cotenant_common.model.quota.lookup import FoundBy, PodQuota, QuotaLookup
from cotenant_common.model.quota.spec import DEFAULT, ROOT, SYSTEM
from cotenant_common.model.quota.tree import build_forest, cluster_total_of
from cotenant_common.testing.quotas import quota


def test_children_are_sorted_and_chains_end_below_the_root() -> None:
    forest = build_forest([quota("b", parent="p"), quota("a", parent="p"), quota("p", is_parent=True), quota("solo")])
    tree = forest.trees["default"]
    assert tree.children[ROOT] == ("p", "solo")
    assert tree.children["p"] == ("a", "b")
    assert tree.chain("a") == ("a", "p")


def test_a_child_inherits_the_tree_of_its_root() -> None:
    forest = build_forest(
        [quota("r", is_parent=True, is_root=True, tree_id="gpu", total_resource={"cpu": 64}), quota("c", parent="r")]
    )
    assert forest.tree_of == {"r": "gpu", "c": "gpu"}


@pytest.mark.parametrize(
    ("specs", "name", "words"),
    [
        ([quota("a", parent="gone")], "a", "gone does not exist"),
        ([quota("p"), quota("a", parent="p")], "a", "p is no parent"),
        ([quota("a", parent="b", is_parent=True), quota("b", parent="a", is_parent=True)], "a", "own ancestor"),
        (
            [quota("a", parent="b", is_parent=True), quota("b", parent="a", is_parent=True), quota("x", parent="a")],
            "x",
            "a hangs nowhere",
        ),
        ([quota("p", parent="gone", is_parent=True), quota("a", parent="p")], "a", "p hangs nowhere"),
    ],
)
def test_what_hangs_nowhere_is_detached_with_the_reason(specs: list, name: str, words: str) -> None:  # type: ignore[type-arg]
    forest = build_forest(specs)
    assert words in forest.detached[name].message
    assert name not in forest.tree_of


def test_named_trees_take_their_total_from_the_default_tree_unless_told_not_to() -> None:
    gpu = quota("r1", is_parent=True, is_root=True, tree_id="gpu", total_resource={"cpu": 60})
    apart = quota("r2", is_root=True, tree_id="apart", total_resource={"cpu": 30}, ignore_default_tree=True)
    forest = build_forest([gpu, apart, quota("a")])
    totals = {name: cluster_total_of(forest, tree, {"cpu": 100}) for name, tree in forest.trees.items()}
    assert totals == {"default": {"cpu": 40}, "gpu": {"cpu": 60}, "apart": {"cpu": 30}}


def _lookup(**options: bool) -> QuotaLookup:
    specs = [
        quota("team", namespace="koordinator-system", namespaces=("shared",)),
        quota("ml", namespace="ml"),
        quota("elsewhere", namespace="ml"),
    ]
    return QuotaLookup.of(build_forest(specs), **options)


@pytest.mark.parametrize(
    ("namespace", "label", "found"),
    [
        ("ml", "team", PodQuota("team", FoundBy.LABEL)),
        ("ml", None, PodQuota("ml", FoundBy.NAMESPACE_NAME)),
        ("shared", None, PodQuota("team", FoundBy.NAMESPACES_ANNOTATION)),
        ("elsewhere", None, PodQuota(DEFAULT, FoundBy.DEFAULT)),  # that quota lives in another namespace
        ("ml", "gone", PodQuota(DEFAULT, FoundBy.DEFAULT, unknown="gone")),
        ("kube-system", SYSTEM, PodQuota(SYSTEM, FoundBy.LABEL)),
        ("any", ROOT, PodQuota(DEFAULT, FoundBy.DEFAULT, unknown=ROOT)),
    ],
)
def test_pod_to_quota(namespace: str, label: str | None, found: PodQuota) -> None:
    assert _lookup().find(namespace, label) == found


def test_without_a_default_quota_a_pod_may_have_none() -> None:
    assert _lookup(use_default=False).find("any", None) is None
