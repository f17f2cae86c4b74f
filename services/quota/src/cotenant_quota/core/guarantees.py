"""What each quota is guaranteed: the larger of its min and what is allocated below it (ElasticQuotaGuaranteeUsage)."""

from collections.abc import Mapping

from cotenant_common.model.quota.spec import ROOT
from cotenant_common.model.quota.tree import QuotaTree
from cotenant_common.model.resources import ResourceList

Amounts = dict[str, dict[str, int]]


def guaranteed_of(tree: QuotaTree, used: Mapping[str, ResourceList]) -> tuple[Amounts, Amounts]:
    """(allocated, guaranteed) by quota: a leaf has allocated what it uses, a parent what its children are guaranteed;
    guaranteed is the larger of allocated and min."""
    allocated: Amounts = {}
    guaranteed: Amounts = {}
    for name in leaves_first(tree):
        keys = tree.specs[name].max
        own = used.get(name, {})
        children = tree.children.get(name, ())
        if children:
            allocated[name] = {key: sum(guaranteed[child].get(key, 0) for child in children) for key in keys}
        else:
            allocated[name] = {key: own.get(key, 0) for key in keys}
        guaranteed[name] = _at_least_min(tree, name, allocated[name])
    return allocated, guaranteed


def leaves_first(tree: QuotaTree) -> list[str]:
    """Every quota after all of its children."""
    order = list(tree.children.get(ROOT, ()))
    for name in order:
        order.extend(tree.children.get(name, ()))
    return order[::-1]


def _at_least_min(tree: QuotaTree, name: str, allocated: ResourceList) -> dict[str, int]:
    low = tree.specs[name].min
    return {key: max(amount, low.get(key, 0)) for key, amount in allocated.items()}


class Guarantees:
    """The same, kept: only the change of what a child is guaranteed flows to its parent."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self.allocated, self.guaranteed = guaranteed_of(tree, {})

    def set_used(self, name: str, used: ResourceList) -> tuple[str, ...]:
        """Take a leaf's use; return the quotas whose guarantee changed. What a parent's own pods use counts in none."""
        if self._tree.children.get(name):
            return ()
        changed: list[str] = []
        allocated = {key: used.get(key, 0) for key in self._tree.specs[name].max}
        while self.allocated[name] != allocated:
            before = self.guaranteed[name]
            after = _at_least_min(self._tree, name, allocated)
            self.allocated[name], self.guaranteed[name] = allocated, after
            changed.append(name)
            name = self._tree.specs[name].parent
            if name == ROOT:
                break
            allocated = {
                key: amount + after.get(key, 0) - before.get(key, 0) for key, amount in self.allocated[name].items()
            }
        return tuple(changed)
