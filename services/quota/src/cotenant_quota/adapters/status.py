"""A tree as a message. What did not change is neither made nor packed again: a tree may hold a thousand quotas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import QuotaChange, QuotaLoan, QuotaRuntime, QuotaTreeStatus
from cotenant_common.model.quota.spec import ROOT
from cotenant_quota.core.book import TreeView
from cotenant_quota.core.borrow import Loan, Transition
from cotenant_quota.core.tree_book import QuotaView


@dataclass(frozen=True, slots=True)
class _Made:
    view: QuotaView
    over_since_ms: int | None
    message: QuotaRuntime
    packed: bytes


@dataclass(frozen=True, slots=True)
class _MadeLoan:
    message: QuotaLoan
    packed: bytes


class StatusWriter:
    """Views are immutable and kept while they hold, so that identity says what is new."""

    def __init__(self) -> None:
        self._made: dict[str, dict[str, _Made]] = {}
        self._loans: dict[str, dict[Loan, _MadeLoan]] = {}

    def forget(self, tree: str) -> None:
        self._made.pop(tree, None)
        self._loans.pop(tree, None)

    def status(
        self,
        view: TreeView,
        changes: Iterable[Transition],
        *,
        generation: int,
        revisions: Mapping[str, int],
        over_since: Mapping[str, int],
        now_ms: int,
    ) -> QuotaTreeStatus:
        before = self._made.get(view.tree_id, {})
        made = {
            quota.spec.name: _make(quota, over_since.get(quota.spec.name), before.get(quota.spec.name))
            for quota in view.quotas
        }
        self._made[view.tree_id] = made
        known = self._loans.get(view.tree_id, {})
        loans = {loan: known.get(loan) or _make_loan(loan) for loan in view.standing.loans}
        self._loans[view.tree_id] = loans
        return QuotaTreeStatus(
            tree=view.tree_id,
            generation=generation,
            specs_revision=revisions["specs"],
            bindings_revision=revisions["bindings"],
            nodes_revision=revisions["nodes"],
            total=dict(view.total),
            quotas=[one.message for one in made.values()],
            loans=[one.message for one in loans.values()],
            changes=[_change(one) for one in changes],
            computed_ms=now_ms,
        )

    def encode(self, status: QuotaTreeStatus) -> bytes:
        """The bytes that ``codec.encode`` would make of the status made last, from parts packed before."""
        lists = {
            "quotas": codec.pack_list([one.packed for one in self._made[status.tree].values()]),
            "loans": codec.pack_list([one.packed for one in self._loans[status.tree].values()]),
        }
        body = status.model_dump(exclude=set(lists), exclude_none=True)
        packed = {**{name: codec.pack(value) for name, value in body.items()}, **lists}
        return codec.pack_map([(name, packed[name]) for name in QuotaTreeStatus.model_fields if name in packed])


def _make(view: QuotaView, over_since_ms: int | None, before: _Made | None) -> _Made:
    if before is not None and before.view is view and before.over_since_ms == over_since_ms:
        return before
    message = _quota_runtime(view, over_since_ms)
    if before is not None and before.message == message:
        return _Made(view, over_since_ms, before.message, before.packed)
    return _Made(view, over_since_ms, message, codec.encode(message))


def _make_loan(loan: Loan) -> _MadeLoan:
    message = QuotaLoan(lender=loan.lender, borrower=loan.borrower, resource=loan.dimension, amount=loan.amount)
    return _MadeLoan(message, codec.encode(message))


def _quota_runtime(view: QuotaView, over_since_ms: int | None) -> QuotaRuntime:
    spec = view.spec
    return QuotaRuntime(
        name=spec.name,
        namespace=spec.namespace,
        parent=None if spec.parent == ROOT else spec.parent,
        is_parent=spec.is_parent,
        allow_lent=spec.allow_lent,
        min=dict(spec.min),
        max=dict(spec.max),
        request=dict(view.request),
        used=dict(view.used),
        non_preemptible_used=dict(view.non_preemptible_used),
        runtime=dict(view.runtime),
        guaranteed=dict(view.guaranteed),
        namespaces=list(spec.namespaces),
        problem=view.problem,
        stop_policy=view.stop_policy.value,
        over_since_ms=over_since_ms,
    )


def _change(one: Transition) -> QuotaChange:
    return QuotaChange(
        kind=one.change.value,
        borrower=one.borrower,
        lender=one.lender,
        resource=one.dimension,
        amount=one.amount,
        outstanding=one.outstanding,
    )
