"""Between the messages on the bus and what the core decides on."""

from collections.abc import Iterable, Mapping
from typing import Final

from cotenant_common.contracts.buckets import QUOTASTATUS
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    NodeInventory,
    OvercommitRecord,
    QuotaChange,
    QuotaLoan,
    QuotaRuntime,
    QuotaTreeStatus,
    SpecRecord,
)
from cotenant_common.model import resources
from cotenant_common.model.ids import object_key
from cotenant_common.model.pod import parse_pod
from cotenant_common.model.quota.spec import ROOT
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.events import event_id
from cotenant_quota.core.book import PodFacts, QuotaView, TreeView
from cotenant_quota.core.borrow import Loan, Overuse, Standing, Transition, overuse_of

_REASONS: Final[Mapping[str, ReasonCode]] = {
    "reclaimed": ReasonCode.QUOTA_RECLAIMED,
    "over": ReasonCode.QUOTA_EXCEEDED,
}


def pod_facts(spec: SpecRecord | None, binding: Binding | None) -> PodFacts | None:
    """None when the pod has ended or is gone, even while its binding lingers: the spec goes after the last process.

    What a bound pod is charged is in its binding, as the scheduler wrote it. Raise QuantityError for a manifest that
    validation should have refused.
    """
    if spec is None or spec.terminal_ms is not None:
        return None
    pod = parse_pod(spec.manifest, uid=spec.uid)
    return PodFacts(
        uid=spec.uid,
        namespace=pod.namespace,
        quota_label=pod.quota_label,
        request=pod.requests if binding is None else binding.requests,
        assigned=binding is not None,
        preemptible=pod.preemptible,
    )


def cluster_allocatable(
    nodes: Mapping[str, NodeInventory], overcommit: Mapping[str, OvercommitRecord]
) -> dict[str, int]:
    """Σ allocatable of all nodes, cordoned ones included, and of what is sold of them a second time."""
    total: dict[str, int] = {}
    for name in sorted(nodes):
        total = resources.add(total, nodes[name].allocatable)
        if (sold := overcommit.get(name)) is not None:
            total = resources.add(total, _renamed("batch", sold.batch))
            total = resources.add(total, _renamed("mid", sold.mid))
    return total


def _renamed(band: str, sold: Mapping[str, int] | None) -> dict[str, int]:
    """The record says cpu and memory; quotas name what pods request."""
    names = resources.RESOURCES_BY_BAND[band]
    return {names.get(name, name): amount for name, amount in (sold or {}).items()}


def tree_status(
    view: TreeView, changes: Iterable[Transition], *, generation: int, revisions: Mapping[str, int], now_ms: int
) -> QuotaTreeStatus:
    return QuotaTreeStatus(
        tree=view.tree_id,
        generation=generation,
        specs_revision=revisions["specs"],
        bindings_revision=revisions["bindings"],
        nodes_revision=revisions["nodes"],
        total=dict(view.total),
        quotas=[_quota_runtime(quota) for quota in view.quotas],
        loans=[
            QuotaLoan(lender=loan.lender, borrower=loan.borrower, resource=loan.dimension, amount=loan.amount)
            for loan in view.standing.loans
        ],
        changes=[
            QuotaChange(
                kind=one.change.value,
                borrower=one.borrower,
                lender=one.lender,
                resource=one.dimension,
                amount=one.amount,
                outstanding=one.outstanding,
            )
            for one in changes
        ],
        computed_ms=now_ms,
    )


def _quota_runtime(view: QuotaView) -> QuotaRuntime:
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
    )


def standing_of(status: QuotaTreeStatus | None) -> Standing:
    """Loans and over-use as last published: what comes next is told against this, also after a restart."""
    if status is None:
        return Standing()
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
