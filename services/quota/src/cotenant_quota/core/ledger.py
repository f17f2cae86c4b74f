"""Who is charged for what. Every charge has an owner, its pod's uid, and one way out."""

from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Counters:
    """Sums of one quota, by dimension. ``own`` counts only pods that name this very quota."""

    own_request: dict[str, int] = field(default_factory=dict)
    own_used: dict[str, int] = field(default_factory=dict)
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
        known = self._charges.get(charge.uid)
        if known == charge:
            return False
        self._charges[charge.uid] = charge
        if known is not None and _asks_the_same(known, charge):
            # Placed, or put back into the queue: it asks for what it asked before.
            self._apply_use(charge, +1 if charge.assigned else -1)
            return True
        if known is not None:
            self._apply(known, -1)
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

    def chain(self, quota: str) -> tuple[str, ...]:
        """The quota and its ancestors, leaf first: whose counters a charge of it moves."""
        return self._chain[quota]

    def _masked(self, charge: PodCharge) -> PodCharge:
        """A quota counts only the dimensions that its max names; one that limits nothing counts all."""
        keys = self._tree.specs[charge.quota].max or charge.request
        if all(name in keys for name in charge.request):
            return charge
        request = {name: amount for name, amount in sorted(charge.request.items()) if name in keys}
        return PodCharge(charge.uid, charge.quota, request, charge.assigned, charge.preemptible)

    def _apply(self, charge: PodCharge, sign: int) -> None:
        _move(self._counters[charge.quota].own_request, charge.request, sign)
        if not charge.preemptible:
            for quota in self._chain[charge.quota]:
                _move(self._counters[quota].non_preemptible_request, charge.request, sign)
        if charge.assigned:
            self._apply_use(charge, sign)

    def _apply_use(self, charge: PodCharge, sign: int) -> None:
        _move(self._counters[charge.quota].own_used, charge.request, sign)
        for quota in self._chain[charge.quota]:
            counters = self._counters[quota]
            _move(counters.used, charge.request, sign)
            if not charge.preemptible:
                _move(counters.non_preemptible_used, charge.request, sign)


def _asks_the_same(one: PodCharge, other: PodCharge) -> bool:
    return (one.quota, one.request, one.preemptible) == (other.quota, other.request, other.preemptible)


def _move(sums: dict[str, int], amounts: ResourceList, sign: int) -> None:
    """A sum of nothing is absent, so that what grew equals what is rebuilt."""
    for name, amount in amounts.items():
        total = sums.get(name, 0) + sign * amount
        if total:
            sums[name] = total
        else:
            sums.pop(name, None)
