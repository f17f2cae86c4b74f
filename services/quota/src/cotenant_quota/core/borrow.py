"""Who uses whose guarantee right now, and what changed since the last look."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cotenant_common.model.resources import ResourceList


@dataclass(frozen=True, slots=True)
class Member:
    """One child of a group in one dimension. ``min`` is the min that counts now (scaled when capacity is short)."""

    name: str
    used: int
    min: int
    lends: bool = True


@dataclass(frozen=True, slots=True)
class Loan:
    """``borrower`` uses ``amount`` above its min; ``lender`` owns that amount and leaves it idle.

    The lender is a sibling, or the common parent for capacity that is nobody's min.
    """

    borrower: str
    lender: str
    dimension: str
    amount: int


@dataclass(frozen=True, slots=True)
class Overuse:
    """A quota that uses more than it may now."""

    quota: str
    dimension: str
    used: int
    limit: int

    @property
    def amount(self) -> int:
        return self.used - self.limit


def loans_of_group(parent: str, dimension: str, total: int, members: Iterable[Member]) -> tuple[Loan, ...]:
    """Attribute every unit used above min, in order of names.

    Capacity beyond all mins is taken first: using it takes nothing from anyone. Σ loans = Σ used above min whenever the
    group uses no more than its total; beyond that the rest is over-use and owed to nobody in particular.
    """
    ordered = sorted(members, key=lambda member: member.name)
    lenders = [(parent, max(0, total - sum(member.min for member in ordered)))]
    lenders += [(one.name, one.min - one.used) for one in ordered if one.lends and one.used < one.min]
    borrowers = [(one.name, one.used - one.min) for one in ordered if one.used > one.min]
    return tuple(_match(dimension, borrowers, lenders))


def _match(dimension: str, borrowers: Sequence[tuple[str, int]], lenders: Sequence[tuple[str, int]]) -> Iterable[Loan]:
    offers = iter([offer for offer in lenders if offer[1] > 0])
    lender, left = next(offers, ("", 0))
    for borrower, wanted in borrowers:
        missing = wanted
        while missing > 0 and left > 0:
            amount = min(missing, left)
            yield Loan(borrower, lender, dimension, amount)
            missing, left = missing - amount, left - amount
            if left == 0:
                lender, left = next(offers, ("", 0))


def overuse_of(quota: str, used: ResourceList, runtime: ResourceList, maximum: ResourceList) -> tuple[Overuse, ...]:
    """Dimensions in which a quota uses more than min(runtime, max)."""
    found = []
    for name in sorted(maximum):
        limit = min(runtime.get(name, 0), maximum[name])
        if used.get(name, 0) > limit:
            found.append(Overuse(quota, name, used[name], limit))
    return tuple(found)


class Change(StrEnum):
    """What happened to a loan or to a quota's standing."""

    BORROWED = "borrowed"
    RETURNED = "returned"
    RECLAIMED = "reclaimed"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Transition:
    """``amount`` is the change, ``outstanding`` what is owed, or over-used, after it. Over-use names no lender."""

    change: Change
    borrower: str
    lender: str | None
    dimension: str
    amount: int
    outstanding: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Loans and over-use of one tree at one moment."""

    loans: tuple[Loan, ...] = ()
    overuse: tuple[Overuse, ...] = ()


def transitions(before: Standing, after: Standing) -> tuple[Transition, ...]:
    """Changes in a stable order: what was given back before what was taken, so that replaying them never overdraws.

    A loan that shrinks was reclaimed when its borrower was over its share before, else returned freely.
    Σ borrowed − Σ returned − Σ reclaimed of a pair is always its present loan.
    """
    old, new = _by_pair(before.loans), _by_pair(after.loans)
    over_before = {(one.quota, one.dimension): one for one in before.overuse}
    given: list[Transition] = []
    taken: list[Transition] = []
    moved = [pair for pair, amount in new.items() if old.get(pair) != amount]
    for pair in sorted([*moved, *(pair for pair in old if pair not in new)]):
        borrower, lender, dimension = pair
        outstanding = new.get(pair, 0)
        change = outstanding - old.get(pair, 0)
        if change > 0:
            taken.append(Transition(Change.BORROWED, borrower, lender, dimension, change, outstanding))
        elif change < 0:
            kind = Change.RECLAIMED if (borrower, dimension) in over_before else Change.RETURNED
            given.append(Transition(kind, borrower, lender, dimension, -change, outstanding))
    over = [
        Transition(Change.OVER, one.quota, None, one.dimension, one.amount, one.amount)
        for one in sorted(after.overuse, key=lambda one: (one.quota, one.dimension))
        if (one.quota, one.dimension) not in over_before
    ]
    return (*given, *taken, *over)


def _by_pair(loans: Iterable[Loan]) -> Mapping[tuple[str, str, str], int]:
    return {(loan.borrower, loan.lender, loan.dimension): loan.amount for loan in loans}
