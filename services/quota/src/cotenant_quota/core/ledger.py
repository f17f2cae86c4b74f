"""Who is charged for what. Every charge has an owner, its pod's uid, and one way out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cotenant_common.model.quota.spec import ROOT
from cotenant_common.model.quota.tree import QuotaTree
from cotenant_common.model.resources import ResourceList


@dataclass(frozen=True, slots=True)
class PodCharge:
    """A pod that exists: it asks from creation on, and uses from the moment it has a node."""

    uid: str
    quota: str
    request: ResourceList
    assigned: bool
    preemptible: bool = True


@dataclass(frozen=True, slots=True)
class Drift:
    """Where belief and reality differ: the owner, what was charged and what should be."""

    uid: str
    believed: PodCharge | None
    actual: PodCharge | None


@dataclass(slots=True)
class Counters:
    """Sums of one quota, by dimension. ``own_request`` counts only pods that name this very quota."""

    own_request: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    non_preemptible_request: dict[str, int] = field(default_factory=dict)
    non_preemptible_used: dict[str, int] = field(default_factory=dict)


class QuotaLedger:
    """Charges of one tree, exact by construction: what is taken off is what was put on, found by uid."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self._charges: dict[str, PodCharge] = {}
        self._chain = {name: tree.chain(name) for name in tree.specs}
        self._counters = {name: Counters() for name in tree.specs}

    def put(self, charge: PodCharge) -> bool:
        """Charge, or replace the charge of the same pod. Return whether anything changed."""
        charge = self._masked(charge)
        if self._charges.get(charge.uid) == charge:
            return False
        self.release(charge.uid)
        self._charges[charge.uid] = charge
        self._apply(charge, +1)
        return True

    def release(self, uid: str) -> PodCharge | None:
        """Take a pod's charge off; the second time there is nothing to take."""
        charge = self._charges.pop(uid, None)
        if charge is not None:
            self._apply(charge, -1)
        return charge

    def counters(self, quota: str) -> Counters:
        return self._counters[quota]

    def charges(self) -> Mapping[str, PodCharge]:
        return self._charges

    def reconcile(self, actual: Iterable[PodCharge]) -> tuple[Drift, ...]:
        """Make the ledger equal to reality, absences included; return what was wrong."""
        real = {charge.uid: self._masked(charge) for charge in actual}
        found: list[Drift] = []
        for uid in sorted({*real, *self._charges}):
            believed, truth = self._charges.get(uid), real.get(uid)
            if believed == truth:
                continue
            found.append(Drift(uid, believed, truth))
            if truth is None:
                self.release(uid)
            else:
                self.put(truth)
        return tuple(found)

    def _masked(self, charge: PodCharge) -> PodCharge:
        """A quota counts only the dimensions that its max names; one that limits nothing counts all."""
        keys = self._tree.specs[charge.quota].max or charge.request
        request = {name: amount for name, amount in sorted(charge.request.items()) if name in keys}
        return PodCharge(charge.uid, charge.quota, request, charge.assigned, charge.preemptible)

    def _apply(self, charge: PodCharge, sign: int) -> None:
        _move(self._counters[charge.quota].own_request, charge.request, sign)
        for quota in self._chain[charge.quota]:
            counters = self._counters[quota]
            if charge.assigned:
                _move(counters.used, charge.request, sign)
            if not charge.preemptible:
                _move(counters.non_preemptible_request, charge.request, sign)
                if charge.assigned:
                    _move(counters.non_preemptible_used, charge.request, sign)


def _move(sums: dict[str, int], amounts: ResourceList, sign: int) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + sign * amount


def guaranteed_of(
    tree: QuotaTree, used: Mapping[str, ResourceList]
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """(allocated, guaranteed) by quota: a leaf has allocated what it uses, a parent what its children are guaranteed;
    guaranteed is the larger of allocated and min."""
    allocated: dict[str, dict[str, int]] = {}
    guaranteed: dict[str, dict[str, int]] = {}
    for name in leaves_first(tree):
        keys = tree.specs[name].max
        own = used.get(name, {})
        children = tree.children.get(name, ())
        if children:
            allocated[name] = {key: sum(guaranteed[child].get(key, 0) for child in children) for key in keys}
        else:
            allocated[name] = {key: own.get(key, 0) for key in keys}
        low = tree.specs[name].min
        guaranteed[name] = {key: max(amount, low.get(key, 0)) for key, amount in allocated[name].items()}
    return allocated, guaranteed


def leaves_first(tree: QuotaTree) -> list[str]:
    """Every quota after all of its children."""
    order = list(tree.children.get(ROOT, ()))
    for name in order:
        order.extend(tree.children.get(name, ()))
    return order[::-1]
