"""What less important pods hold on each node, so that nodes where nothing can be won are passed over at one stroke."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant_common.model.resources import PODS
from cotenant_scheduler.core.columns import UNSET, Bools, Ints, Rows
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot

_KEPT: Final = 32


@dataclass(slots=True)
class _Sums:
    seen: int
    amounts: Ints
    pods: Ints


class Beneath:
    """Kept per priority, redone for the rows that were charged since: who waits costs those placed nothing."""

    def __init__(self, cluster: Snapshot) -> None:
        self._cluster = cluster
        self._known: OrderedDict[int, _Sums] = OrderedDict()

    def candidates(self, shape: Shape, priority: int, rows: Rows, *, count_resources: bool) -> Rows:
        """Rows that hold evictable pods beneath the priority, and would have room for the shape without them."""
        sums = self._sums(priority)
        able: Bools = sums.pods[rows] > 0
        for name, amount in shape.requests if count_resources else ():
            if amount > 0:
                able &= self._room(name, amount, sums, rows)
        return rows[able]

    def _room(self, name: str, amount: int, sums: _Sums, rows: Rows) -> Bools:
        cluster = self._cluster
        line = cluster.resources.lines.get(name)
        freed = sums.amounts[line][rows] if line is not None else 0
        allocatable = cluster.allocatable(name, rows)
        room: Bools = cluster.requested(name, rows) - freed + amount <= allocatable
        return room | (allocatable == UNSET) if name == PODS else room

    def _sums(self, priority: int) -> _Sums:
        cluster, known = self._cluster, self._known.get(priority)
        shape = cluster.resources.requested.shape
        log = cluster.charge_changes
        if known is None or known.amounts.shape != shape:
            blank = np.zeros(shape, dtype=np.int64), np.zeros(cluster.size, dtype=np.int64)
            known = self._known[priority] = _Sums(-1, *blank)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(priority)
        rows = log.since(known.seen) if known.seen >= 0 else None
        known.seen = log.count
        for row in range(cluster.extent) if rows is None else np.unique(rows).tolist():
            self._add_up(known, row, priority)
        return known

    def _add_up(self, sums: _Sums, row: int, priority: int) -> None:
        lines = self._cluster.resources.lines
        totals = [0] * len(sums.amounts)
        pods = 0
        for charge in self._cluster.placed[row].values():
            if charge.evictable and charge.priority < priority:
                pods += 1
                for name, amount in charge.requests.items():
                    totals[lines[name]] += amount
        sums.amounts[:, row] = totals
        sums.pods[row] = pods
