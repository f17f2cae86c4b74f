from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import QuotaTreeStatus
from cotenant_common.testing.quotas import quota
from cotenant_quota.adapters.status import StatusWriter
from cotenant_quota.core.book import QuotaBook
from cotenant_quota.core.borrow import Standing, transitions
from cotenant_quota.testing import pod

REVISIONS = {"specs": 1, "bindings": 2, "nodes": 3}


def _write(writer: StatusWriter, book: QuotaBook, generation: int, **over: int) -> QuotaTreeStatus:
    view = book.view("default")
    changes = transitions(Standing(), view.standing)
    return writer.status(view, changes, generation=generation, revisions=REVISIONS, over_since=over, now_ms=9)


def test_the_bytes_are_those_of_the_message() -> None:
    book, writer = QuotaBook(), StatusWriter()
    book.set_quotas([quota("a", min=4), quota("b", min=6), quota("lost", parent="nowhere")])
    book.set_cluster({"cpu": 10})
    for generation in (1, 2, 3):
        book.set_pod(pod(f"p{generation}", "b", 4 * generation))
        status = _write(writer, book, generation, b=7)
        data = writer.encode(status)
        assert data == codec.encode(status)
        assert codec.decode(QuotaTreeStatus, data) == status
    assert status.loans
    assert status.changes
    assert next(one for one in status.quotas if one.name == "b").over_since_ms == 7


def test_only_what_changed_is_made_again() -> None:
    book, writer = QuotaBook(), StatusWriter()
    book.set_quotas([quota("a", min=4), quota("b", min=6)])
    book.set_cluster({"cpu": 10})
    first = {one.name: one for one in _write(writer, book, 1).quotas}
    book.set_pod(pod("1", "a", 1))
    second = {one.name: one for one in _write(writer, book, 2).quotas}
    assert second["b"] is first["b"]
    assert second["a"] is not first["a"]
    third = {one.name: one for one in _write(writer, book, 3, a=5).quotas}
    assert third["a"].over_since_ms == 5
