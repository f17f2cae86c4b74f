"""Growable numpy columns over node rows, and label values as small integers, so that filters see whole vectors."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int32]
Hashes = NDArray[np.uint64]
Rows = NDArray[np.intp]

UNSET: Final = -1
"""No value, in columns whose values are never negative. Unset is not zero."""
ABSENT: Final = 0
"""Code of a label that a node does not carry."""


_LOGGED: Final = 4096


def grown(column: NDArray[Any], size: int, fill: int) -> NDArray[Any]:
    bigger = np.full(size, fill, dtype=column.dtype)
    bigger[: len(column)] = column
    return bigger


def widened(matrix: NDArray[Any], size: int, fill: int) -> NDArray[Any]:
    """The same for columns that are the last axis of something larger."""
    bigger = np.full((*matrix.shape[:-1], size), fill, dtype=matrix.dtype)
    bigger[..., : matrix.shape[-1]] = matrix
    return bigger


class RowLog:
    """Which rows changed, in order. A reader remembers ``count`` and later asks for what came after it."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: Rows = np.zeros(_LOGGED, dtype=np.intp)

    def add(self, row: int) -> None:
        self._rows[self.count % _LOGGED] = row
        self.count += 1

    def since(self, count: int) -> Rows | None:
        """May name a row twice. None when that is longer ago than the log reaches: then everything may have changed."""
        behind = self.count - count
        if behind > _LOGGED:
            return None
        start, end = count % _LOGGED, self.count % _LOGGED
        if behind == 0:
            return self._rows[:0]
        return self._rows[start:end] if start < end else np.concatenate([self._rows[start:], self._rows[:end]])


class LabelColumns:
    """One column of value codes per label key. Codes are given in order of appearance and never reused."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._codes: dict[str, Codes] = {}
        self._values: dict[str, list[str | None]] = {}
        self._code_of: dict[str, dict[str, int]] = {}

    def grow(self, size: int) -> None:
        self._size = size
        self._codes = {key: grown(column, size, ABSENT) for key, column in self._codes.items()}

    def set(self, row: int, key: str, value: str | None) -> None:
        if key not in self._codes:
            if value is None:
                return
            self._codes[key] = np.zeros(self._size, dtype=np.int32)
            self._values[key] = [None]
            self._code_of[key] = {}
        self._codes[key][row] = ABSENT if value is None else self._intern(key, value)

    def _intern(self, key: str, value: str) -> int:
        codes = self._code_of[key]
        if value not in codes:
            codes[value] = len(self._values[key])
            self._values[key].append(value)
        return codes[value]

    def codes(self, key: str, rows: Rows) -> Codes:
        column = self._codes.get(key)
        return np.zeros(len(rows), dtype=np.int32) if column is None else column[rows]

    def value(self, key: str, row: int) -> str | None:
        column = self._codes.get(key)
        return None if column is None else self._values[key][column[row]]

    def value_of(self, key: str, code: int) -> str | None:
        return self._values.get(key, [None])[code]

    def code_count(self, key: str) -> int:
        return len(self._values.get(key, (None,)))

    def matching(self, key: str, rows: Rows, accepts: Callable[[str], bool], *, absent: bool) -> Bools:
        """Test each distinct value among the rows once, whatever the number of nodes."""
        values = self._values.get(key, [None])
        codes, places = np.unique(self.codes(key, rows), return_inverse=True)
        verdicts = [absent if (value := values[code]) is None else accepts(value) for code in codes]
        found: Bools = np.array(verdicts, dtype=np.bool_)[places]
        return found
