"""Quotas as people see them: who lends to whom now, and what a waiting pod's quota lacks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.model import resources
from cotenant_common.model.resources import PODS

Json = dict[str, Any]
_HOLDERS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class QuotaState:
    """One quota as the quota service last published it."""

    name: str
    tree: str
    data: Mapping[str, Any]
    parent: str | None = None
    min: Mapping[str, int] = field(default_factory=dict)
    max: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    runtime: Mapping[str, int] = field(default_factory=dict)
    stop_policy: str = "None"
    over_since_ms: int | None = None

    def limit(self, name: str) -> int:
        return min(self.runtime.get(name, self.max[name]), self.max[name])


@dataclass(frozen=True, slots=True)
class Lending:
    """``borrower`` uses ``amount`` of what ``lender`` owns and leaves idle."""

    borrower: str
    lender: str
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class Quotas:
    """All trees at one moment."""

    states: Mapping[str, QuotaState]
    loans: Sequence[Lending]

    def chain(self, name: str) -> Iterator[QuotaState]:
        """The quota and its ancestors, leaf first."""
        at: str | None = name
        seen: list[str] = []
        while at is not None and at in self.states and at not in seen:
            seen.append(at)
            yield self.states[at]
            at = self.states[at].parent


def rows(quotas: Quotas) -> list[Json]:
    """Every quota with what it borrows and lends, in total and by partner."""
    borrows: dict[str, dict[str, dict[str, int]]] = {}
    lends: dict[str, dict[str, dict[str, int]]] = {}
    for loan in quotas.loans:
        borrows.setdefault(loan.borrower, {}).setdefault(loan.lender, {})[loan.resource] = loan.amount
        lends.setdefault(loan.lender, {}).setdefault(loan.borrower, {})[loan.resource] = loan.amount
    return [
        {
            **state.data,
            "tree": state.tree,
            "borrowed": _sum(borrows.get(state.name, {})),
            "lent": _sum(lends.get(state.name, {})),
            "borrows_from": borrows.get(state.name, {}),
            "lends_to": lends.get(state.name, {}),
            "state": state_of(state),
        }
        for state in quotas.states.values()
    ]


def _sum(by_partner: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in by_partner.values():
        total = resources.add(total, amounts)
    return total


def state_of(state: QuotaState) -> str:
    if state.data.get("problem"):
        return "Detached"
    if state.stop_policy != "None":
        return "Held" if state.stop_policy == "Hold" else "Draining"
    return "Over" if state.over_since_ms is not None else "Open"


def object_status(state: QuotaState) -> Json:
    """``status`` of an ElasticQuota, in quantities as its ``spec`` has them."""
    names = ("used", "runtime", "request", "guaranteed")
    amounts = {name: _quantities(state.data.get(name) or {}) for name in names}
    return {**amounts, "state": state_of(state), **({"problem": p} if (p := state.data.get("problem")) else {})}


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: resources.render(name, amounts[name]) for name in sorted(amounts)}


def what_it_lacks(quotas: Quotas, name: str, request: Mapping[str, int]) -> Json | None:
    """Why a pod of this request waits for its quota, level by level, and who holds what is missing."""
    if name not in quotas.states:
        return None
    sentences: list[str] = []
    lacks: list[Json] = []
    for state in quotas.chain(name):
        if state.stop_policy != "None":
            sentences.append(f"quota {state.name} is held: nothing new is admitted until it is resumed")
        for resource in sorted(state.max):
            asked = request.get(resource, 0)
            missing = state.used.get(resource, 0) + asked - state.limit(resource)
            if resource != PODS and asked > 0 and missing > 0:
                lacks.append(_lack(state, resource, asked, missing))
                sentences.append(_sentence(quotas, state, resource, asked, missing))
    owed = [loan for state in quotas.chain(name) for loan in quotas.loans if loan.lender == state.name]
    relevant = [loan for loan in owed if request.get(loan.resource, 0) > 0]
    sentences += [
        f"{loan.borrower} uses {_text(loan.resource, loan.amount)} that belong to {loan.lender}"
        + (" and has to give them back" if _is_over(quotas, loan) else "")
        for loan in relevant
    ]
    return {"name": name, "lacks": lacks, "lent": [_loan(one) for one in relevant], "sentences": sentences}


def _is_over(quotas: Quotas, loan: Lending) -> bool:
    borrower = quotas.states.get(loan.borrower)
    return borrower is not None and borrower.over_since_ms is not None


def _lack(state: QuotaState, resource: str, asked: int, missing: int) -> Json:
    return {
        "quota": state.name,
        "resource": resource,
        "used": state.used.get(resource, 0),
        "request": asked,
        "runtime": state.runtime.get(resource),
        "max": state.max[resource],
        "missing": missing,
    }


def _sentence(quotas: Quotas, state: QuotaState, resource: str, asked: int, missing: int) -> str:
    used, most = state.used.get(resource, 0), state.max[resource]
    head = f"quota {state.name} lacks {_text(resource, missing)}: {resources.render(resource, used)} used"
    if used + asked > most:
        children = [one for one in quotas.states.values() if one.parent == state.name]
        held = _holders(children, resource)
        return f"{head}, max {resources.render(resource, most)}" + (f"; held by {held}" if held else " by its own pods")
    siblings = [
        one
        for one in quotas.states.values()
        if one.parent == state.parent and one.tree == state.tree and one.name != state.name and one.max
    ]
    held = _holders(siblings, resource)
    share = f"{head}, its share is {resources.render(resource, state.limit(resource))} now"
    return f"{share}; the rest is held by {held}" if held else share


def _holders(states: Iterable[QuotaState], resource: str) -> str:
    """The largest users, each with its min: what is above it is borrowed."""
    holding = sorted((-one.used.get(resource, 0), one.name, one) for one in states if one.used.get(resource, 0) > 0)
    return ", ".join(
        f"{name} {resources.render(resource, -used)} (min {resources.render(resource, one.min.get(resource, 0))})"
        for used, name, one in holding[:_HOLDERS_SHOWN]
    )


def _text(resource: str, amount: int) -> str:
    return f"{resources.render(resource, amount)} {resource}"


def _loan(loan: Lending) -> Json:
    return {"borrower": loan.borrower, "lender": loan.lender, "resource": loan.resource, "amount": loan.amount}
