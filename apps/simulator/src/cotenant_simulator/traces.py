"""The tables that a scenario's manifests name, read once and in one pass each."""

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Final, TextIO

from cotenant_common.model import labels
from cotenant_gateway.core.validate.schema import did_you_mean, show
from cotenant_gateway.core.yaml_source import Document
from cotenant_gateway.core.yaml_source import Path as FieldPath
from cotenant_simulator.core import annotations
from cotenant_simulator.core.courses import Course, CourseBuilder, CourseError, TraceRef
from cotenant_simulator.core.scenario import Apply, Scenario
from cotenant_simulator.errors import ScenarioError

OpenTable = Callable[[str], AbstractContextManager[TextIO]]
"""The text of a table by the name that the scenario gives it. Raises OSError."""

_GZIP: Final = b"\x1f\x8b"
_ANNOTATED: Final[Sequence[FieldPath]] = (("metadata", "annotations"), ("spec", "template", "metadata", "annotations"))


@dataclass(frozen=True, slots=True)
class Mention:
    """Where a manifest of the scenario names a table."""

    ref: TraceRef
    document: Document
    path: FieldPath
    prefix: FieldPath

    def error(self, source: str, message: str) -> ScenarioError:
        return ScenarioError(source, self.document.line_of(self.path), show((*self.prefix, *self.path)), message)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A CSV file, packed or not: what its first bytes say counts, not its name."""
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if packed
        else path.open(encoding="utf-8-sig", newline="")
    ) as stream:
        yield stream


def in_folder(folder: Path) -> OpenTable:
    def opened(name: str) -> AbstractContextManager[TextIO]:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise PermissionError("a link leads out of the scenario's folder")
        return open_text(path)

    return opened


def in_memory(texts: Mapping[str, str]) -> OpenTable:
    @contextmanager
    def opened(name: str) -> Iterator[TextIO]:
        if name not in texts:
            raise FileNotFoundError("no such table")
        yield StringIO(texts[name], newline="")

    return opened


def with_courses(scenario: Scenario, open_table: OpenTable) -> Scenario:
    """The scenario with every table that it names. Raise ScenarioError."""
    by_file: dict[str, list[Mention]] = {}
    for mention in _mentions(scenario):
        by_file.setdefault(mention.ref.file, []).append(mention)
    courses: dict[TraceRef, Course] = {}
    for file, mentions in by_file.items():
        try:
            with open_table(file) as stream:
                courses |= _read(scenario.source, file, stream, mentions)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as problem:
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            raise mentions[0].error(scenario.source, f"{file} cannot be read: {reason}") from problem
    return replace(scenario, courses=courses)


def _mentions(scenario: Scenario) -> Iterator[Mention]:
    for index, document in enumerate(scenario.objects):
        yield from _of_document(document, ("spec", "objects", index))
    for entry in scenario.timeline:
        if isinstance(entry.verb, Apply):
            for index, document in enumerate(entry.verb.documents):
                yield from _of_document(document, ("apply", index))


def _of_document(document: Document, prefix: FieldPath) -> Iterator[Mention]:
    for path in _ANNOTATED:
        found: Any = document.data
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and labels.SIM_USAGE in found:
            for ref in annotations.read_sim_usage(str(found[labels.SIM_USAGE])).traced.values():
                yield Mention(ref, document, (*path, labels.SIM_USAGE), prefix)


def _read(source: str, file: str, stream: Iterable[str], mentions: Sequence[Mention]) -> dict[TraceRef, Course]:
    rows = csv.reader(stream)
    header = next(rows, [])
    builders = {mention.ref: (CourseBuilder(mention.ref), mention) for mention in mentions}
    places = [
        (builder, mention, _column(source, file, header, ref.column, mention), _time(source, file, header, mention))
        for ref, (builder, mention) in builders.items()
    ]
    for row in rows:
        line = rows.line_num
        for builder, mention, value_at, time_at in places:
            try:
                _whole(row, header, line)
                builder.add(line, row[value_at], None if time_at is None else row[time_at])
            except CourseError as problem:
                raise _told(source, file, mention, problem) from problem
    return {ref: _finished(source, file, builder, mention) for ref, (builder, mention) in builders.items()}


def _whole(row: Sequence[str], header: Sequence[str], line: int) -> None:
    if len(row) != len(header):
        raise CourseError(line, "", f"expected {len(header)} cells as in the header, got {len(row)}")


def _finished(source: str, file: str, builder: CourseBuilder, mention: Mention) -> Course:
    try:
        return builder.course()
    except CourseError as problem:
        raise _told(source, file, mention, problem) from problem


def _told(source: str, file: str, mention: Mention, problem: CourseError) -> ScenarioError:
    place = file if problem.line is None else f"{file}:{problem.line}"
    column = f" column {problem.column}:" if problem.column else ""
    return mention.error(source, f"{place}:{column} {problem}")


def _column(source: str, file: str, header: Sequence[str], name: str, mention: Mention) -> int:
    if name in header:
        return header.index(name)
    known = f"{', '.join(header[:8])}{', …' if len(header) > 8 else ''}" or "none"
    message = f"{file}:1: no column {name!r}{did_you_mean(name, header)}; its columns are {known}"
    raise mention.error(source, message)


def _time(source: str, file: str, header: Sequence[str], mention: Mention) -> int | None:
    return None if mention.ref.time is None else _column(source, file, header, mention.ref.time, mention)
