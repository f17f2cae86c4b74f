"""Filter → score → choose, over every node, with the work shared by pods of one shape.

What a shape thinks of a node depends on the node's row alone, so it is kept until the row's generation moves on.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotenant_scheduler.core.columns import Ints, Rows
from cotenant_scheduler.core.plugins.interface import PodFilter, PodScore, ShapeFilter, ShapeScore
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import PodRequest, Shape
from cotenant_scheduler.core.snapshot import Snapshot, stable_hash

PASSED: Final = -1
_OUT: Final = -1
"""Score of a node that may not be chosen; real scores are never negative."""
_SHAPES_KEPT: Final = 512
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Plugins:
    """In order: a node is refused by the first filter that objects, cheap and final objections first."""

    filters: Sequence[ShapeFilter]
    scores: Sequence[ShapeScore]
    pod_filters: Sequence[PodFilter]
    pod_scores: Sequence[PodScore]


@dataclass(slots=True)
class _Opinion:
    """A shape's view of every row as of ``generation``."""

    generation: int
    verdict: NDArray[np.int8]
    score: Ints


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
    def __init__(self, cluster: Snapshot, plugins: Plugins, seed: int = 0) -> None:
        self._cluster = cluster
        self._plugins = plugins
        self._seed = seed
        self._opinions: OrderedDict[Shape, _Opinion] = OrderedDict()

    def choose(self, pod: PodRequest, excluded: Collection[str] = ()) -> Choice | NoChoice:
        """The best node, or every reason why there is none. ``excluded`` refused this very pod lately."""
        masked = self._masked(pod, excluded)
        best = int(masked.max()) if len(masked) else _OUT
        if best < 0:
            return NoChoice(int(self._cluster.alive.sum()))
        ties = np.flatnonzero(masked == best)
        row = int(ties[0]) if len(ties) == 1 else self._pick(pod, ties)
        return Choice(self._cluster.name(row), best, int((masked >= 0).sum()), self._first(masked, ties, row))

    def _first(self, masked: Ints, ties: Rows, chosen: int) -> tuple[tuple[str, int], ...]:
        if len(ties) >= _SHOWN:
            few = ties[:_SHOWN]
        else:
            few = np.argpartition(masked, -_SHOWN)[-_SHOWN:] if len(masked) > _SHOWN else np.arange(len(masked))
        rows = [int(row) for row in few if masked[row] >= 0 and row != chosen]
        rows.sort(key=lambda row: (-int(masked[row]), self._cluster.name(row)))
        return tuple((self._cluster.name(row), int(masked[row])) for row in [chosen, *rows][:_SHOWN])

    def _pick(self, pod: PodRequest, ties: Rows) -> int:
        """Spread equal choices over equal nodes, by nothing but names and the seed."""
        mine = np.uint64(stable_hash(f"{self._seed}/{pod.uid}"))
        return int(ties[np.argmin(self._cluster.row_hash[ties] ^ mine)])

    def _masked(self, pod: PodRequest, excluded: Collection[str]) -> Ints:
        opinion = self._opinion(pod.shape)
        masked: Ints = np.where(opinion.verdict == PASSED, opinion.score, _OUT)
        for name in excluded:
            if name in self._cluster.rows:
                masked[self._cluster.rows[name]] = _OUT
        self._look_around(pod, masked)
        return masked

    def _look_around(self, pod: PodRequest, masked: Ints) -> None:
        for plugin in self._plugins.pod_filters:
            if plugin.applies(pod, self._cluster):
                rows = np.flatnonzero(masked >= 0)
                masked[rows[np.logical_not(plugin.passes(pod, self._cluster, rows))]] = _OUT
        for scorer in self._plugins.pod_scores:
            if scorer.applies(pod, self._cluster):
                rows = np.flatnonzero(masked >= 0)
                if len(rows):
                    masked[rows] += scorer.weight * scorer.score(pod, self._cluster, rows)

    def _opinion(self, shape: Shape) -> _Opinion:
        cluster = self._cluster
        opinion = self._opinions.get(shape)
        if opinion is None or len(opinion.verdict) != cluster.size:
            opinion = _Opinion(0, np.zeros(cluster.size, dtype=np.int8), np.zeros(cluster.size, dtype=np.int64))
            self._opinions[shape] = opinion
            if len(self._opinions) > _SHAPES_KEPT:
                self._opinions.popitem(last=False)
        else:
            self._opinions.move_to_end(shape)
        if opinion.generation < cluster.generation:
            self._refresh(opinion, shape, cluster.changed_since(opinion.generation))
        return opinion

    def _refresh(self, opinion: _Opinion, shape: Shape, rows: Rows) -> None:
        opinion.generation = self._cluster.generation
        left = rows
        opinion.verdict[rows] = PASSED
        for index, plugin in enumerate(self._plugins.filters):
            passed = plugin.passes(shape, self._cluster, left)
            opinion.verdict[left[np.logical_not(passed)]] = index
            left = left[passed]
            if not len(left):
                return
        opinion.score[left] = sum(
            scorer.weight * scorer.score(shape, self._cluster, left) for scorer in self._plugins.scores
        )

    def explain(self, pod: PodRequest, excluded: Collection[str] = ()) -> NoChoice:
        """Why each node refuses; nodes that would take the pod are in no group."""
        cluster, shape = self._cluster, pod.shape
        opinion, alive = self._opinion(shape), cluster.alive_rows()
        verdicts = opinion.verdict[alive]
        groups: list[RefusalGroup] = []
        for index, plugin in enumerate(self._plugins.filters):
            refused = alive[verdicts == index]
            if len(refused):
                groups.extend(plugin.summarise(shape, cluster, refused))
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

    def why_not(self, pod: PodRequest, node: str) -> tuple[Refusal, ...]:
        """Every filter that objects to this node, not only the first."""
        row = self._cluster.rows[node]
        single = np.array([row])
        found = [
            plugin.refuse(pod.shape, self._cluster, row)
            for plugin in self._plugins.filters
            if not plugin.passes(pod.shape, self._cluster, single)[0]
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
    return (RefusalGroup(refusal.code, len(rows), refusal.message, cluster.name(row), refusal.helps),)
