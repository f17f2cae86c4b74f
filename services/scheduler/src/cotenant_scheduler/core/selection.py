"""The best few of all feasible nodes, ties by the pod's and the node's own hash."""

from typing import Final

import numpy as np

from cotenant_scheduler.core.columns import Hashes, Ints, Rows

SHOWN: Final = 5


def select(points: Ints, hashes: Hashes, mine: np.uint64) -> tuple[int, list[int]]:
    """How many rows are feasible, and the best five: by points, then by ``hash ^ mine``."""
    if not len(points):
        return 0, []
    feasible = int(np.count_nonzero(points >= 0))
    wanted = min(SHOWN, feasible)
    if not wanted:
        return 0, []
    best = np.flatnonzero(points == points.max())
    if len(best) < wanted:
        least = np.partition(points, len(points) - wanted)[len(points) - wanted]
        best = np.flatnonzero(points >= least)
    order = _first(hashes[best] ^ mine, points[best], wanted)
    return feasible, best[order].tolist()


def _first(keys: Hashes, points: Ints, wanted: int) -> Rows:
    order: Rows = np.lexsort((keys, -points))[:wanted]
    return order
