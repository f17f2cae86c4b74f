"""What is kept up to date equals what a full rebuild gives."""

from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.quota.spec import ROOT, QuotaSpec, StopPolicy
from cotenant_common.model.quota.tree import build_forest
from cotenant_common.testing.quotas import quota
from cotenant_quota.core.book import QuotaBook
from cotenant_quota.core.guarantees import Guarantees, guaranteed_of
from cotenant_quota.core.tree_book import Options
from cotenant_quota.testing import pod


@st.composite
def _specs(draw: st.DrawFn) -> list[QuotaSpec]:
    specs: list[QuotaSpec] = []
    for index in range(draw(st.integers(1, 7))):
        parents = [ROOT, *(spec.name for spec in specs if spec.is_parent)]
        high = {"cpu": draw(st.integers(0, 30)), "gpu": draw(st.integers(0, 8))}
        specs.append(
            quota(
                f"q{index}",
                min={name: draw(st.integers(0, amount)) for name, amount in high.items()},
                max=high,
                weight={name: draw(st.integers(0, 3)) for name in high},
                parent=draw(st.sampled_from(parents)),
                is_parent=draw(st.booleans()),
                allow_lent=draw(st.booleans()),
                stop_policy=draw(st.sampled_from(StopPolicy)),
            )
        )
    return specs


@given(_specs(), st.booleans(), st.data())
def test_a_kept_tree_equals_a_rebuilt_one(specs: list[QuotaSpec], guarantee: bool, data: st.DataObject) -> None:
    options = Options(guarantee_usage=guarantee)
    book = QuotaBook(options)
    book.set_quotas(specs)
    names = [spec.name for spec in specs]
    total = {"cpu": 20, "gpu": 4}
    for _ in range(data.draw(st.integers(1, 8))):
        uid = data.draw(st.sampled_from("abcde"))
        if data.draw(st.integers(0, 3)) == 0:
            book.remove_pod(uid)
        else:
            request = {"cpu": data.draw(st.integers(0, 12)), "gpu": data.draw(st.integers(0, 4))}
            name, assigned = data.draw(st.sampled_from(names)), data.draw(st.booleans())
            book.set_pod(pod(uid, name, request, assigned=assigned, preemptible=data.draw(st.booleans())))
        if data.draw(st.booleans()):
            total = {"cpu": data.draw(st.integers(0, 60)), "gpu": data.draw(st.integers(0, 9))}
        book.set_cluster(total)
        kept = book.view("default")
        rebuilt = QuotaBook(options)
        rebuilt.set_quotas(specs)
        rebuilt.set_cluster(total)
        for one in book.pods().values():
            rebuilt.set_pod(one)
        assert kept == rebuilt.view("default")
        for view in kept.quotas:
            assert all(amount >= 0 for sums in (view.used, view.request, view.guaranteed) for amount in sums.values())


def test_what_did_not_change_keeps_its_very_view() -> None:
    book = QuotaBook()
    book.set_quotas([quota("a", min=2, max=4), quota("b", min=2, max=4)])
    book.set_cluster({"cpu": 10})
    before = {view.spec.name: view for view in book.view("default").quotas}
    book.set_pod(pod("1", "a", 1))
    after = {view.spec.name: view for view in book.view("default").quotas}
    assert after["b"] is before["b"]
    assert after["a"].used == {"cpu": 1}


def test_waiting_pods_of_a_held_queue_ask_for_nothing_and_running_ones_keep_their_share() -> None:
    specs = [
        quota("p", min=4, is_parent=True, stop_policy=StopPolicy.HOLD),
        quota("a", min=4, parent="p"),
        quota("b", min=4),
    ]
    book = QuotaBook()
    book.set_quotas(specs)
    book.set_cluster({"cpu": 8})
    book.set_pod(pod("runs", "a", 2))
    book.set_pod(pod("waits", "a", 6, assigned=False))
    book.set_pod(pod("other", "b", 8, assigned=False))
    views = {view.spec.name: view for view in book.view("default").quotas}
    assert (views["a"].request, views["a"].runtime, views["b"].runtime) == ({"cpu": 2}, {"cpu": 2}, {"cpu": 6})
    assert (views["a"].stop_policy, views["b"].stop_policy) == (StopPolicy.HOLD, StopPolicy.NONE)


def test_without_runtime_every_quota_may_use_its_max() -> None:
    book = QuotaBook(Options(enable_runtime=False))
    book.set_quotas([quota("a", min=2, max=40)])
    book.set_cluster({"cpu": 8})
    assert [view.runtime for view in book.view("default").quotas if view.spec.max] == [{"cpu": 40}]


@given(_specs(), st.data())
def test_kept_guarantees_equal_those_from_scratch(specs: list[QuotaSpec], data: st.DataObject) -> None:
    tree = build_forest(specs).trees["default"]
    kept = Guarantees(tree)
    used: dict[str, dict[str, int]] = {}
    for name in data.draw(st.lists(st.sampled_from(sorted(tree.specs)), max_size=6)):
        used[name] = {"cpu": data.draw(st.integers(0, 40)), "gpu": data.draw(st.integers(0, 9))}
        kept.set_used(name, used[name])
        assert (kept.allocated, kept.guaranteed) == guaranteed_of(tree, used)
