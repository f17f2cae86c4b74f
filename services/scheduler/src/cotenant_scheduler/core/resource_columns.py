"""What nodes offer and what is charged to them: two matrices, one line per resource, one column per node row."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from cotenant_scheduler.core.columns import UNSET, Ints, Rows, widened

_FIRST_LINES: Final = 4


class ResourceColumns:
    """Lines are given in order of appearance and never reused; both matrices know the same names."""

    def __init__(self, size: int) -> None:
        self.lines: dict[str, int] = {}
        self.allocatable: Ints = np.full((_FIRST_LINES, size), UNSET, dtype=np.int64)
        self.requested: Ints = np.zeros((_FIRST_LINES, size), dtype=np.int64)
        self.largest = 0
        """No amount was ever larger; whoever calculates in floating point must know."""

    def grow(self, size: int) -> None:
        self.allocatable = widened(self.allocatable, size, UNSET)
        self.requested = widened(self.requested, size, 0)

    def line(self, name: str) -> int:
        found = self.lines.get(name)
        if found is not None:
            return found
        line = self.lines[name] = len(self.lines)
        if line >= len(self.allocatable):
            blank = np.zeros_like(self.requested)
            self.allocatable = np.vstack([self.allocatable, blank + UNSET])
            self.requested = np.vstack([self.requested, blank])
        return line

    def offer(self, row: int, amounts: Mapping[str, int]) -> None:
        """A name that is missing is not offered, which is not the same as nothing left of it."""
        for name in sorted(amounts):
            self.line(name)
        self.allocatable[:, row] = UNSET
        for name, amount in amounts.items():
            self.allocatable[self.lines[name], row] = amount
            self.largest = max(self.largest, amount)

    def move(self, row: int, amounts: Mapping[str, int], sign: int) -> None:
        for name, amount in amounts.items():
            line = self.lines.get(name)
            if line is None:
                line = self.line(name)
            total = self.requested.item(line, row) + sign * amount
            self.requested[line, row] = total
            self.largest = max(self.largest, total)

    def allocatable_at(self, name: str, rows: Rows) -> Ints:
        line = self.lines.get(name)
        return np.full(len(rows), UNSET, dtype=np.int64) if line is None else self.allocatable[line][rows]

    def requested_at(self, name: str, rows: Rows) -> Ints:
        line = self.lines.get(name)
        return np.zeros(len(rows), dtype=np.int64) if line is None else self.requested[line][rows]

    def allocatable_of(self, row: int) -> dict[str, int]:
        column = self.allocatable[:, row]
        return {name: int(column[line]) for name, line in self.lines.items() if column[line] != UNSET}

    def requested_of(self, row: int) -> dict[str, int]:
        column = self.requested[:, row]
        return {name: int(column[line]) for name, line in self.lines.items() if column[line]}
