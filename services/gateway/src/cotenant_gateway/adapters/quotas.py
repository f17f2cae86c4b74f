"""What the quota service publishes, as the views read it."""

from collections.abc import Iterable

from cotenant_common.contracts.messages.state import QuotaTreeStatus
from cotenant_gateway.core.quota_views import Lending, Quotas, QuotaState


def to_quotas(trees: Iterable[QuotaTreeStatus]) -> Quotas:
    states: dict[str, QuotaState] = {}
    loans: list[Lending] = []
    for tree in trees:
        for quota in tree.quotas:
            states[quota.name] = QuotaState(
                name=quota.name,
                tree=tree.tree,
                data=quota.model_dump(),
                parent=quota.parent,
                min=quota.min,
                max=quota.max,
                used=quota.used,
                runtime=quota.runtime,
                stop_policy=quota.stop_policy,
                over_since_ms=quota.over_since_ms,
            )
        loans.extend(Lending(one.borrower, one.lender, one.resource, one.amount) for one in tree.loans)
    return Quotas(states, loans)
