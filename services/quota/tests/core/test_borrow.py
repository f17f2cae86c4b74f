from hypothesis import given
from hypothesis import strategies as st

from cotenant_quota.core.borrow import (
    Change,
    Loan,
    Member,
    Overuse,
    Standing,
    loans_of_group,
    overuse_of,
    transitions,
)


def _loans(total: int, *members: Member) -> tuple[Loan, ...]:
    return loans_of_group("root", "cpu", total, members)


def test_idle_min_is_lent() -> None:
    assert _loans(10, Member("a", 0, 4), Member("b", 8, 6)) == (Loan("b", "a", "cpu", 2),)


def test_capacity_that_is_nobodys_min_comes_first() -> None:
    assert _loans(3, Member("a", 0, 1), Member("b", 3, 1)) == (
        Loan("b", "root", "cpu", 1),
        Loan("b", "a", "cpu", 1),
    )


def test_a_quota_that_does_not_lend_is_no_lender() -> None:
    assert _loans(2, Member("a", 0, 1, lends=False), Member("b", 2, 1)) == ()


def test_several_borrowers_and_lenders_are_matched_by_name() -> None:
    members = [Member("z", 0, 5), Member("y", 1, 4), Member("a", 7, 3), Member("b", 6, 4)]
    assert _loans(16, *members) == (
        Loan("a", "y", "cpu", 3),
        Loan("a", "z", "cpu", 1),
        Loan("b", "z", "cpu", 2),
    )


def test_overuse_is_measured_against_the_smaller_of_runtime_and_max() -> None:
    assert overuse_of("a", {"cpu": 12, "memory": 1}, {"cpu": 11, "memory": 4}, {"cpu": 10, "memory": 8}) == (
        Overuse("a", "cpu", 12, 10),
    )


def test_a_loan_that_shrinks_freely_was_returned() -> None:
    found = transitions(Standing((Loan("b", "a", "cpu", 5),)), Standing((Loan("b", "a", "cpu", 2),)))
    assert [(one.change, one.lender, one.amount, one.outstanding) for one in found] == [(Change.RETURNED, "a", 3, 2)]


def test_a_loan_that_shrinks_under_overuse_was_reclaimed() -> None:
    before = Standing((Loan("b", "a", "cpu", 5),), (Overuse("b", "cpu", 9, 4),))
    found = transitions(before, Standing())
    assert [(one.change, one.amount, one.outstanding) for one in found] == [(Change.RECLAIMED, 5, 0)]


def test_overuse_is_told_once_when_it_begins() -> None:
    over = Standing((), (Overuse("b", "cpu", 9, 4),))
    worse = Standing((), (Overuse("b", "cpu", 10, 4),))
    assert [(one.change, one.amount) for one in transitions(Standing(), over)] == [(Change.OVER, 5)]
    assert transitions(over, worse) == ()


def test_nothing_new_tells_nothing() -> None:
    standing = Standing((Loan("b", "a", "cpu", 5),), (Overuse("b", "cpu", 9, 4),))
    assert transitions(standing, standing) == ()


_MEMBERS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), min_size=1, max_size=6).map(
    lambda rows: [Member(f"q{i}", used, low, lends) for i, (used, low, lends) in enumerate(rows)]
)


@given(_MEMBERS, st.integers(0, 100))
def test_loans_add_up(members: list[Member], total: int) -> None:
    loans = _loans(total, *members)
    by_name = {member.name: member for member in members}
    for member in members:
        borrowed = sum(loan.amount for loan in loans if loan.borrower == member.name)
        lent = sum(loan.amount for loan in loans if loan.lender == member.name)
        assert borrowed <= max(0, member.used - member.min)
        assert lent <= (max(0, member.min - member.used) if member.lends else 0)
    assert all(loan.amount > 0 and loan.borrower != loan.lender for loan in loans)
    within = sum(max(member.used, 0 if member.lends else member.min) for member in members) <= total
    if within:
        above = sum(max(0, member.used - member.min) for member in members)
        assert sum(loan.amount for loan in loans) == above
    assert loans == _loans(total, *sorted(by_name.values(), key=lambda one: one.name, reverse=True))


@given(st.lists(st.tuples(_MEMBERS, st.integers(0, 100)), max_size=6))
def test_events_add_up_to_the_present_loans(history: list[tuple[list[Member], int]]) -> None:
    standing, ledger = Standing(), {}
    for members, total in history:
        after = Standing(_loans(total, *members))
        for one in transitions(standing, after):
            pair = (one.borrower, one.lender)
            ledger[pair] = ledger.get(pair, 0) + (one.amount if one.change is Change.BORROWED else -one.amount)
            assert ledger[pair] >= 0
        standing = after
    assert {pair: amount for pair, amount in ledger.items() if amount} == {
        (loan.borrower, loan.lender): loan.amount for loan in standing.loans
    }
