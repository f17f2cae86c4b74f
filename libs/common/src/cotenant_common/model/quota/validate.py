"""May this quota be written, or removed? Every rule gives one error that names the field (Koordinator's webhook)."""

from collections.abc import Mapping
from typing import Final

from cotenant_common.model import labels, resources
from cotenant_common.model.quota.spec import BUILT_IN, DEFAULT, ROOT, SYSTEM, Problem, QuotaSpec, check_bounds
from cotenant_common.model.quota.tree import DEFAULT_TREE, build_forest
from cotenant_common.model.resources import ResourceList

_PARENT: Final = f"metadata.labels[{labels.QUOTA_PARENT}]"
_IS_PARENT: Final = f"metadata.labels[{labels.QUOTA_IS_PARENT}]"
_TREE_ID: Final = f"metadata.labels[{labels.QUOTA_TREE_ID}]"
_TOTAL: Final = f"metadata.annotations[{labels.QUOTA_TOTAL_RESOURCE}]"
_NAMESPACES: Final = f"metadata.annotations[{labels.QUOTA_NAMESPACES}]"


def check_apply(
    existing: Mapping[str, QuotaSpec], new: QuotaSpec, *, used: ResourceList | None = None, bound_pods: int = 0
) -> list[Problem]:
    """Rules for creating or changing a quota. ``used`` and ``bound_pods`` are those of the quota as it stands."""
    if new.name in (ROOT, SYSTEM):
        return [Problem("metadata.name", f"{new.name} is built in and cannot be changed")]
    old = existing.get(new.name)
    found = check_bounds(new)
    found += _check_namespaces(existing, new)
    found += _check_total(existing, new)
    found += _check_strict_max(new, used or {})
    if old is not None:
        found += _check_change(existing, old, new, bound_pods)
    if new.name != DEFAULT:
        found += _check_topology(existing, new)
    return found


def check_delete(existing: Mapping[str, QuotaSpec], name: str, *, bound_pods: int = 0) -> list[Problem]:
    if name in BUILT_IN:
        return [Problem("metadata.name", f"{name} is built in and cannot be deleted")]
    children = _children(existing, name)
    if children:
        return [Problem("metadata.name", f"quota {name} has children: {', '.join(children)}; delete them first")]
    if bound_pods:
        return [Problem("metadata.name", f"{bound_pods} pods are charged to quota {name}; delete or move them first")]
    return []


def _check_namespaces(existing: Mapping[str, QuotaSpec], new: QuotaSpec) -> list[Problem]:
    found = []
    for namespace in new.namespaces:
        owners = [one.name for one in existing.values() if one.name != new.name and namespace in one.namespaces]
        if owners:
            found.append(Problem(_NAMESPACES, f"namespace {namespace} is bound to quota {min(owners)} already"))
    return found


def _check_strict_max(new: QuotaSpec, used: ResourceList) -> list[Problem]:
    found = []
    for name in new.strict_keys:
        high = new.max.get(name)
        if high is not None and high < used.get(name, 0):
            shown = f"{resources.render(name, high)} < {resources.render(name, used[name])}"
            found.append(Problem(f"spec.max.{name}", f"max is checked strictly and must not be below used: {shown}"))
    return found


def _check_change(existing: Mapping[str, QuotaSpec], old: QuotaSpec, new: QuotaSpec, bound_pods: int) -> list[Problem]:
    found = _check_same_tree(existing, old, new)
    children = _children(existing, new.name)
    if old.is_parent and not new.is_parent and children:
        found.append(Problem(_IS_PARENT, f"quota {new.name} has children: {', '.join(children)}"))
    if new.is_parent and not old.is_parent and bound_pods:
        found.append(Problem(_IS_PARENT, f"{bound_pods} pods are charged to quota {new.name}; a parent holds none"))
    return found


def _check_same_tree(existing: Mapping[str, QuotaSpec], old: QuotaSpec, new: QuotaSpec) -> list[Problem]:
    if (old.parent, old.tree_id) == (new.parent, new.tree_id):
        return []  # and no need to make two forests of it: a thousand quotas may be applied again at once
    before, after = _tree_of(existing, old), _tree_of(existing, new)
    if before is None or after is None or before == after:
        return []
    path = _TREE_ID if new.parent == old.parent else _PARENT
    return [Problem(path, f"the tree cannot change: {before} → {after}; delete the quota and create it anew")]


def _tree_of(existing: Mapping[str, QuotaSpec], one: QuotaSpec) -> str | None:
    """The tree it belongs to, its own or an ancestor's; None while it hangs nowhere."""
    return build_forest({**existing, one.name: one}.values()).tree_of.get(one.name)


def _check_total(existing: Mapping[str, QuotaSpec], new: QuotaSpec) -> list[Problem]:
    """Capacity is stated once for a tree, at its root."""
    if new.total_resource is None:
        return []
    if new.parent != ROOT:
        return [Problem(_TOTAL, f"only the root of a tree states its capacity; {new.name} has parent {new.parent}")]
    twins = [
        one.name
        for one in existing.values()
        if one.name != new.name
        and one.parent == ROOT
        and one.total_resource is not None
        and (one.tree_id or DEFAULT_TREE) == (new.tree_id or DEFAULT_TREE)
    ]
    if twins:
        return [Problem(_TOTAL, f"tree {new.tree_id or DEFAULT_TREE} has its capacity from quota {min(twins)} already")]
    return []


def _check_topology(existing: Mapping[str, QuotaSpec], new: QuotaSpec) -> list[Problem]:
    if new.parent == ROOT and not new.is_parent:
        return []
    known = {**existing, new.name: new}
    forest = build_forest(known.values())
    if new.name in forest.detached:
        return [forest.detached[new.name]]
    children = [known[name] for name in _children(known, new.name)]
    parent = known.get(new.parent)
    found = _check_keys_down(new, children) + _check_tree_ids(forest.tree_of[new.name], new, children)
    if parent is not None:
        found += _check_keys_up(new, parent) + _check_sibling_mins(known, new, parent)
    found += _check_children_mins(new, children)
    return found


def _check_tree_ids(tree: str, new: QuotaSpec, children: list[QuotaSpec]) -> list[Problem]:
    """What is written has to be what is inherited: a tree id lower down would be passed over in silence."""
    return [
        Problem(_TREE_ID, f"tree {one.tree_id} of {one.name} differs from tree {tree} of its parent {one.parent}")
        for one in (new, *children)
        if one.tree_id and one.tree_id != tree
    ]


def _check_keys_up(new: QuotaSpec, parent: QuotaSpec) -> list[Problem]:
    found = []
    if set(new.max) != set(parent.max):
        found.append(Problem("spec.max", f"max must name the resources of parent {parent.name}: {_names(parent)}"))
    extra = sorted(set(new.min) - set(parent.min))
    if extra:
        found.append(Problem("spec.min", f"parent {parent.name} has no min for {', '.join(extra)}"))
    return found


def _check_keys_down(new: QuotaSpec, children: list[QuotaSpec]) -> list[Problem]:
    found = []
    for child in children:
        if set(child.max) != set(new.max):
            found.append(Problem("spec.max", f"max must name the resources of child {child.name}: {_names(child)}"))
        missing = sorted(set(child.min) - set(new.min))
        if missing:
            found.append(Problem("spec.min", f"child {child.name} has a min for {', '.join(missing)}"))
    return found


def _check_sibling_mins(known: Mapping[str, QuotaSpec], new: QuotaSpec, parent: QuotaSpec) -> list[Problem]:
    if parent.allow_force_update or new.allow_force_update:
        return []
    siblings = [known[name] for name in _children(known, parent.name)]
    return _check_sum(f"the children of {parent.name}", siblings, parent)


def _check_children_mins(new: QuotaSpec, children: list[QuotaSpec]) -> list[Problem]:
    if new.is_root or new.allow_force_update:
        return []
    return _check_sum("its children", children, new)


def _check_sum(whose: str, members: list[QuotaSpec], parent: QuotaSpec) -> list[Problem]:
    found = []
    for name in sorted({key for member in members for key in member.min}):
        total, limit = sum(member.min.get(name, 0) for member in members), parent.min.get(name, 0)
        if total > limit:
            shown = f"{resources.render(name, total)} > {resources.render(name, limit)}"
            found.append(Problem(f"spec.min.{name}", f"the mins of {whose} pass the min of {parent.name}: {shown}"))
    return found


def _children(existing: Mapping[str, QuotaSpec], name: str) -> list[str]:
    return sorted(one.name for one in existing.values() if one.parent == name)


def _names(spec: QuotaSpec) -> str:
    return ", ".join(sorted(spec.max)) or "none"
