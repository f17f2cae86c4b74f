from cotenant_common.model.quota.spec import DEFAULT, ROOT, SYSTEM, QuotaSpec
from cotenant_common.model.quota.tree import build_forest
from cotenant_common.model.quota.validate import check_apply, check_delete
from cotenant_common.testing.quotas import quota


def _known(*specs: QuotaSpec) -> dict[str, QuotaSpec]:
    return {spec.name: spec for spec in specs}


PARENT = quota("p", min=100, max=200, is_parent=True)
CHILD = quota("a", min=60, max=200, parent="p")


def _paths(existing: dict[str, QuotaSpec], new: QuotaSpec, **more: object) -> list[str]:
    return [problem.path for problem in check_apply(existing, new, **more)]  # type: ignore[arg-type]


def test_a_sound_child_is_accepted() -> None:
    assert check_apply(_known(PARENT, CHILD), quota("b", min=40, max=200, parent="p")) == []


def test_built_in_quotas_stay_as_they_are() -> None:
    for name in (ROOT, SYSTEM):
        assert _paths({}, quota(name)) == ["metadata.name"]
    assert check_apply({}, quota(DEFAULT, max=50)) == []
    for name in (ROOT, SYSTEM, DEFAULT):
        assert [problem.path for problem in check_delete({}, name)] == ["metadata.name"]


def test_min_bounds_are_checked_on_changes_too() -> None:
    assert _paths({}, quota("a", min=12, max=10)) == ["spec.min.cpu"]


def test_a_namespace_belongs_to_one_quota() -> None:
    existing = _known(quota("a", namespaces=("ns",)))
    assert _paths(existing, quota("b", namespaces=("ns",))) == [
        "metadata.annotations[quota.scheduling.koordinator.sh/namespaces]"
    ]
    assert check_apply(existing, quota("a", namespaces=("ns", "ns2"))) == []


def test_strict_max_must_cover_what_is_used_in_the_strict_dimensions_only() -> None:
    amounts = {"cpu": 1, "memory": 1}
    new = quota("a", max=amounts, strict_keys=("memory",))
    assert _paths({}, new, used={"cpu": 10, "memory": 10}) == ["spec.max.memory"]


def test_parent_must_exist_and_be_a_parent() -> None:
    label = "metadata.labels[quota.scheduling.koordinator.sh/parent]"
    assert _paths({}, CHILD) == [label]
    assert _paths(_known(quota("p")), CHILD) == [label]


def test_a_parent_with_children_stays_a_parent() -> None:
    found = check_apply(_known(PARENT, CHILD), quota("p", min=100, max=200))
    assert "has children: a" in found[0].message


def test_a_quota_with_pods_does_not_become_a_parent() -> None:
    existing = _known(quota("a"))
    assert _paths(existing, quota("a", is_parent=True), bound_pods=2) == [
        "metadata.labels[quota.scheduling.koordinator.sh/is-parent]"
    ]
    assert check_apply(existing, quota("a", is_parent=True)) == []


def test_the_tree_never_changes_and_is_the_same_along_a_chain() -> None:
    label = "metadata.labels[quota.scheduling.koordinator.sh/tree-id]"
    assert label in _paths(_known(quota("a", tree_id="t1")), quota("a", tree_id="t2"))
    parent = quota("p", min=100, max=200, is_parent=True, tree_id="t1")
    assert _paths(_known(parent), quota("a", min=1, max=200, parent="p", tree_id="t2")) == [label]
    assert check_apply(_known(parent), quota("a", min=1, max=200, parent="p")) == []


def test_a_tree_id_below_the_root_is_the_inherited_one() -> None:
    label = "metadata.labels[quota.scheduling.koordinator.sh/tree-id]"
    middle = quota("m", min=50, max=200, parent="p", is_parent=True)
    leaf = quota("a", min=1, max=200, parent="m", tree_id="gold")
    assert _paths(_known(PARENT, middle), leaf) == [label], "its ancestors are in the default tree"
    golden = quota("p", min=100, max=200, is_parent=True, tree_id="gold")
    assert check_apply(_known(golden, middle), leaf) == []
    assert _paths(_known(quota("a", min=1, max=200, parent="m", tree_id="gold")), PARENT) == []
    assert _paths(_known(PARENT, leaf), middle) == [label]


def test_max_names_the_same_resources_up_and_down() -> None:
    both = {"cpu": 200, "memory": 10}
    assert _paths(_known(PARENT), quota("b", min=1, max=both, parent="p")) == ["spec.max"]
    assert _paths(_known(PARENT, CHILD), quota("p", min=100, max=both, is_parent=True)) == ["spec.max"]


def test_min_resources_must_be_backed_by_the_parent() -> None:
    both = {"cpu": 200, "memory": 10}
    parent = quota("p", min={"cpu": 100}, max=both, is_parent=True)
    child = quota("a", min={"cpu": 1, "memory": 1}, max=both, parent="p")
    assert "spec.min" in _paths(_known(parent), child)
    assert "spec.min" in _paths(_known(quota("p", min=both, max=both, is_parent=True), child), parent)


def test_mins_of_siblings_fit_into_the_parents_min() -> None:
    new = quota("b", min=41, max=200, parent="p")
    assert [problem.message for problem in check_apply(_known(PARENT, CHILD), new)] == [
        "the mins of the children of p pass the min of p: 101m > 100m"
    ]
    forced = quota("b", min=41, max=200, parent="p", allow_force_update=True)
    assert check_apply(_known(PARENT, CHILD), forced) == []


def test_lowering_a_parents_min_below_its_childrens_is_refused() -> None:
    assert _paths(_known(PARENT, CHILD), quota("p", min=59, max=200, is_parent=True)) == ["spec.min.cpu"]
    root = quota("p", min=59, max=200, is_parent=True, is_root=True)
    assert check_apply(_known(PARENT, CHILD), root) == []


def test_children_of_the_root_are_not_summed() -> None:
    assert check_apply(_known(quota("a", min=10**6)), quota("b", min=10**6)) == []


def test_delete_needs_no_children_and_no_pods() -> None:
    existing = _known(PARENT, CHILD)
    assert "has children: a" in check_delete(existing, "p")[0].message
    assert "3 pods" in check_delete(existing, "a", bound_pods=3)[0].message
    assert check_delete(existing, "a") == []


def test_what_passes_every_check_is_attached() -> None:
    assert build_forest([PARENT, CHILD]).detached == {}


def test_moving_to_a_parent_of_another_tree_is_refused() -> None:
    trees = [quota("p1", is_parent=True, tree_id="one"), quota("p2", is_parent=True, tree_id="two")]
    known = _known(*trees, quota("a", parent="p1"))
    problems = check_apply(known, quota("a", parent="p2"))
    assert [problem.path for problem in problems] == ["metadata.labels[quota.scheduling.koordinator.sh/parent]"]
    assert "one → two" in problems[0].message


def test_the_capacity_of_a_tree_is_stated_once_and_at_its_root() -> None:
    path = "metadata.annotations[quota.scheduling.koordinator.sh/total-resource]"
    root = quota("r", is_parent=True, is_root=True, tree_id="t", total_resource={"cpu": 9})
    assert check_apply({}, root) == []
    assert check_apply(_known(root), root) == []
    assert _paths(_known(root), quota("r2", is_parent=True, tree_id="t", total_resource={"cpu": 9})) == [path]
    assert path in _paths(_known(root), quota("c", parent="r", total_resource={"cpu": 9}))
    assert check_apply(_known(root), quota("other", is_parent=True, tree_id="u", total_resource={"cpu": 9})) == []
