"""ScarceResourceAvoidance: pods that need no accelerator leave the nodes that have one to those that do."""

from collections.abc import Hashable

import numpy as np

from cotenant_scheduler.core.columns import Ints, Rows
from cotenant_scheduler.core.plugins.interface import Reads, ShapeScore
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot


class ScarceResourceAvoidance(ShapeScore):
    """(|others| − |scarce among them|) × 100 / |others|; others: what the node has and the pod does not ask for."""

    name = "ScarceResourceAvoidance"
    reads = Reads.FACTS

    def __init__(self, weight: int = 1, scarce: tuple[str, ...] = ()) -> None:
        self.weight = weight
        self.scarce = scarce

    def part(self, shape: Shape) -> Hashable:
        return tuple(name for name, amount in shape.requests if amount > 0)

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        asked = {name for name, amount in shape.requests if amount > 0}
        others: Ints = np.zeros(len(rows), dtype=np.int64)
        scarce: Ints = np.zeros(len(rows), dtype=np.int64)
        for name in cluster.resources.lines:
            if name not in asked:
                offered = cluster.allocatable(name, rows) > 0
                others += offered
                scarce += offered & (name in self.scarce)
        found: Ints = np.where(others * scarce > 0, (others - scarce) * 100 // np.maximum(others, 1), 100)
        return found
