"""One tree's charges, shares and loans, redone only where something changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cotenant_common.model.quota.spec import ROOT, QuotaSpec, StopPolicy
from cotenant_common.model.quota.tree import QuotaTree
from cotenant_common.model.resources import ResourceList
from cotenant_quota.core.borrow import Loan, Member, Overuse, Standing, loans_of_group, overuse_of
from cotenant_quota.core.guarantees import Guarantees
from cotenant_quota.core.ledger import PodCharge, QuotaLedger
from cotenant_quota.core.runtime import TreeRuntime


@dataclass(frozen=True, slots=True)
class Options:
    """``guarantee_usage`` makes what a quota uses a floor of its runtime, so that it is never cut below it.
    Without ``enable_runtime`` nothing is shared by demand: every quota may use its max."""

    scale_min: bool = True
    guarantee_usage: bool = False
    use_default_quota: bool = True
    enable_runtime: bool = True


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota now. ``problem`` says why a quota that hangs nowhere shares nothing."""

    spec: QuotaSpec
    request: ResourceList
    child_request: ResourceList
    used: ResourceList
    non_preemptible_request: ResourceList
    non_preemptible_used: ResourceList
    runtime: ResourceList
    allocated: ResourceList
    guaranteed: ResourceList
    problem: str | None = None
    stop_policy: StopPolicy = StopPolicy.NONE


class TreeBook:
    """A change touches the chain of one quota. ``refresh`` follows it to the siblings whose shares it moves; every
    other quota keeps the very view it had, so that a reader can tell by identity what is new."""

    def __init__(self, tree: QuotaTree, options: Options) -> None:
        self.tree = tree
        self._options = options
        self._ledger = QuotaLedger(tree)
        self._runtime = TreeRuntime(tree, scale_min=options.scale_min)
        self._guarantees = Guarantees(tree)
        self._policy = _effective_policies(tree)
        self._charged: dict[str, None] = {}
        self._drained = StopPolicy.HOLD_AND_DRAIN in self._policy.values()
        self._touched: dict[str, None] = dict.fromkeys(sorted(tree.specs))
        self._total: ResourceList | None = None
        self._views: dict[str, QuotaView] = {}
        self._loans: dict[str, tuple[Loan, ...]] = dict.fromkeys(tree.children, ())
        self._overuse: dict[str, tuple[Overuse, ...]] = {}

    def charge(self, charge: PodCharge) -> None:
        if self._ledger.put(charge):
            self._touch(charge.quota)

    def release(self, uid: str) -> None:
        charge = self._ledger.release(uid)
        if charge is not None:
            self._touch(charge.quota)

    def _touch(self, quota: str) -> None:
        # Demand climbs the tree at the next refresh, once for all that was charged until then.
        self._charged[quota] = None

    def _demand(self, quota: str) -> ResourceList:
        """Waiting pods of a held queue ask for nothing: their share is lent while they may not have it."""
        counters = self._ledger.counters(quota)
        return counters.own_request if self._policy[quota] is StopPolicy.NONE else counters.own_used

    def policy(self, quota: str) -> StopPolicy:
        """The strongest of the quota's own and its ancestors'."""
        return self._policy[quota]

    @property
    def drained(self) -> bool:
        """Whether any queue is to be emptied."""
        return self._drained

    @property
    def views(self) -> Mapping[str, QuotaView]:
        """By name, in order of names, as of the last refresh."""
        return self._views

    def counted_min(self, quota: str) -> ResourceList:
        """The min that counts: scaled while the mins of the siblings pass what there is."""
        spec = self.tree.specs[quota]
        return {name: self._runtime.scaled_mins(spec.parent, name)[quota] for name in spec.min}

    @property
    def standing(self) -> Standing:
        loans = tuple(loan for parent in self.tree.children for loan in self._loans[parent])
        return Standing(loans, tuple(one for name in sorted(self._overuse) for one in self._overuse[name]))

    def refresh(self, total: ResourceList) -> None:
        for quota in self._charged:
            self._touched.update(dict.fromkeys(self._ledger.chain(quota)))
            self._runtime.set_request(quota, self._demand(quota))
        self._charged = {}
        touched, self._touched = self._touched, {}
        used_changed = list(touched)
        for name in used_changed:
            touched.update(dict.fromkeys(self._guarantees.set_used(name, self._ledger.counters(name).used)))
        if self._options.guarantee_usage:
            for name in touched:
                self._runtime.set_guarantee(name, self._guarantees.guaranteed[name])
        changed = self._runtime.refresh(total)
        groups = dict.fromkeys(self.tree.specs[name].parent for name in used_changed)
        # What the children of a quota share follows from its runtime and its own pods.
        groups.update(dict.fromkeys(name for name in (*touched, *changed) if name in self._loans))
        if total != self._total:
            self._total = dict(total)
            groups[ROOT] = None
        for name in dict.fromkeys((*touched, *changed)):
            self._update_view(name)
        for parent in groups:
            self._loans[parent] = tuple(self._loans_below(parent))

    def _update_view(self, name: str) -> None:
        view = self._view(self.tree.specs[name])
        self._views[name] = view
        over = overuse_of(name, view.used, view.runtime, view.spec.max)
        if over:
            self._overuse[name] = over
        else:
            self._overuse.pop(name, None)

    def _view(self, spec: QuotaSpec) -> QuotaView:
        counters = self._ledger.counters(spec.name)
        return QuotaView(
            spec=spec,
            request=self._runtime.request(spec.name),
            child_request=self._runtime.child_request(spec.name),
            used={key: counters.used.get(key, 0) for key in sorted(spec.max)} if spec.max else dict(counters.used),
            non_preemptible_request=dict(counters.non_preemptible_request),
            non_preemptible_used=dict(counters.non_preemptible_used),
            runtime=self._runtime.runtime(spec.name) if self._options.enable_runtime else dict(spec.max),
            allocated=self._guarantees.allocated[spec.name],
            guaranteed=self._guarantees.guaranteed[spec.name],
            stop_policy=self._policy[spec.name],
        )

    def _loans_below(self, parent: str) -> Iterable[Loan]:
        specs = self.tree.specs
        for dimension in self.tree.dimensions:
            named = [name for name in self.tree.children[parent] if dimension in specs[name].max]
            used = {name: self._ledger.counters(name).used.get(dimension, 0) for name in named}
            if any(used.values()):
                mins = self._runtime.scaled_mins(parent, dimension)
                members = [Member(name, used[name], mins[name], specs[name].allow_lent) for name in named]
                yield from loans_of_group(parent, dimension, self._runtime.group_total(parent, dimension), members)


def _effective_policies(tree: QuotaTree) -> dict[str, StopPolicy]:
    order = tuple(StopPolicy)
    return {
        name: max((tree.specs[each].stop_policy for each in tree.chain(name)), key=order.index) for name in tree.specs
    }
