import pytest

from cotenant_common.model.quota.spec import DEFAULT, ROOT, QuotaSpec
from cotenant_common.testing.quotas import quota
from cotenant_quota.core.book import QuotaBook, TreeView
from cotenant_quota.core.borrow import Loan, Overuse
from cotenant_quota.core.tree_book import Options, QuotaView
from cotenant_quota.testing import pod


def _book(*specs: QuotaSpec, cluster: int = 10, options: Options | None = None) -> QuotaBook:
    book = QuotaBook(options)
    book.set_quotas(specs)
    book.set_cluster({"cpu": cluster})
    return book


def _tree(book: QuotaBook) -> TreeView:
    return book.view("default")


def _quota(book: QuotaBook, name: str) -> QuotaView:
    return next(view for view in _tree(book).quotas if view.spec.name == name)


def test_the_first_pod_raises_the_share_it_needs() -> None:
    book = _book(quota("a", min=10, max=40), cluster=40)
    book.set_pod(pod("1", "a", 1, assigned=False))
    view = _quota(book, "a")
    assert (view.request, view.used, view.runtime) == ({"cpu": 1}, {"cpu": 0}, {"cpu": 1})


def test_the_default_quotas_use_is_not_shared_out() -> None:
    book = _book(quota("a", max=40))
    book.set_pod(pod("1", "a", 40, assigned=False))
    book.set_pod(pod("other", None, 4))
    assert _tree(book).total == {"cpu": 6}
    assert _quota(book, "a").runtime == {"cpu": 6}
    assert _quota(book, DEFAULT).used == {"cpu": 4}


def test_pods_come_home_when_their_quota_appears_and_leave_when_it_goes() -> None:
    book = _book()
    book.set_pod(pod("1", "a", 3))
    assert book.quota_of("1") == DEFAULT
    book.set_quotas([quota("a")])
    assert (book.quota_of("1"), _quota(book, "a").used) == ("a", {"cpu": 3})
    book.set_quotas([])
    assert (book.quota_of("1"), _quota(book, DEFAULT).used) == (DEFAULT, {"cpu": 3})


def test_without_a_default_quota_a_pod_without_one_is_charged_to_nobody() -> None:
    book = _book(options=Options(use_default_quota=False))
    book.set_pod(pod("1", None, 3))
    book.remove_pod("1")
    assert book.quota_of("1") is None
    assert _tree(book).total == {"cpu": 10}


def test_a_quota_that_hangs_nowhere_shares_nothing_and_says_why() -> None:
    book = _book(quota("a", max=5, parent="gone"))
    book.set_pod(pod("1", "a", 2))
    view = _quota(book, "a")
    assert (view.runtime, view.used) == ({"cpu": 0}, {"cpu": 2})
    assert view.problem is not None
    assert "gone does not exist" in view.problem
    assert _tree(book).total == {"cpu": 8}


def test_lender_and_borrower_are_named_and_the_lender_gets_its_share_back() -> None:
    book = _book(quota("a", min=4), quota("b", min=6))
    book.set_pod(pod("b1", "b", 6))
    book.set_pod(pod("b2", "b", 3))
    assert _tree(book).standing.loans == (Loan("b", "a", "cpu", 3),)
    assert _tree(book).standing.overuse == ()
    book.set_pod(pod("a1", "a", 4, assigned=False))
    standing = _tree(book).standing
    assert standing.loans == (Loan("b", "a", "cpu", 3),)
    assert standing.overuse == (Overuse("b", "cpu", 9, 6),)
    book.remove_pod("b2")
    assert _tree(book).standing.loans == ()


def test_loans_appear_at_every_level() -> None:
    specs = [
        quota("p", min=4, is_parent=True),
        quota("p-a", min=2, parent="p"),
        quota("p-b", min=2, parent="p"),
        quota("q", min=6),
    ]
    book = _book(*specs)
    book.set_pod(pod("1", "p-a", 6))
    assert _tree(book).standing.loans == (
        Loan("p", "q", "cpu", 2),
        Loan("p-a", "p", "cpu", 2),
        Loan("p-a", "p-b", "cpu", 2),
    )


def test_used_above_a_lowered_max_is_over() -> None:
    book = _book(quota("a", max=10))
    book.set_pod(pod("1", "a", 10))
    book.set_quotas([quota("a", max=8)])
    assert _tree(book).standing.overuse == (Overuse("a", "cpu", 10, 8),)


def test_guaranteed_use_is_not_cut_when_the_option_is_on() -> None:
    specs = (quota("a", min=2), quota("b", min=2))
    for on, share in ((False, 5), (True, 8)):
        book = _book(*specs, options=Options(guarantee_usage=on))
        book.set_pod(pod("1", "a", 8))
        book.set_pod(pod("2", "b", 8, assigned=False))
        assert _quota(book, "a").runtime == {"cpu": share}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_the_order_of_news_does_not_matter(order: tuple[int, ...]) -> None:
    book = QuotaBook()
    news = (
        lambda: book.set_quotas([quota("a", min=4), quota("b", min=6)]),
        lambda: book.set_cluster({"cpu": 10}),
        lambda: book.set_pod(pod("1", "a", 7)),
        lambda: book.set_pod(pod("2", "b", 7, assigned=False)),
    )
    for index in order:
        news[index]()
    assert [view.runtime for view in _tree(book).quotas if view.spec.parent == ROOT and view.spec.max] == [
        {"cpu": 4},
        {"cpu": 6},
    ]


def test_only_touched_trees_are_refreshed() -> None:
    gpu = quota("g", is_root=True, tree_id="gpu", total_resource={"cpu": 4})
    book = _book(quota("a"), gpu)
    assert [view.tree_id for view in book.refresh()] == ["default", "gpu"]
    assert book.refresh() == ()
    book.set_pod(pod("1", "g", 3))
    assert [view.tree_id for view in book.refresh()] == ["gpu"]
    book.set_pod(pod("1", "g", 3))
    assert book.refresh() == ()
    book.set_pod(pod("2", None, 3))
    assert [view.tree_id for view in book.refresh()] == ["default"]
