from cotenant_common.model.quota.tree import build_forest
from cotenant_quota import bench


def test_the_tree_has_as_many_quotas_and_levels_as_asked_for() -> None:
    specs = bench.tree_of(bench.Shape(60, 5, 3))
    tree = build_forest(specs).trees["default"]
    assert (len(tree.specs), len(tree.dimensions), max(len(tree.chain(name)) for name in tree.specs)) == (60, 5, 3)


def test_the_figures_are_those_of_what_was_run() -> None:
    found = bench.recompute(bench.Shape(12, 2, 2), changes=3)
    assert (found["quotas"], len(found["recompute_ms"])) == (12, 3)
    assert bench.admissions(bench.Shape(12, 2, 2), count=10)["admissions_per_s"] > 0
