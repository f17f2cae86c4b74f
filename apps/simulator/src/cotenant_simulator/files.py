"""Results as tidy tables: one value per row, its unit in the name of its figure."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from cotenant_simulator.core.summary import flattened
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.trials import Result

_WHICH: Final = ("file", "scenario", "policy", "seed")
_SERIES: Final = (*_WHICH, "t_s", "figure", "of", "value")
_SUMMARY: Final = (*_WHICH, "figure", "value")
Cell = str | int | float | None
Row = tuple[Cell, ...]


def is_table(path: Path) -> bool:
    return path.suffix == ".csv"


def write_csv(path: Path, results: Sequence[Result]) -> list[Path]:
    """A name that ends in .csv is one file of both, told apart by ``table``; anything else a folder with two files.

    An empty value is *not known*. Raise ScenarioError.
    """
    if is_table(path):
        rows: Iterable[Row] = (
            *(("summary", *row[:4], None, row[4], None, row[5]) for row in summary_rows(results)),
            *(("series", *row) for row in series_rows(results)),
        )
        return [_write(path, ("table", *_SERIES), rows)]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    return [
        _write(path / "summary.csv", _SUMMARY, summary_rows(results)),
        _write(path / "series.csv", _SERIES, series_rows(results)),
    ]


def check_target(path: Path, *, folder: bool = False) -> None:
    """Before anything runs for minutes. Raise ScenarioError."""
    if folder and path.exists() and not path.is_dir():
        raise ScenarioError(str(path), None, "", "cannot be written: there is a file of that name, not a folder")
    if not folder and path.is_dir():
        raise ScenarioError(str(path), None, "", "cannot be written: it is a folder, expected a file")
    if not folder and not path.parent.is_dir():
        raise ScenarioError(str(path), None, "", f"cannot be written: there is no folder {path.parent}")


def write_text(path: Path, text: str) -> None:
    """Raise ScenarioError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _write(path: Path, header: Sequence[str], rows: Iterable[Row]) -> Path:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _unwritable(path: Path, error: OSError) -> ScenarioError:
    return ScenarioError(str(path), None, "", f"cannot be written: {error.strerror}")


def summary_rows(results: Sequence[Result]) -> Iterator[Row]:
    for one in results:
        for name, value in flattened(one.summary).items():
            yield (*_which(one), name, value)
        yield (*_which(one), "expectations.held", one.held)
        yield (*_which(one), "expectations.written", len(one.expectations))


def series_rows(results: Sequence[Result]) -> Iterator[Row]:
    for one in results:
        if one.series is not None:
            for t_ms, (name, of, value) in one.series.readings():
                yield (*_which(one), t_ms / 1_000, name, of, value)


def _which(one: Result) -> Row:
    return one.source, one.scenario, one.arm, one.seed
