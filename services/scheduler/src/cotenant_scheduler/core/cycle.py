"""Filter → score → choose, over every node, with the work shared by pods of one shape.

Two layers are kept. What depends on facts of the node alone is shared by all shapes that look the same to those
plugins; what also depends on charges and reports is kept per shape. Both are redone for the rows that changed since.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotenant_scheduler.core.columns import Ints, Rows
from cotenant_scheduler.core.plugins.interface import (
    OUT,
    PASSED,
    Kernel,
    PodFilter,
    PodScore,
    Preference,
    Reads,
    ShapeFilter,
    ShapeScore,
    Wake,
)
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import PodRequest, Shape
from cotenant_scheduler.core.selection import select
from cotenant_scheduler.core.snapshot import Snapshot, stable_hash

_DEAD: Final = -2
"""Verdict on a row that holds no node."""
_SHAPES_KEPT: Final = 512
_BASES_KEPT: Final = 256
_NODE_FIT: Final = "NodeResourcesFit"

Verdicts = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Plugins:
    """In order: a node is refused by the first filter that objects. Those that read facts alone always come first."""

    filters: Sequence[ShapeFilter]
    scores: Sequence[ShapeScore]
    pod_filters: Sequence[PodFilter] = ()
    pod_scores: Sequence[PodScore] = ()
    preferences: Sequence[Preference] = ()


@dataclass(slots=True)
class _Base:
    """View of every row by the plugins that read facts alone, as of ``seen`` in the log of facts."""

    seen: int
    verdict: Verdicts
    score: Ints


@dataclass(slots=True)
class _Opinion:
    """A shape's view of every row as of ``seen`` in the log of changes. ``job`` is the kernel's own."""

    seen: int
    base: _Base
    verdict: Verdicts
    points: Ints
    job: Any


@dataclass(frozen=True, slots=True)
class Choice:
    """``best`` holds the first few nodes with their points, for whoever asks later why this one."""

    node: str
    score: int
    feasible: int
    best: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NoChoice:
    """``groups`` count every node once, under the first reason it gave; ``barred`` nodes only refused this very pod."""

    nodes: int
    groups: tuple[RefusalGroup, ...] = ()
    barred: tuple[str, ...] = ()


class Cycle:
    """``fused`` allows a kernel where a plugin offers one; the answers are the same without."""

    def __init__(self, cluster: Snapshot, plugins: Plugins, seed: int = 0, *, fused: bool = False) -> None:
        self._cluster = cluster
        self._plugins = plugins
        self._seed = seed
        by_facts = [each for each in plugins.filters if each.reads is Reads.FACTS]
        self._filters = [*by_facts, *(each for each in plugins.filters if each.reads is Reads.ALL)]
        self._by_facts = len(by_facts)
        self._base_scores = [each for each in plugins.scores if each.reads is Reads.FACTS]
        self._live_scores = [each for each in plugins.scores if each.reads is Reads.ALL]
        self._kernel = self._find_kernel() if fused else None
        covered = self._kernel.covers if self._kernel is not None else frozenset[str]()
        live = list(enumerate(self._filters))[self._by_facts :]
        self._live_filters = live
        self._beside_filters = [(index, each) for index, each in live if each.name not in covered]
        self._beside_scores = [each for each in self._live_scores if each.name not in covered]
        self._bases: OrderedDict[Hashable, _Base] = OrderedDict()
        self._opinions: OrderedDict[Shape, _Opinion] = OrderedDict()

    def _find_kernel(self) -> Kernel | None:
        """Its filters must be the first that look at more than facts, or a node would be refused for another reason."""
        live = self._filters[self._by_facts :]
        for plugin in [*live, *self._live_scores]:
            kernel = plugin.kernel(self._plugins)
            if kernel is not None:
                inside = [each.name in kernel.covers for each in live]
                if inside == sorted(inside, reverse=True):
                    return kernel
        return None

    @property
    def fused(self) -> bool:
        return self._kernel is not None

    def wakers(self) -> Mapping[Wake, tuple[str, ...]]:
        """Per event the filters whose refusal it can turn."""
        filters: list[ShapeFilter | PodFilter] = [*self._filters, *self._plugins.pod_filters]
        return {event: tuple(each.name for each in filters if event in each.wakes) for event in Wake}

    @property
    def filters(self) -> Sequence[ShapeFilter]:
        return self._filters

    def choose(self, pod: PodRequest, excluded: Collection[str] = ()) -> Choice | NoChoice:
        """The best node, or the fact that there is none. ``excluded`` refused this very pod lately."""
        points = self._points(pod, excluded)
        for preference in self._plugins.preferences:
            for name in preference.prefer(pod.shape, self._cluster):
                row = self._cluster.rows.get(name)
                if row is not None and points[row] >= 0:
                    return self._choice(points, row, int((points >= 0).sum()), [row])
        # Equal choices are spread over equal nodes by nothing but names and the seed.
        mine = np.uint64(stable_hash(f"{self._seed}/{pod.uid}"))
        chooser = self._kernel.select if self._kernel is not None else select
        feasible, best = chooser(points[: self._cluster.extent], self._cluster.row_hash, mine)
        if not feasible:
            return NoChoice(len(self._cluster.alive_rows()))
        return self._choice(points, best[0], feasible, best)

    def _choice(self, points: Ints, row: int, feasible: int, best: Sequence[int]) -> Choice:
        facts = self._cluster.facts
        names = [(each.name, points.item(place)) for place in best if (each := facts[place]) is not None]
        return Choice(names[0][0], points.item(row), feasible, tuple(names))

    def _points(self, pod: PodRequest, excluded: Collection[str]) -> Ints:
        """A copy only where this pod's view differs from that of its shape."""
        points = self._opinion(pod.shape).points
        filters = [each for each in self._plugins.pod_filters if each.applies(pod, self._cluster)]
        scores = [each for each in self._plugins.pod_scores if each.applies(pod, self._cluster)]
        if not (excluded or filters or scores):
            return points
        points = points.copy()
        for name in excluded:
            if name in self._cluster.rows:
                points[self._cluster.rows[name]] = OUT
        for plugin in filters:
            rows = np.flatnonzero(points >= 0)
            points[rows[np.logical_not(plugin.passes(pod, self._cluster, rows))]] = OUT
        rows = np.flatnonzero(points >= 0)
        for scorer in scores if len(rows) else ():
            points[rows] += scorer.weight * scorer.score(pod, self._cluster, rows)
        return points

    def _opinion(self, shape: Shape) -> _Opinion:
        opinion = self._opinions.get(shape)
        if opinion is None or len(opinion.verdict) != self._cluster.size:
            opinion = self._opinions[shape] = self._new_opinion(shape)
        else:
            self._opinions.move_to_end(shape)
        if opinion.seen != self._cluster.changes.count:
            self._refresh(opinion, shape)
        return opinion

    def _new_opinion(self, shape: Shape) -> _Opinion:
        """Columns of the shape that was forgotten are written over: every pod may be its own shape."""
        cluster, base = self._cluster, self._base(shape)
        spare = self._opinions.popitem(last=False)[1] if len(self._opinions) >= _SHAPES_KEPT else None
        job = None
        if self._kernel is not None and self._kernel.exact(cluster):
            job = self._kernel.prepare(shape, cluster, self._by_facts)
        if spare is not None and len(spare.verdict) == cluster.size:
            return _Opinion(-1, base, spare.verdict, spare.points, job)
        return _Opinion(
            -1, base, np.full(cluster.size, _DEAD, dtype=np.int8), np.full(cluster.size, OUT, dtype=np.int64), job
        )

    def _refresh(self, opinion: _Opinion, shape: Shape) -> None:
        cluster = self._cluster
        if opinion.base.seen != cluster.fact_changes.count:
            opinion.base = self._base(shape)
        rows = cluster.changes.since(opinion.seen) if opinion.seen >= 0 else None
        opinion.seen = cluster.changes.count
        if self._kernel is None or opinion.job is None or not self._kernel.exact(cluster):
            self._refresh_by_plugins(opinion, shape, rows)
            return
        base = opinion.base
        self._kernel.refresh(opinion.job, rows, (base.verdict, base.score), (opinion.verdict, opinion.points))
        filters = [each for each in self._beside_filters if each[1].applies(shape, cluster)]
        scores = [each for each in self._beside_scores if each.applies(shape, cluster)]
        if filters or scores:
            rows = cluster.alive_rows() if rows is None else np.unique(rows)
            rows = rows[opinion.verdict[rows] == PASSED]
            self._add_up(opinion, shape, self._sift(opinion, shape, rows, filters), scores)

    def _refresh_by_plugins(self, opinion: _Opinion, shape: Shape, rows: Rows | None) -> None:
        base, cluster = opinion.base, self._cluster
        if rows is None:
            np.copyto(opinion.verdict, base.verdict)
            opinion.points.fill(OUT)
            rows = cluster.alive_rows()
        else:
            rows = np.unique(rows)
            opinion.verdict[rows] = base.verdict[rows]
            opinion.points[rows] = OUT
        rows = rows[base.verdict[rows] == PASSED]
        filters = [each for each in self._live_filters if each[1].applies(shape, cluster)]
        rows = self._sift(opinion, shape, rows, filters)
        opinion.points[rows] = base.score[rows]
        self._add_up(opinion, shape, rows, [each for each in self._live_scores if each.applies(shape, cluster)])

    def _sift(self, opinion: _Opinion, shape: Shape, rows: Rows, filters: Sequence[tuple[int, ShapeFilter]]) -> Rows:
        for index, plugin in filters:
            passed = plugin.passes(shape, self._cluster, rows)
            refused = rows[np.logical_not(passed)]
            opinion.verdict[refused] = index
            opinion.points[refused] = OUT
            rows = rows[passed]
        return rows

    def _add_up(self, opinion: _Opinion, shape: Shape, rows: Rows, scores: Sequence[ShapeScore]) -> None:
        if len(rows):
            for scorer in scores:
                opinion.points[rows] += scorer.weight * scorer.score(shape, self._cluster, rows)

    def _base(self, shape: Shape) -> _Base:
        cluster = self._cluster
        filters = self._filters[: self._by_facts]
        key = tuple(each.part(shape) for each in (*filters, *self._base_scores))
        base = self._bases.get(key)
        if base is None or len(base.verdict) != cluster.size:
            blank = np.full(cluster.size, _DEAD, dtype=np.int8), np.zeros(cluster.size, dtype=np.int64)
            base = self._bases[key] = _Base(-1, *blank)
            if len(self._bases) > _BASES_KEPT:
                self._bases.popitem(last=False)
        else:
            self._bases.move_to_end(key)
        if base.seen != cluster.fact_changes.count:
            self._refresh_base(base, shape)
        return base

    def _refresh_base(self, base: _Base, shape: Shape) -> None:
        cluster = self._cluster
        rows = cluster.fact_changes.since(base.seen) if base.seen >= 0 else None
        base.seen = cluster.fact_changes.count
        if rows is None:
            base.verdict.fill(_DEAD)
            rows = cluster.alive_rows()
        else:
            rows = np.unique(rows)
            base.verdict[rows] = _DEAD
            rows = rows[cluster.alive[rows]]
        base.verdict[rows], base.score[rows] = PASSED, 0
        for index, plugin in enumerate(self._filters[: self._by_facts]):
            if plugin.applies(shape, cluster):
                passed = plugin.passes(shape, cluster, rows)
                base.verdict[rows[np.logical_not(passed)]] = index
                rows = rows[passed]
        for scorer in self._base_scores:
            if scorer.applies(shape, cluster):
                base.score[rows] += scorer.weight * scorer.score(shape, cluster, rows)

    def explain(self, pod: PodRequest, excluded: Collection[str] = ()) -> NoChoice:
        """Why each node refuses; nodes that would take the pod are in no group."""
        cluster, shape = self._cluster, pod.shape
        opinion, alive = self._opinion(shape), cluster.alive_rows()
        verdicts = opinion.verdict[alive]
        groups: list[RefusalGroup] = []
        for index, plugin in enumerate(self._filters):
            refused = alive[verdicts == index]
            if len(refused):
                found = plugin.summarise(shape, cluster, refused)
                groups.extend(replace(group, plugin=plugin.name) for group in found)
        left = alive[verdicts == PASSED]
        barred = [int(row) for row in left if excluded and cluster.name(int(row)) in excluded]
        groups.extend(self._explain_around(pod, np.setdiff1d(left, barred)))
        return NoChoice(len(alive), tuple(groups), tuple(sorted(cluster.name(row) for row in barred)))

    def _explain_around(self, pod: PodRequest, left: Rows) -> list[RefusalGroup]:
        cluster = self._cluster
        groups: list[RefusalGroup] = []
        for plugin in self._plugins.pod_filters:
            if len(left) and plugin.applies(pod, cluster):
                passed = plugin.passes(pod, cluster, left)
                groups.extend(_around_groups(plugin, pod, cluster, left[np.logical_not(passed)]))
                left = left[passed]
        return groups

    def takes(self, shape: Shape, row: int) -> bool:
        """Whether no filter objects to one node, other pods' wishes left aside."""
        single = np.array([row])
        return bool(self._cluster.alive[row]) and all(
            plugin.passes(shape, self._cluster, single)[0]
            for plugin in self._filters
            if plugin.applies(shape, self._cluster)
        )

    def fits(self, pod: PodRequest, row: int) -> bool:
        """The same with other pods' wishes: as they are now, no view of this row that is kept is asked."""
        single = np.array([row])
        return self.takes(pod.shape, row) and all(
            plugin.passes(pod, self._cluster, single)[0]
            for plugin in self._plugins.pod_filters
            if plugin.applies(pod, self._cluster)
        )

    def open_rows(self, shape: Shape, excluded: Collection[str]) -> Rows:
        """Nodes that refuse for nothing that other pods could change."""
        rows = self._cluster.alive_rows()
        rows = rows[self._base(shape).verdict[rows] == PASSED]
        barred = [self._cluster.rows[name] for name in excluded if name in self._cluster.rows]
        return np.setdiff1d(rows, np.array(barred, dtype=rows.dtype)) if barred else rows

    @property
    def counts_resources(self) -> bool:
        return any(each.name == _NODE_FIT for each in self._filters)

    def only(self, pod: PodRequest, node: str) -> Choice | None:
        """The choice where there is no choice: this node, if it can take the pod."""
        row = self._cluster.rows.get(node)
        if row is None or not self.fits(pod, row):
            return None
        points = max(0, self._points(pod, ()).item(row))
        return Choice(node, points, 1, ((node, points),))

    def why_not(self, pod: PodRequest, node: str) -> tuple[Refusal, ...]:
        """Every filter that objects to this node, not only the first."""
        row = self._cluster.rows[node]
        single = np.array([row])
        found = [
            plugin.refuse(pod.shape, self._cluster, row)
            for plugin in self._filters
            if plugin.applies(pod.shape, self._cluster) and not plugin.passes(pod.shape, self._cluster, single)[0]
        ]
        found += [
            plugin.refuse(pod, self._cluster, row)
            for plugin in self._plugins.pod_filters
            if plugin.applies(pod, self._cluster) and not plugin.passes(pod, self._cluster, single)[0]
        ]
        return tuple(found)


def _around_groups(plugin: PodFilter, pod: PodRequest, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
    """One example: the plugins that look around have one reason each."""
    if not len(rows):
        return ()
    row = cluster.first_by_name(rows)
    refusal = plugin.refuse(pod, cluster, row)
    return (RefusalGroup(refusal.code, len(rows), refusal.message, cluster.name(row), refusal.helps, plugin.name),)
