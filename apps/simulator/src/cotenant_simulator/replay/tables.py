"""CSV files row by row, packed or not: whole numbers and decimals exactly, broken rows counted and named."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeVar

from cotenant_gateway.core.validate.schema import MAX_AMOUNT, did_you_mean
from cotenant_simulator.replay.model import LeftOut, TraceError
from cotenant_simulator.traces import open_text

T = TypeVar("T")

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)
_MS: Final = 1_000
SUFFIXES: Final = (".csv", ".csv.gz")


class BrokenRowError(ValueError):
    """One row cannot be used."""


class LeftOutError(ValueError):
    """A sound row that the replay does without, and why."""


@dataclass(frozen=True, slots=True)
class Row:
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        return self.cells[column].strip()

    def number(self, column: str) -> Fraction:
        """Exactly as written. Raise BrokenRowError."""
        text = self.text(column)
        if _NUMBER.fullmatch(text) is None:
            raise BrokenRowError(f"{column} is no number")
        return Fraction(text)

    def amount(self, column: str) -> Fraction:
        found = self.number(column)
        if found < 0:
            raise BrokenRowError(f"{column} is negative")
        if found > MAX_AMOUNT:
            raise BrokenRowError(f"{column} is beyond all measure")
        return found

    def whole(self, column: str, low: int = 0) -> int:
        found = self.number(column)
        if found.denominator != 1 or found < low:
            raise BrokenRowError(f"{column} is no whole number from {low}")
        return int(found)

    def seconds_ms(self, column: str) -> int:
        return round(self.amount(column) * _MS)

    def optional_ms(self, column: str) -> int | None:
        return self.seconds_ms(column) if self.text(column) else None


def header_of(path: Path) -> list[str]:
    """Raise TraceError when it is no readable table."""
    return head(path)[0]


Head = tuple[list[str], dict[str, str]]
"""The names of the columns, and the first row."""


def head(path: Path) -> Head:
    """Raise TraceError when it is no readable table."""
    try:
        with open_text(path) as stream:
            reader = csv.reader(stream)
            names = [name.strip() for name in next(reader, [])]
            return names, dict(zip(names, next(reader, []), strict=False))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as problem:
        raise TraceError(f"{path}: cannot be read: {problem}") from problem


def need(path: Path, header: Sequence[str], columns: Iterable[str]) -> None:
    """Raise TraceError that names the first column which is not there."""
    for column in columns:
        if column not in header:
            hint = did_you_mean(column, header)
            there = ", ".join(name or "''" for name in header[:12])
            raise TraceError(f"{path}:1: no column {column!r}{hint}; its columns are {there}")


def rows(path: Path, columns: Iterable[str], left_out: LeftOut) -> Iterator[Row]:
    """Raise TraceError when a column is missing or the file breaks off."""
    need(path, header_of(path), columns)
    try:
        with open_text(path) as stream:
            reader = csv.reader(stream)
            header = [name.strip() for name in next(reader)]
            for cells in reader:
                if len(cells) == len(header):
                    yield Row(reader.line_num, dict(zip(header, cells, strict=True)))
                elif cells:
                    left_out.add(f"{path.name}:{reader.line_num}", f"broken row: not {len(header)} cells")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as problem:
        raise TraceError(f"{path}: cannot be read on: {problem}") from problem


def converted(path: Path, columns: Iterable[str], left_out: LeftOut, convert: Callable[[Row], T]) -> Iterator[T]:
    """What each row stands for. A row that says something impossible is left out and counted, never guessed at."""
    for row in rows(path, columns, left_out):
        try:
            item = convert(row)
        except BrokenRowError as problem:
            left_out.add(f"{path.name}:{row.line}", f"broken row: {problem}")
        except LeftOutError as problem:
            left_out.add(f"{path.name}:{row.line}", str(problem))
        else:
            yield item


def label(text: str, fallback: str) -> str:
    """A part of an object's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or fallback
