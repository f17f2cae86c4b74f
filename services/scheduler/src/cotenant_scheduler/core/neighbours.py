"""Placed pods as other pods look at them: who is where by labels, and whose anti-affinity keeps others away."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.columns import Ints, widened
from cotenant_scheduler.core.request import PodTerm
from cotenant_scheduler.core.selectors import LabelSelector

_WATCHED: Final = 256

_Kind = tuple[LabelSelector | None, tuple[str, ...] | None]


class Neighbours:
    """Matching pods per node row are counted once when a term is first asked for, and kept up by every charge after."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._by_namespace: dict[str, dict[str, Charge]] = {}
        self._row_of: dict[str, int] = {}
        self._watched: OrderedDict[_Kind, tuple[PodTerm, Ints]] = OrderedDict()
        self._repelling: dict[PodTerm, tuple[dict[str, Charge], Ints]] = {}

    def grow(self, size: int) -> None:
        self._size = size
        for kind, (term, counts) in self._watched.items():
            self._watched[kind] = term, widened(counts, size, 0)
        for term, (holders, counts) in self._repelling.items():
            self._repelling[term] = holders, widened(counts, size, 0)

    def add(self, charge: Charge, row: int) -> None:
        self._by_namespace.setdefault(charge.namespace, {})[charge.uid] = charge
        self._row_of[charge.uid] = row
        self._count(charge, row, +1)
        for term in charge.anti_affinity:
            if term not in self._repelling:
                self._repelling[term] = {}, np.zeros(self._size, dtype=np.int64)
            holders, counts = self._repelling[term]
            holders[charge.uid] = charge
            counts[row] += 1

    def remove(self, charge: Charge, row: int) -> None:
        self._by_namespace.get(charge.namespace, {}).pop(charge.uid, None)
        del self._row_of[charge.uid]
        self._count(charge, row, -1)
        for term in charge.anti_affinity:
            holders, counts = self._repelling[term]
            holders.pop(charge.uid, None)
            counts[row] -= 1
            if not counts.any():
                del self._repelling[term]

    def _count(self, charge: Charge, row: int, sign: int) -> None:
        if not self._watched:
            return
        labels = dict(charge.labels)
        for term, counts in self._watched.values():
            if term.matches(charge.namespace, labels):
                counts[row] += sign

    @property
    def repelling(self) -> Mapping[PodTerm, tuple[Mapping[str, Charge], Ints]]:
        """Terms by which placed pods keep others away, with who holds them and how many of them per node row."""
        return self._repelling

    def counts(self, term: PodTerm) -> Ints:
        """Matching pods per node row."""
        kind = (term.selector, term.namespaces)
        known = self._watched.get(kind)
        if known is None:
            known = self._watched[kind] = term, np.zeros(self._size, dtype=np.int64)
            for charge in self.matching(term):
                known[1][self._row_of[charge.uid]] += 1
            if len(self._watched) > _WATCHED:
                self._watched.popitem(last=False)
        else:
            self._watched.move_to_end(kind)
        return known[1]

    def matching(self, term: PodTerm) -> Iterator[Charge]:
        namespaces = sorted(self._by_namespace) if term.namespaces is None else term.namespaces
        for namespace in namespaces:
            for charge in self._by_namespace.get(namespace, {}).values():
                if term.matches(namespace, dict(charge.labels)):
                    yield charge
