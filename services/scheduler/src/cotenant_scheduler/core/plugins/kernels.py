"""One piece of machine code for resource fit and measured load, the two rules every placement makes dirty.

What it computes is what ``NodeFit``, ``LoadAware``, ``NodeResourcesFitScore`` and ``BalancedAllocation`` compute; a
property test compares the two bit by bit. Compiling needs numba, which costs some 100 MiB and seconds at first use,
so it is imported only when a kernel is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_scheduler.core.columns import Hashes, Ints, Rows
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.selection import SHOWN
from cotenant_scheduler.core.snapshot import Snapshot

if TYPE_CHECKING:
    from cotenant_scheduler.core.plugins.fit_scores import BalancedAllocation, NodeResourcesFitScore
    from cotenant_scheduler.core.plugins.interface import PluginSet
    from cotenant_scheduler.core.plugins.load_aware import LoadAware

_EXACT: Final = 1 << 42
"""Times 1,000, twice that is still a whole number in a double, and so is every quotient's floor."""
_HIGHEST_LIMIT: Final = 1_000
_ALL: Final[Rows] = np.zeros(0, dtype=np.intp)

Floats = NDArray[np.float64]


def offer(plugins: PluginSet) -> FitAndLoad | None:
    """None when the set differs from what was compiled, or numba is not installed."""
    found = _Parts.of(plugins)
    if found is None:
        return None
    try:
        from cotenant_scheduler.core.plugins import fused  # noqa: PLC0415 - numba is loaded only where it pays
    except ImportError:
        return None
    return FitAndLoad(found, fused)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The built-in plugins of a set that share the kernel; a subclass has rules of its own and shares nothing."""

    load_filter: bool
    load: LoadAware | None
    fit: NodeResourcesFitScore | None
    balanced: BalancedAllocation | None

    @classmethod
    def of(cls, plugins: PluginSet) -> _Parts | None:
        from cotenant_scheduler.core.plugins.fit_scores import (  # noqa: PLC0415 - they import this module
            BalancedAllocation,
            NodeResourcesFitScore,
        )
        from cotenant_scheduler.core.plugins.interface import Reads  # noqa: PLC0415
        from cotenant_scheduler.core.plugins.load_aware import LoadAware  # noqa: PLC0415
        from cotenant_scheduler.core.plugins.node_fit import NodeFit  # noqa: PLC0415

        live = [type(each) for each in plugins.filters if each.reads is Reads.ALL]
        load_filter = LoadAware in live
        if live[: 1 + load_filter] != [NodeFit, LoadAware][: 1 + load_filter]:
            return None
        names = ("LoadAwareScheduling", "NodeResourcesFit", "NodeResourcesBalancedAllocation")
        mine = [each for each in plugins.scores if each.name in names]
        load = [each for each in mine if type(each) is LoadAware]
        fit = [each for each in mine if type(each) is NodeResourcesFitScore]
        balanced = [each for each in mine if type(each) is BalancedAllocation]
        if len(load) + len(fit) + len(balanced) != len(mine) or max(len(load), len(fit), len(balanced)) > 1:
            return None
        return cls(load_filter, next(iter(load), None), next(iter(fit), None), next(iter(balanced), None))

    def names(self) -> frozenset[str]:
        found = {"NodeResourcesFit"}
        found |= {"LoadAwareScheduling"} if self.load_filter or self.load else set()
        found |= {"NodeResourcesBalancedAllocation"} if self.balanced else set()
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Job:
    """A shape as the machine code takes it. ``fused`` says what is where in ``terms``."""

    cluster: Snapshot
    asks: int
    pods_line: int
    terms: Floats
    first: int


class FitAndLoad:
    def __init__(self, parts: _Parts, fused: Any) -> None:
        self.covers = parts.names()
        self._parts = parts
        self._fused = fused
        self._best = np.zeros(SHOWN, dtype=np.intp)

    def exact(self, cluster: Snapshot) -> bool:
        load = cluster.load
        return cluster.resources.largest < _EXACT and load.largest < _EXACT and load.highest_limit <= _HIGHEST_LIMIT

    def prepare(self, shape: Shape, cluster: Snapshot, first: int) -> _Job | None:
        parts, line = self._parts, cluster.resources.line
        needs = [(name, amount, 0) for name, amount in shape.requests if amount > 0]
        fit = parts.fit.bought(shape) if parts.fit is not None else []
        balanced = parts.balanced.bought(shape) if parts.balanced is not None else []
        terms = [len(needs), len(fit), len(balanced)]
        terms += self._load_terms(shape, cluster)
        terms += self._fit_terms(fit)
        for name, amount, weight in (*needs, *fit, *balanced):
            terms += (line(name), amount, weight)
        if max(terms) >= _EXACT:
            return None
        return _Job(cluster, int(shape.is_prod), line(PODS), np.array(terms, dtype=np.float64), first)

    def _load_terms(self, shape: Shape, cluster: Snapshot) -> list[int]:
        """Whether the filter is on, the estimate, weights and divisor of the score, the plugin's own weight."""
        policy, load = cluster.load.policy, self._parts.load
        cpu, memory = policy.weights.get(CPU, 0), policy.weights.get(MEMORY, 0)
        divisor = max(1, cpu + memory + policy.dominant_weight)
        judged = self._parts.load_filter and not shape.is_daemon
        own = load.weight if load is not None else 0
        return [judged, *shape.estimate.used, cpu, memory, policy.dominant_weight, divisor, own]

    def _fit_terms(self, fit: list[tuple[str, int, int]]) -> list[int]:
        """The fit score's divisor, whether it packs, its weight; the balanced score's weight."""
        parts = self._parts
        packs = parts.fit is not None and parts.fit.strategy == "MostAllocated"
        divisor = max(1, sum([weight for _, _, weight in fit]))
        own = parts.fit.weight if parts.fit is not None else 0
        return [divisor, packs, own, parts.balanced.weight if parts.balanced is not None else 0]

    def refresh(
        self,
        job: _Job,
        rows: Rows | None,
        base: tuple[NDArray[np.int8], Ints],
        found: tuple[NDArray[np.int8], Ints],
    ) -> None:
        load, resources = job.cluster.load, job.cluster.resources
        self._fused.refresh(
            job.cluster.extent if rows is None else 0,
            _ALL if rows is None else rows,
            *base,
            *found,
            resources.allocatable,
            resources.requested,
            load.capacity,
            load.judged,
            load.limit,
            load.scored,
            load.gate,
            load.fresh,
            job.asks,
            job.pods_line,
            job.terms,
            job.first,
        )

    def select(self, points: Ints, hashes: Hashes, mine: np.uint64) -> tuple[int, list[int]]:
        feasible: int = self._fused.select(points, hashes, mine, self._best)
        return feasible, self._best[: min(feasible, SHOWN)].tolist()
