"""What an importer is, and which one a file belongs to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from cotenant_simulator.replay.model import Defaults, Item, Site, TraceError
from cotenant_simulator.replay.tables import SUFFIXES, Head, head

ENTRY_POINTS: Final = "cotenant.traces"
Read = Callable[[Path, Site], Iterator[Item]]
Choose = Callable[[Sequence[Path]], Sequence[Path]]
Told = Callable[[Sequence[Path]], Mapping[str, Any]]


def all_of(files: Sequence[Path]) -> Sequence[Path]:
    return files


def nothing(_: Sequence[Path]) -> Mapping[str, Any]:
    return {}


def anything(_: Mapping[str, str]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of trace. ``columns``: a file that has them all is one of it. ``choose`` picks out of a folder what is
    replayed when nobody names a file; ``told`` are figures that the trace itself gives.
    """

    name: str
    columns: Sequence[frozenset[str]]
    read: Read
    defaults: Defaults
    choose: Choose = all_of
    told: Told = nothing
    notes: Sequence[str] = ()
    first_row: Callable[[Mapping[str, str]], bool] = anything
    """Tells it from a family with the same columns."""

    def owns(self, begins: Head) -> bool:
        header, first = begins
        return any(columns <= set(header) for columns in self.columns) and self.first_row(first)


def families() -> dict[str, Family]:
    """Ours, and those of installed packages; ours win a name."""
    from cotenant_simulator.replay.families import OURS  # noqa: PLC0415 - they need what this module defines

    found: dict[str, Family] = {}
    for point in entry_points(group=ENTRY_POINTS):
        family = point.load()
        if isinstance(family, Family):
            found[family.name] = family
    return found | {family.name: family for family in OURS}


@dataclass(frozen=True, slots=True)
class Source:
    family: Family
    files: Sequence[Path]


def find(path: Path, name: str | None) -> Source:
    """By the columns of a file, or of the first known file of a folder. Raise TraceError."""
    known = families()
    if name is not None and name not in known:
        raise TraceError(f"--format: expected one of {', '.join(sorted(known))}, got {name!r}")
    wanted = list(known.values()) if name is None else [known[name]]
    if path.is_dir():
        return _in_folder(path, wanted)
    if not path.is_file():
        raise TraceError(f"{path}: no such file or folder")
    return Source(_of_file(path, wanted), [path])


def _of_file(path: Path, wanted: Sequence[Family]) -> Family:
    if len(wanted) == 1:
        return wanted[0]
    begins = head(path)
    for family in wanted:
        if family.owns(begins):
            return family
    columns = ", ".join(begins[0][:8]) or "none"
    raise TraceError(
        f"{path}:1: no known trace has these columns: {columns}; known are {', '.join(sorted(families()))}. "
        "For another trace say --format columns and --column"
    )


def _in_folder(path: Path, wanted: Sequence[Family]) -> Source:
    found = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
    tables = {file: head(file) for file in found}
    for begins in tables.values():
        for family in wanted:
            if family.owns(begins):
                return Source(family, family.choose([file for file, other in tables.items() if family.owns(other)]))
    raise TraceError(
        f"{path}: expected tables of a known trace ({', '.join(SUFFIXES)}), got {len(tables)} tables, none known"
    )
