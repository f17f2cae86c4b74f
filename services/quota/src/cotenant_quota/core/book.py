"""Everything quota knows, kept consistent: specs, pods, capacity in; shares, use and loans out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cotenant_common.model.quota.lookup import QuotaLookup
from cotenant_common.model.quota.spec import ROOT, QuotaSpec
from cotenant_common.model.quota.tree import DEFAULT_TREE, Forest, QuotaTree, build_forest, cluster_total_of
from cotenant_common.model.resources import ResourceList
from cotenant_quota.core.borrow import Loan, Member, Overuse, Standing, loans_of_group, overuse_of
from cotenant_quota.core.ledger import PodCharge, QuotaLedger, guaranteed_of
from cotenant_quota.core.runtime import TreeRuntime


@dataclass(frozen=True, slots=True)
class Options:
    """``guarantee_usage`` makes what a quota uses a floor of its runtime, so that it is never cut below it."""

    scale_min: bool = True
    guarantee_usage: bool = False
    use_default_quota: bool = True


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What quota needs to know of a pod that is neither ended nor gone."""

    uid: str
    namespace: str
    quota_label: str | None
    request: ResourceList
    assigned: bool
    preemptible: bool = True


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


@dataclass(frozen=True, slots=True)
class TreeView:
    """One tree now; quotas in order of their names."""

    tree_id: str
    total: ResourceList
    quotas: tuple[QuotaView, ...]
    standing: Standing


class QuotaBook:
    """Changes are cheap; ``refresh`` does the work once for all of them. Order of the changes does not matter."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._pods: dict[str, PodFacts] = {}
        self._quota_of: dict[str, str] = {}
        self._cluster: ResourceList = {}
        self._touched: dict[str, None] = {}
        self._install(build_forest(()))

    def set_quotas(self, specs: Iterable[QuotaSpec]) -> None:
        """Replace all quotas; every pod is looked up again and charged anew."""
        self._install(build_forest(specs))
        for pod in self._pods.values():
            self._charge(pod)

    def set_cluster(self, allocatable: ResourceList) -> None:
        if self._cluster != allocatable:
            self._cluster = dict(allocatable)
            self._touched.update(dict.fromkeys(self._forest.trees))

    def set_pod(self, pod: PodFacts) -> None:
        """Charge a pod, or correct its charge. The same facts again change nothing."""
        if self._pods.get(pod.uid) != pod:
            self._release(pod.uid)
            self._pods[pod.uid] = pod
            self._charge(pod)

    def remove_pod(self, uid: str) -> None:
        """Release a pod's charge; a pod that is not known is no error."""
        if self._pods.pop(uid, None) is not None:
            self._release(uid)

    def touch(self, uid: str) -> None:
        """Have the pod's tree refreshed though no number changed: somebody waits to hear that a change was seen."""
        quota = self._quota_of.get(uid)
        if quota is not None:
            self._touched[self._forest.tree_of.get(quota, DEFAULT_TREE)] = None

    def pods(self) -> Mapping[str, PodFacts]:
        return self._pods

    def quota_of(self, uid: str) -> str | None:
        """The quota a known pod is charged to."""
        return self._quota_of.get(uid)

    @property
    def forest(self) -> Forest:
        return self._forest

    def refresh(self) -> tuple[TreeView, ...]:
        """The trees that a change has touched since the last call, as they stand now."""
        touched, self._touched = self._touched, {}
        return tuple(self.view(tree_id) for tree_id in self._forest.trees if tree_id in touched)

    def _install(self, forest: Forest) -> None:
        self._forest = forest
        self._lookup = QuotaLookup.of(forest, use_default=self._options.use_default_quota)
        self._outside = QuotaLedger(_outside_tree(forest))
        self._ledgers = {tree_id: QuotaLedger(tree) for tree_id, tree in forest.trees.items()}
        self._runtimes = {
            tree_id: TreeRuntime(tree, scale_min=self._options.scale_min) for tree_id, tree in forest.trees.items()
        }
        self._quota_of = {}
        self._touched = dict.fromkeys(forest.trees)

    def _ledger_of(self, quota: str) -> QuotaLedger:
        tree_id = self._forest.tree_of.get(quota)
        return self._outside if tree_id is None else self._ledgers[tree_id]

    def _charge(self, pod: PodFacts) -> None:
        found = self._lookup.find(pod.namespace, pod.quota_label)
        if found is None:
            return
        self._quota_of[pod.uid] = found.name
        self._ledger_of(found.name).put(PodCharge(pod.uid, found.name, pod.request, pod.assigned, pod.preemptible))
        self._update_demand(found.name)

    def _release(self, uid: str) -> None:
        quota = self._quota_of.pop(uid, None)
        if quota is not None:
            self._ledger_of(quota).release(uid)
            self._update_demand(quota)

    def _update_demand(self, quota: str) -> None:
        tree_id = self._forest.tree_of.get(quota)
        # What is charged outside of all trees lowers the total of the default tree.
        self._touched[tree_id or DEFAULT_TREE] = None
        if tree_id is not None:
            self._runtimes[tree_id].set_request(quota, self._ledgers[tree_id].counters(quota).own_request)

    def _total_of(self, tree: QuotaTree) -> dict[str, int]:
        total = cluster_total_of(self._forest, tree, self._cluster)
        if tree.tree_id == DEFAULT_TREE:
            for quota in (*self._forest.outside, *self._forest.detached):
                for name, amount in self._outside.counters(quota).used.items():
                    total[name] = max(0, total.get(name, 0) - amount)
        return total

    def view(self, tree_id: str) -> TreeView:
        """One tree as it stands now."""
        tree = self._forest.trees[tree_id]
        ledger, runtime = self._ledgers[tree.tree_id], self._runtimes[tree.tree_id]
        allocated, guaranteed = guaranteed_of(tree, {name: ledger.counters(name).used for name in tree.specs})
        if self._options.guarantee_usage:
            for name in tree.specs:
                runtime.set_guarantee(name, guaranteed[name])
        total = self._total_of(tree)
        runtime.refresh(total)
        views = [
            _view_quota(tree.specs[name], ledger, runtime, allocated[name], guaranteed[name])
            for name in sorted(tree.specs)
        ]
        standing = Standing(tuple(_loans(tree, ledger, runtime)), tuple(_overuse(views)))
        if tree.tree_id == DEFAULT_TREE:
            views = sorted([*views, *self._outside_views()], key=lambda view: view.spec.name)
        return TreeView(tree.tree_id, total, tuple(views), standing)

    def _outside_views(self) -> Iterable[QuotaView]:
        """Built-in quotas get all they may use; detached ones nothing, so that their pods are refused with a reason."""
        for spec in self._forest.outside.values():
            yield self._outside_view(spec, dict(spec.max), None)
        for name, problem in self._forest.detached.items():
            spec = self._forest.specs[name]
            yield self._outside_view(spec, dict.fromkeys(spec.max, 0), problem.message)

    def _outside_view(self, spec: QuotaSpec, runtime: ResourceList, problem: str | None) -> QuotaView:
        counters = self._outside.counters(spec.name)
        return QuotaView(
            spec=spec,
            request=dict(counters.own_request),
            child_request=dict(counters.own_request),
            used=dict(counters.used),
            non_preemptible_request=dict(counters.non_preemptible_request),
            non_preemptible_used=dict(counters.non_preemptible_used),
            runtime=runtime,
            allocated=dict(counters.used),
            guaranteed=dict(counters.used),
            problem=problem,
        )


def _outside_tree(forest: Forest) -> QuotaTree:
    names = [*forest.outside, *forest.detached]
    specs = {name: replace(forest.specs[name], parent=ROOT) for name in names}
    return QuotaTree("", specs, {ROOT: tuple(names)}, (), {}, takes_from_default=False)


def _view_quota(
    spec: QuotaSpec,
    ledger: QuotaLedger,
    runtime: TreeRuntime,
    allocated: ResourceList,
    guaranteed: ResourceList,
) -> QuotaView:
    counters = ledger.counters(spec.name)
    return QuotaView(
        spec=spec,
        request=runtime.request(spec.name),
        child_request=runtime.child_request(spec.name),
        used={name: counters.used.get(name, 0) for name in sorted(spec.max)} if spec.max else dict(counters.used),
        non_preemptible_request=dict(counters.non_preemptible_request),
        non_preemptible_used=dict(counters.non_preemptible_used),
        runtime=runtime.runtime(spec.name),
        allocated=allocated,
        guaranteed=guaranteed,
    )


def _loans(tree: QuotaTree, ledger: QuotaLedger, runtime: TreeRuntime) -> Iterable[Loan]:
    for parent, children in tree.children.items():
        for dimension in tree.dimensions:
            named = [name for name in children if dimension in tree.specs[name].max]
            used = {name: ledger.counters(name).used.get(dimension, 0) for name in named}
            if any(used.values()):
                mins = runtime.scaled_mins(parent, dimension)
                members = [Member(name, used[name], mins[name], tree.specs[name].allow_lent) for name in named]
                yield from loans_of_group(parent, dimension, runtime.group_total(parent, dimension), members)


def _overuse(views: Iterable[QuotaView]) -> Iterable[Overuse]:
    for view in views:
        yield from overuse_of(view.spec.name, view.used, view.runtime, view.spec.max)
