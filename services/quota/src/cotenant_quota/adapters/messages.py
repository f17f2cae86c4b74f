"""What a published status says of loans and over-use, and the events that follow from it."""

from collections.abc import Mapping
from typing import Final

from cotenant_common.contracts.buckets import QUOTASTATUS
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import QuotaChange, QuotaTreeStatus
from cotenant_common.model import resources
from cotenant_common.model.ids import object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.events import event_id
from cotenant_quota.core.borrow import Loan, Overuse, Standing, overuse_of

_REASONS: Final[Mapping[str, ReasonCode]] = {
    "reclaimed": ReasonCode.QUOTA_RECLAIMED,
    "over": ReasonCode.QUOTA_EXCEEDED,
}


def standing_of(status: QuotaTreeStatus) -> Standing:
    """Loans and over-use as last published: what comes next is told against this, also after a restart."""
    overuse: list[Overuse] = []
    for quota in status.quotas:
        if quota.problem is None:
            overuse.extend(overuse_of(quota.name, quota.used, quota.runtime, quota.max))
    loans = tuple(Loan(loan.borrower, loan.lender, loan.resource, loan.amount) for loan in status.loans)
    return Standing(loans, tuple(overuse))


def same_shares(old: QuotaTreeStatus | None, new: QuotaTreeStatus) -> bool:
    """Whether a reader would learn nothing but newer revisions."""
    return old is not None and (old.total, old.quotas, old.loans) == (new.total, new.quotas, new.loans)


def events_of(status: QuotaTreeStatus, revision: int, source: str) -> list[Event]:
    """The events of one write, ids included: telling them again gives the same ones."""
    return [
        _event(status, change, event_id(QUOTASTATUS, status.tree, revision, f"c{index}"), source)
        for index, change in enumerate(status.changes)
    ]


def _event(status: QuotaTreeStatus, change: QuotaChange, identifier: str, source: str) -> Event:
    return Event(
        id=identifier,
        type=f"quota.{change.kind}",
        at_ms=status.computed_ms,
        source=source,
        object=object_key("ElasticQuota", None, change.borrower),
        reason=_REASONS.get(change.kind),
        message=_sentence(change),
        data={
            "tree": status.tree,
            "generation": status.generation,
            "borrower": change.borrower,
            "lender": change.lender,
            "dimension": change.resource,
            "amount": change.amount,
            "outstanding": change.outstanding,
        },
    )


def _sentence(change: QuotaChange) -> str:
    amount = f"{resources.render(change.resource, change.amount)} {change.resource}"
    left = resources.render(change.resource, change.outstanding)
    if change.kind == "borrowed":
        return f"{change.borrower} borrowed {amount} from {change.lender}, now {left}"
    if change.kind == "returned":
        return f"{change.borrower} returned {amount} to {change.lender}, {left} remain"
    if change.kind == "reclaimed":
        return f"{change.lender} reclaimed {amount} from {change.borrower}, {left} remain"
    return f"{change.borrower} uses {amount} more than its share"
