"""Everything quota knows, kept consistent: specs, pods, capacity in; shares, use and loans out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cotenant_common.model.quota.lookup import QuotaLookup
from cotenant_common.model.quota.spec import ROOT, QuotaSpec
from cotenant_common.model.quota.tree import DEFAULT_TREE, Forest, QuotaTree, build_forest, cluster_total_of
from cotenant_common.model.resources import ResourceList
from cotenant_quota.core.borrow import Standing
from cotenant_quota.core.ledger import PodCharge, QuotaLedger
from cotenant_quota.core.pods import PodFacts
from cotenant_quota.core.tree_book import Options, QuotaView, TreeBook


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
        known = self._pods.get(pod.uid)
        if known == pod:
            return
        self._pods[pod.uid] = pod
        if known is not None and known.charged_like(pod):
            return
        if known is None or (known.namespace, known.quota_label) != (pod.namespace, pod.quota_label):
            self._release(pod.uid)
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

    def tree(self, tree_id: str) -> TreeBook:
        return self._trees[tree_id]

    def total(self, tree_id: str) -> ResourceList:
        """What the tree shares out."""
        return self._total_of(self._trees[tree_id].tree)

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
        self._trees = {tree_id: TreeBook(tree, self._options) for tree_id, tree in forest.trees.items()}
        self._quota_of = {}
        self._touched = dict.fromkeys(forest.trees)

    def _charge(self, pod: PodFacts) -> None:
        found = self._lookup.find(pod.namespace, pod.quota_label)
        if found is None:
            return
        self._quota_of[pod.uid] = found.name
        charge = PodCharge(pod.uid, found.name, pod.request, pod.assigned, pod.preemptible)
        tree_id = self._tree_id(found.name)
        if tree_id is None:
            self._outside.put(charge)
        else:
            self._trees[tree_id].charge(charge)

    def _release(self, uid: str) -> None:
        quota = self._quota_of.pop(uid, None)
        if quota is None:
            return
        tree_id = self._tree_id(quota)
        if tree_id is None:
            self._outside.release(uid)
        else:
            self._trees[tree_id].release(uid)

    def _tree_id(self, quota: str) -> str | None:
        """The tree to charge, which has to be refreshed then; None outside of all trees."""
        tree_id = self._forest.tree_of.get(quota)
        # What is charged outside of all trees lowers the total of the default tree.
        self._touched[tree_id or DEFAULT_TREE] = None
        return tree_id

    def _total_of(self, tree: QuotaTree) -> dict[str, int]:
        total = cluster_total_of(self._forest, tree, self._cluster)
        if tree.tree_id == DEFAULT_TREE:
            for quota in (*self._forest.outside, *self._forest.detached):
                for name, amount in self._outside.counters(quota).used.items():
                    total[name] = max(0, total.get(name, 0) - amount)
        return total

    def view(self, tree_id: str) -> TreeView:
        """One tree as it stands now."""
        book = self._trees[tree_id]
        total = self._total_of(book.tree)
        book.refresh(total)
        views = list(book.views.values())
        if tree_id == DEFAULT_TREE:
            views = sorted([*views, *self._outside_views()], key=lambda view: view.spec.name)
        return TreeView(tree_id, total, tuple(views), book.standing)

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
            stop_policy=spec.stop_policy,
        )


def _outside_tree(forest: Forest) -> QuotaTree:
    names = [*forest.outside, *forest.detached]
    specs = {name: replace(forest.specs[name], parent=ROOT) for name in names}
    return QuotaTree("", specs, {ROOT: tuple(names)}, (), {}, takes_from_default=False)
