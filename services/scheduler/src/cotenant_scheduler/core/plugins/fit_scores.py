"""How full a node would be: least or most allocated, balanced, and a strategy per resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from cotenant_common.model import resources
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_scheduler.core.columns import Ints, Rows
from cotenant_scheduler.core.plugins import kernels
from cotenant_scheduler.core.plugins.interface import Kernel, PluginSet, ShapeScore
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot

Strategy = Literal["LeastAllocated", "MostAllocated"]
_UNSTATED: Final[Mapping[str, int]] = {CPU: 100, MEMORY: 200 << 20}
"""What a pod that states no CPU or memory counts for in NodeResourcesFitPlus."""


class NodeResourcesFitScore(ShapeScore):
    """Percent left (least) or taken (most), averaged by weight over what the pod buys, under whatever name."""

    name = "NodeResourcesFit"

    def __init__(
        self, weight: int = 1, strategy: Strategy = "LeastAllocated", weights: Mapping[str, int] | None = None
    ) -> None:
        self.weight = weight
        self.strategy = strategy
        self.weights = {CPU: 1, MEMORY: 1} if weights is None else weights

    def kernel(self, plugins: PluginSet) -> Kernel | None:
        return kernels.offer(plugins)

    def bought(self, shape: Shape) -> list[tuple[str, int, int]]:
        return bought(shape, self.weights)

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        total: Ints = np.zeros(len(rows), dtype=np.int64)
        wanted = self.bought(shape)
        for name, amount, weight in wanted:
            total += weight * percent(self.strategy, name, amount, cluster, rows)
        return total // max(1, sum(weight for _, _, weight in wanted))


class BalancedAllocation(ShapeScore):
    """100 minus half the distance between the fullest and the emptiest dimension, in percent."""

    name = "NodeResourcesBalancedAllocation"

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def bought(self, shape: Shape) -> list[tuple[str, int, int]]:
        return bought(shape, _EVENLY)

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        fractions = np.array([_permille(name, amount, cluster, rows) for name, amount, _ in self.bought(shape)])
        spread: Ints = fractions.max(axis=0) - fractions.min(axis=0)
        return 100 - spread // 20


_EVENLY: Final[Mapping[str, int]] = {CPU: 1, MEMORY: 1}


def bought(shape: Shape, weights: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """(name, amount, weight) of what the pod requests among the weighted; native CPU and memory if it asks for none."""
    wanted = [
        (name, amount, weight)
        for name, amount in shape.requests
        if amount > 0 and (weight := weights.get(resources.NATIVE_OF.get(name, name), 0)) > 0
    ]
    return wanted or [(CPU, 0, 1), (MEMORY, 0, 1)]


def percent(strategy: Strategy, name: str, amount: int, cluster: Snapshot, rows: Rows) -> Ints:
    """Over-full counts nothing under either strategy."""
    allocatable = np.maximum(cluster.allocatable(name, rows), 0)
    used = cluster.requested(name, rows) + amount
    counted = (
        np.maximum(allocatable - used, 0) if strategy == "LeastAllocated" else np.where(used > allocatable, 0, used)
    )
    found: Ints = counted * 100 // np.maximum(allocatable, 1)
    return found


def _permille(name: str, amount: int, cluster: Snapshot, rows: Rows) -> Ints:
    allocatable = np.maximum(cluster.allocatable(name, rows), 1)
    used: Ints = (cluster.requested(name, rows) + amount) * 1000 // allocatable
    return np.minimum(used, 1000)


@dataclass(frozen=True, slots=True)
class PlusRule:
    strategy: Strategy = "LeastAllocated"
    weight: int = 1


@dataclass(frozen=True, slots=True)
class PlusRules:
    """By resource. Koordinator's NodeResourcesFitPlusArgs."""

    resources: Mapping[str, PlusRule] = field(default_factory=dict)


class NodeResourcesFitPlus(ShapeScore):
    """Each resource by a strategy of its own, so that GPUs are packed while CPU is spread."""

    name = "NodeResourcesFitPlus"

    def __init__(self, weight: int = 1, rules: PlusRules | None = None) -> None:
        self.weight = weight
        self.rules = rules or PlusRules()

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        """100 where no rule is about anything the pod asks for."""
        asked = {**_UNSTATED, **{name: amount for name, amount in shape.requests if amount > 0}}
        total: Ints = np.zeros(len(rows), dtype=np.int64)
        weights = 0
        for name, rule in sorted(self.rules.resources.items()):
            if name in asked:
                total += rule.weight * percent(rule.strategy, name, asked[name], cluster, rows)
                weights += rule.weight
        return total // weights if weights else total + 100
