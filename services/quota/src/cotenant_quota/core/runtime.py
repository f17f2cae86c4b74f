"""Runtime of every quota of a tree, kept up to date as demand and capacity change."""

from collections.abc import Mapping
from dataclasses import dataclass

from cotenant_common.model.quota.spec import ROOT
from cotenant_common.model.quota.tree import QuotaTree, limit_of
from cotenant_common.model.resources import ResourceList
from cotenant_quota.core.fair_share import Claim, fair_share, scale_mins

_ROOT_INDEX = 0


@dataclass(frozen=True, slots=True)
class _Shape:
    """The tree as indexes, parents before children; index 0 is the root."""

    names: tuple[str, ...]
    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    lends: tuple[bool, ...]

    @classmethod
    def of(cls, tree: QuotaTree) -> "_Shape":
        names = [ROOT]
        for name in names:
            names.extend(tree.children.get(name, ()))
        at = {name: index for index, name in enumerate(names)}
        specs = [tree.specs[name] for name in names[1:]]
        return cls(
            names=tuple(names),
            parent=(_ROOT_INDEX, *(at[spec.parent] for spec in specs)),
            children=tuple(tuple(at[child] for child in tree.children.get(name, ())) for name in names),
            lends=(True, *(spec.allow_lent for spec in specs)),
        )


class _Dimension:
    """One resource of one tree.

    A change of demand climbs only as far as the request that a parent sees really changes, and marks the groups it
    touched. ``refresh`` goes down again through marked groups and through those whose total moved: an unchanged subtree
    costs nothing.
    """

    def __init__(self, shape: _Shape, tree: QuotaTree, name: str, *, scale_min: bool) -> None:
        specs = [tree.specs[quota] for quota in shape.names[1:]]
        size = len(shape.names)
        self._shape = shape
        self._scale_min = scale_min
        self._min = [0, *(spec.min.get(name, 0) for spec in specs)]
        self._max = [0, *(limit_of(spec, name) for spec in specs)]
        self._weight = [0, *(spec.shared_weight.get(name, limit_of(spec, name)) for spec in specs)]
        self._own = [0] * size
        self._from_children = [0] * size
        self._guarantee = [0] * size
        self.request = [0] * size
        self.limited = [0] * size
        self.runtime = [0] * size
        self._total_seen: list[int | None] = [None] * size
        self._group_changed = [True] * size
        self._below_changed = [True] * size
        for index in reversed(range(1, size)):
            self._climb(index)

    def child_request(self, index: int) -> int:
        return self._own[index] + self._from_children[index]

    def set_own(self, index: int, value: int) -> None:
        if self._own[index] == value:
            return
        self._own[index] = value
        if self._shape.children[index]:
            self._mark(index)  # what its children share shrinks or grows
        self._climb(index)

    def set_guarantee(self, index: int, value: int) -> None:
        if self._guarantee[index] != value:
            self._guarantee[index] = value
            self._mark(self._shape.parent[index])

    def _climb(self, index: int) -> None:
        """Only the change of the limited request flows to the parent."""
        while index != _ROOT_INDEX:
            demand = self.child_request(index)
            self.request[index] = demand if self._shape.lends[index] else max(demand, self._min[index])
            limited = min(self.request[index], self._max[index])
            change = limited - self.limited[index]
            if change == 0:
                return
            self.limited[index] = limited
            parent = self._shape.parent[index]
            self._mark(parent)
            self._from_children[parent] += change
            index = parent

    def _mark(self, group: int) -> None:
        self._group_changed[group] = True
        while not self._below_changed[group]:
            self._below_changed[group] = True
            group = self._shape.parent[group]

    def refresh(self, total: int) -> list[int]:
        """Recompute what the marks and the total require; return the indexes whose runtime changed."""
        changed: list[int] = []
        pending = [(_ROOT_INDEX, total)]
        while pending:
            group, amount = pending.pop()
            if self._group_changed[group] or self._total_seen[group] != amount:
                self._share(group, amount, changed)
            elif not self._below_changed[group]:
                continue
            self._group_changed[group] = self._below_changed[group] = False
            # Pods that name a parent directly have claimed before its children.
            pending.extend(
                (child, max(0, self.runtime[child] - self._own[child]))
                for child in self._shape.children[group]
                if self._shape.children[child]
            )
        return changed

    def _share(self, group: int, total: int, changed: list[int]) -> None:
        members = self._shape.children[group]
        shares = fair_share(total, [self._claim(index) for index in members], scale_min=self._scale_min)
        for index in members:
            share = shares[self._shape.names[index]]
            if self.runtime[index] != share:
                self.runtime[index] = share
                changed.append(index)
        self._total_seen[group] = total

    def _claim(self, index: int) -> Claim:
        return Claim(
            self._shape.names[index],
            self._weight[index],
            self.limited[index],
            self._min[index],
            self._guarantee[index],
            self._shape.lends[index],
        )

    def scaled_mins(self, group: int) -> dict[str, int]:
        mins = {self._shape.names[index]: self._min[index] for index in self._shape.children[group]}
        return scale_mins(self.group_total(group), mins) if self._scale_min else mins

    def group_total(self, group: int) -> int:
        return self._total_seen[group] or 0


class TreeRuntime:
    """The runtime calculation of one tree, dimension by dimension: none ever lowers another."""

    def __init__(self, tree: QuotaTree, *, scale_min: bool = True) -> None:
        self._shape = _Shape.of(tree)
        self._index = {name: index for index, name in enumerate(self._shape.names)}
        self._dimensions = {name: _Dimension(self._shape, tree, name, scale_min=scale_min) for name in tree.dimensions}
        self._keys = [tuple(sorted(tree.specs[name].max)) if name != ROOT else () for name in self._shape.names]

    def set_request(self, quota: str, request: ResourceList) -> None:
        """Set what the quota's own pods ask for in total; only the dimensions of its max are demand."""
        index = self._index[quota]
        for name in self._keys[index]:
            self._dimensions[name].set_own(index, request.get(name, 0))

    def set_guarantee(self, quota: str, guarantee: ResourceList) -> None:
        """Set a floor that holds whatever the weights and the scaling say."""
        index = self._index[quota]
        for name in self._keys[index]:
            self._dimensions[name].set_guarantee(index, guarantee.get(name, 0))

    def refresh(self, total: ResourceList) -> tuple[str, ...]:
        """Bring every runtime up to date; return the quotas whose runtime changed, parents first."""
        changed: dict[int, None] = {}
        for name, dimension in self._dimensions.items():
            changed.update(dict.fromkeys(dimension.refresh(total.get(name, 0))))
        return tuple(self._shape.names[index] for index in sorted(changed))

    def runtime(self, quota: str) -> dict[str, int]:
        """As of the last refresh, by the dimensions of the quota's max."""
        index = self._index[quota]
        return {name: self._dimensions[name].runtime[index] for name in self._keys[index]}

    def request(self, quota: str) -> dict[str, int]:
        """Demand with a non-lender's min as its floor, not limited by max."""
        index = self._index[quota]
        return {name: self._dimensions[name].request[index] for name in self._keys[index]}

    def child_request(self, quota: str) -> dict[str, int]:
        """Demand of own pods and of children, the latter limited by their max."""
        index = self._index[quota]
        return {name: self._dimensions[name].child_request(index) for name in self._keys[index]}

    def group_total(self, parent: str, dimension: str) -> int:
        """What the children of ``parent`` share, as of the last refresh."""
        return self._dimensions[dimension].group_total(self._index[parent])

    def scaled_mins(self, parent: str, dimension: str) -> Mapping[str, int]:
        """The mins that count while together they pass the total, by child."""
        return self._dimensions[dimension].scaled_mins(self._index[parent])
