"""Quotas as trees: who is whose parent, and what stays outside because it hangs nowhere."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cotenant_common.model.quota.spec import BUILT_IN_NAMESPACE, DEFAULT, ROOT, SYSTEM, UNLIMITED, Problem, QuotaSpec
from cotenant_common.model.resources import ResourceList

DEFAULT_TREE: Final = "default"


@dataclass(frozen=True, slots=True)
class QuotaTree:
    """One tree of quotas below an unnamed root.

    ``total`` is the tree's own capacity when its root quota states one, else None: the cluster's.
    ``dimensions`` is every resource that any of its quotas names, sorted.
    """

    tree_id: str
    specs: Mapping[str, QuotaSpec]
    children: Mapping[str, tuple[str, ...]]
    dimensions: tuple[str, ...]
    total: ResourceList | None
    takes_from_default: bool

    def chain(self, name: str) -> tuple[str, ...]:
        """The quota and its ancestors, leaf first; the root is not part of it."""
        found: list[str] = []
        while name != ROOT:
            found.append(name)
            name = self.specs[name].parent
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Forest:
    """All trees. ``outside`` holds the built-in quotas that take no part in fair share, ``detached`` the quotas that
    hang nowhere: they exist, so that their pods are refused rather than let through by way of the default quota."""

    trees: Mapping[str, QuotaTree]
    tree_of: Mapping[str, str]
    outside: Mapping[str, QuotaSpec]
    detached: Mapping[str, Problem]
    specs: Mapping[str, QuotaSpec]


def build_forest(specs: Iterable[QuotaSpec]) -> Forest:
    """Order of ``specs`` does not matter: of two quotas with one name the one in the first namespace stands."""
    by_name: dict[str, QuotaSpec] = {}
    for spec in sorted(specs, key=lambda one: (one.name, one.namespace)):
        by_name.setdefault(spec.name, spec)
    outside = {name: by_name.pop(name, _built_in(name)) for name in (DEFAULT, SYSTEM)}
    by_name.pop(ROOT, None)
    tree_of, detached = _place(by_name)
    members: dict[str, dict[str, QuotaSpec]] = {DEFAULT_TREE: {}}
    for name, tree_id in tree_of.items():
        members.setdefault(tree_id, {})[name] = by_name[name]
    trees = {tree_id: _build_tree(tree_id, members[tree_id]) for tree_id in sorted(members)}
    return Forest(trees, tree_of, outside, detached, by_name | outside)


def _built_in(name: str) -> QuotaSpec:
    return QuotaSpec(name, BUILT_IN_NAMESPACE, min={}, max={}, shared_weight={})


def _place(by_name: Mapping[str, QuotaSpec]) -> tuple[dict[str, str], dict[str, Problem]]:
    """Tree id by quota for all that reach the root; the problem for all that do not."""
    tree_of: dict[str, str] = {}
    detached: dict[str, Problem] = {}
    for name in by_name:
        path: list[str] = []
        at = name
        while at in by_name and at not in tree_of and at not in detached and at not in path:
            path.append(at)
            at = by_name[at].parent
        for step in reversed(path):
            in_cycle = at in path and path.index(step) >= path.index(at)
            problem = _attachment_problem(by_name, step, detached, in_cycle=in_cycle)
            if problem is None:
                parent = by_name[step].parent
                tree_of[step] = tree_of[parent] if parent != ROOT else by_name[step].tree_id or DEFAULT_TREE
            else:
                detached[step] = problem
    return tree_of, detached


def _attachment_problem(
    by_name: Mapping[str, QuotaSpec], name: str, detached: Mapping[str, Problem], *, in_cycle: bool
) -> Problem | None:
    path = "metadata.labels[quota.scheduling.koordinator.sh/parent]"
    parent = by_name[name].parent
    if parent == ROOT:
        return None
    if in_cycle:
        return Problem(path, f"quota {name} is its own ancestor through {parent}")
    if parent not in by_name:
        return Problem(path, f"parent quota {parent} does not exist; create it first")
    if parent in detached:
        return Problem(path, f"parent quota {parent} hangs nowhere: {detached[parent].message}")
    if not by_name[parent].is_parent:
        return Problem(path, f"quota {parent} is no parent; set its label is-parent to true")
    return None


def _build_tree(tree_id: str, specs: Mapping[str, QuotaSpec]) -> QuotaTree:
    children: dict[str, list[str]] = {ROOT: []}
    for name in sorted(specs):
        children.setdefault(specs[name].parent, []).append(name)
    dimensions = sorted({key for spec in specs.values() for key in spec.max})
    root = next((specs[name] for name in children[ROOT] if specs[name].total_resource is not None), None)
    stated = root if tree_id != DEFAULT_TREE else None
    return QuotaTree(
        tree_id=tree_id,
        specs=specs,
        children={name: tuple(names) for name, names in children.items()},
        dimensions=tuple(dimensions),
        total=stated.total_resource if stated else ({} if tree_id != DEFAULT_TREE else None),
        takes_from_default=stated is not None and not stated.ignore_default_tree,
    )


def cluster_total_of(forest: Forest, tree: QuotaTree, cluster: ResourceList) -> dict[str, int]:
    """What a tree may share out. Named trees say so themselves; the default tree has what they leave."""
    if tree.total is not None:
        return dict(tree.total)
    rest = dict(cluster)
    for other in forest.trees.values():
        if other.takes_from_default and other.total is not None:
            for name, amount in other.total.items():
                rest[name] = max(0, rest.get(name, 0) - amount)
    return rest


def limit_of(spec: QuotaSpec, dimension: str) -> int:
    """max, or no limit where the quota does not name the dimension."""
    return spec.max.get(dimension, UNLIMITED)
