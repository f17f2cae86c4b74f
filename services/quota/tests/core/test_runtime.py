import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.quota.spec import ROOT, QuotaSpec
from cotenant_common.model.quota.tree import QuotaTree, build_forest
from cotenant_common.testing.quotas import quota
from cotenant_quota.core.fair_share import Claim, fair_share
from cotenant_quota.core.runtime import TreeRuntime

GIB = 2**30


def _tree(*specs: QuotaSpec) -> QuotaTree:
    return build_forest(specs).trees["default"]


def _chain(leaf_max: dict[str, int]) -> TreeRuntime:
    full, low = {"cpu": 96_000, "memory": 160 * GIB}, {"cpu": 50_000, "memory": 80 * GIB}
    tree = _tree(
        quota("test1", min=low, max=full, is_parent=True),
        quota("test1-a", min=low, max=full, parent="test1", is_parent=True),
        quota("a-123", min=low, max=leaf_max, parent="test1-a"),
    )
    runtime = TreeRuntime(tree)
    runtime.set_request("a-123", {"cpu": 96_000, "memory": 130 * GIB})
    runtime.refresh(full)
    return runtime


def test_one_chain_gets_what_it_asks_for_at_every_level() -> None:
    runtime = _chain({"cpu": 96_000, "memory": 160 * GIB})
    for name in ("test1", "test1-a", "a-123"):
        assert runtime.runtime(name) == {"cpu": 96_000, "memory": 130 * GIB}


def test_max_limits_what_the_parents_see_but_not_the_request_itself() -> None:
    runtime = _chain({"cpu": 64_000, "memory": 128 * GIB})
    assert runtime.request("a-123") == {"cpu": 96_000, "memory": 130 * GIB}
    for name in ("test1", "test1-a", "a-123"):
        assert runtime.runtime(name) == {"cpu": 64_000, "memory": 128 * GIB}


@pytest.mark.parametrize(("asked", "share"), [(10, 10), (25, 25), (55, 30), (0, 0)])
def test_request_between_min_and_max(asked: int, share: int) -> None:
    runtime = TreeRuntime(_tree(quota("a", min=20, max=50, is_parent=True), quota("a-123", min=20, max=30, parent="a")))
    runtime.set_request("a-123", {"cpu": asked})
    runtime.refresh({"cpu": 100})
    assert runtime.runtime("a-123") == {"cpu": share}
    assert runtime.request("a") == {"cpu": share}


def _three_below(total: int, *, scale_min: bool = True) -> TreeRuntime:
    tree = _tree(
        quota("p", min=300_000, max=900_000, is_parent=True),
        *(quota(name, min=100_000, max=900_000, parent="p") for name in "abc"),
    )
    runtime = TreeRuntime(tree, scale_min=scale_min)
    for name in "abc":
        runtime.set_request(name, {"cpu": 200_000})
    runtime.refresh({"cpu": total})
    return runtime


def test_mins_scale_with_the_parents_runtime() -> None:
    runtime = _three_below(200_000)
    assert runtime.scaled_mins("p", "cpu") == dict.fromkeys("abc", 66_666)
    assert [runtime.runtime(name)["cpu"] for name in "abc"] == [66_667, 66_667, 66_666]


def test_full_shares_when_capacity_arrives() -> None:
    runtime = _three_below(200_000)
    assert runtime.refresh({"cpu": 600_000}) == ("p", "a", "b", "c")
    assert runtime.scaled_mins("p", "cpu") == dict.fromkeys("abc", 100_000)
    assert [runtime.runtime(name)["cpu"] for name in "pabc"] == [600_000, 200_000, 200_000, 200_000]


def test_scaling_switched_off_overcommits_as_stated() -> None:
    runtime = _three_below(200_000, scale_min=False)
    assert [runtime.runtime(name)["cpu"] for name in "pabc"] == [300_000, 100_000, 100_000, 100_000]


def test_capacity_below_the_guarantees_shrinks_in_proportion() -> None:
    runtime = TreeRuntime(_tree(quota("a", min=8), quota("b", min=4)))
    for name in "ab":
        runtime.set_request(name, {"cpu": 8})
    runtime.refresh({"cpu": 10})
    assert runtime.runtime("a")["cpu"] + runtime.runtime("b")["cpu"] == 10
    assert runtime.runtime("a")["cpu"] >= 6


def test_excess_in_one_dimension_lowers_no_other() -> None:
    amounts = {"cpu": 16_000, "nvidia.com/gpu": 8}
    runtime = TreeRuntime(_tree(quota("owner", min=amounts, max=amounts), quota("other", min=amounts, max=amounts)))
    runtime.set_request("owner", {"cpu": 16_100, "nvidia.com/gpu": 8})
    runtime.set_request("other", {"cpu": 16_000, "nvidia.com/gpu": 8})
    runtime.refresh({"cpu": 32_000, "nvidia.com/gpu": 16})
    assert runtime.runtime("owner") == {"cpu": 16_000, "nvidia.com/gpu": 8}


def test_a_non_lender_keeps_its_unscaled_min_as_its_request() -> None:
    runtime = TreeRuntime(_tree(quota("keeps", min=60, allow_lent=False), quota("asks", min=60)))
    runtime.set_request("asks", {"cpu": 100})
    runtime.refresh({"cpu": 100})
    assert runtime.request("keeps") == {"cpu": 60}
    assert (runtime.runtime("keeps"), runtime.runtime("asks")) == ({"cpu": 50}, {"cpu": 50})


def test_a_guarantee_holds_when_weights_do_not() -> None:
    runtime = TreeRuntime(_tree(quota("a", weight=0), quota("b", min=10)))
    runtime.set_request("a", {"cpu": 70})
    runtime.set_request("b", {"cpu": 100})
    runtime.set_guarantee("a", {"cpu": 45})
    runtime.refresh({"cpu": 100})
    assert (runtime.runtime("a"), runtime.runtime("b")) == ({"cpu": 45}, {"cpu": 55})


def test_only_what_changed_is_reported() -> None:
    runtime = TreeRuntime(_tree(quota("a", min=10, max=10), quota("b", min=10, max=10)))
    runtime.set_request("a", {"cpu": 5})
    assert runtime.refresh({"cpu": 20}) == ("a",)
    assert runtime.refresh({"cpu": 20}) == ()
    runtime.set_request("b", {"cpu": 7})
    assert runtime.refresh({"cpu": 20}) == ("b",)


@st.composite
def _trees(draw: st.DrawFn) -> list[QuotaSpec]:
    specs: list[QuotaSpec] = []
    for index in range(draw(st.integers(1, 9))):
        parents = [ROOT, *(spec.name for spec in specs if spec.is_parent)]
        high = {"cpu": draw(st.integers(0, 60)), "gpu": draw(st.integers(0, 8))}
        low = {name: draw(st.integers(0, amount)) for name, amount in high.items()}
        weight = {name: draw(st.integers(0, 9)) for name in high}
        specs.append(
            quota(
                f"q{index}",
                min=low,
                max=high,
                weight=weight,
                parent=draw(st.sampled_from(parents)),
                is_parent=draw(st.booleans()),
                allow_lent=draw(st.booleans()),
            )
        )
    return specs


def _slow(tree: QuotaTree, demand: dict[str, int], total: int, key: str) -> dict[str, int]:
    """Everything from scratch, level by level, by the definition."""

    def request_of(name: str) -> int:
        spec = tree.specs[name]
        asked = demand.get(name, 0) + sum(limited_of(child) for child in tree.children.get(name, ()))
        return asked if spec.allow_lent else max(asked, spec.min[key])

    def limited_of(name: str) -> int:
        return min(request_of(name), tree.specs[name].max[key])

    found: dict[str, int] = {}

    def share(parent: str, amount: int) -> None:
        claims = [
            Claim(
                n, tree.specs[n].shared_weight[key], limited_of(n), tree.specs[n].min[key], 0, tree.specs[n].allow_lent
            )
            for n in tree.children.get(parent, ())
        ]
        found.update(fair_share(amount, claims))
        for claim in claims:
            share(claim.name, max(0, found[claim.name] - demand.get(claim.name, 0)))

    share(ROOT, total)
    return found


@given(_trees(), st.data())
def test_incremental_equals_from_scratch(specs: list[QuotaSpec], data: st.DataObject) -> None:
    tree = _tree(*specs)
    runtime = TreeRuntime(tree)
    demand: dict[str, dict[str, int]] = {}
    total = {"cpu": 50, "gpu": 8}
    for _ in range(data.draw(st.integers(1, 5))):
        name = data.draw(st.sampled_from(sorted(tree.specs)))
        demand[name] = {"cpu": data.draw(st.integers(0, 80)), "gpu": data.draw(st.integers(0, 9))}
        runtime.set_request(name, demand[name])
        if data.draw(st.booleans()):
            total = {"cpu": data.draw(st.integers(0, 150)), "gpu": data.draw(st.integers(0, 16))}
        runtime.refresh(total)
        for key in total:
            slow = _slow(tree, {quota_name: asked[key] for quota_name, asked in demand.items()}, total[key], key)
            assert {quota_name: runtime.runtime(quota_name)[key] for quota_name in tree.specs} == slow


@given(_trees(), st.data())
def test_shares_stay_within_the_total_at_every_level(specs: list[QuotaSpec], data: st.DataObject) -> None:
    tree = _tree(*specs)
    runtime = TreeRuntime(tree)
    for name in sorted(tree.specs):
        if not tree.children.get(name):
            runtime.set_request(name, {"cpu": data.draw(st.integers(0, 80))})
    total = data.draw(st.integers(0, 150))
    runtime.refresh({"cpu": total})
    for parent, children in tree.children.items():
        amount = total if parent == ROOT else runtime.runtime(parent)["cpu"]
        assert sum(runtime.runtime(child)["cpu"] for child in children) <= amount
        assert all(runtime.runtime(child)["cpu"] <= tree.specs[child].max["cpu"] for child in children)


def test_only_the_touched_groups_are_shared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand quotas, three levels, four dimensions: one leaf costs its own chain. Counted, not timed."""
    dims = dict.fromkeys(("cpu", "disk", "gpu", "memory"), 1000)
    specs = [quota(f"t{i}", max=dims, is_parent=True) for i in range(10)]
    specs += [quota(f"t{i}-{j}", parent=f"t{i}", max=dims, is_parent=True) for i in range(10) for j in range(9)]
    specs += [quota(f"{spec.name}-{k}", parent=spec.name, max=dims) for spec in specs[10:] for k in range(10)]
    runtime = TreeRuntime(_tree(*specs))
    for index, spec in enumerate(specs[100:]):
        runtime.set_request(spec.name, dict.fromkeys(dims, index % 7))
    runtime.refresh(dict.fromkeys(dims, 5000))
    shared: list[int] = []

    def counting(total: int, claims: list[Claim], *, scale_min: bool) -> dict[str, int]:
        shared.append(len(claims))
        return fair_share(total, claims, scale_min=scale_min)

    monkeypatch.setattr("cotenant_quota.core.runtime.fair_share", counting)
    runtime.set_request("t3-3-3", dict.fromkeys(dims, 500))
    assert runtime.refresh(dict.fromkeys(dims, 5000)) == ("t3", "t3-3", "t3-3-3")
    assert sorted(shared) == [9] * 4 + [10] * 8
