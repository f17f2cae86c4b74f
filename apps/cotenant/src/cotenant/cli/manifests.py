"""Manifest files on their way to the gateway: found, checked for YAML, kept as text."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cotenant.errors import BadInputError

if TYPE_CHECKING:
    import yaml

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_SEPARATOR: Final = "\n---\n"


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document, as text: the gateway must see numbers as they were written. ``line`` counts from 1."""

    source: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}"


def read_documents(paths: Sequence[str]) -> list[Document]:
    """Every document of files, directories and ``-``. Raise BadInputError with file and line."""
    documents = [document for source, text in _sources(paths) for document in split(source, text)]
    if not documents:
        raise BadInputError(f"no object in {', '.join(paths)}")
    return documents


def _sources(paths: Sequence[str]) -> Iterable[tuple[str, str]]:
    for name in paths:
        if name == "-":
            yield "stdin", sys.stdin.read()
            continue
        path = Path(name)
        if path.is_dir():
            files = sorted(entry for entry in path.rglob("*") if entry.suffix in _SUFFIXES and entry.is_file())
            if not files:
                raise BadInputError(f"{name}: no {', '.join(_SUFFIXES)} file in this directory")
            yield from ((str(file), _read(file)) for file in files)
        else:
            yield name, _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: not UTF-8 text (byte {error.start})") from error


def split(source: str, text: str) -> list[Document]:
    """Cut at document boundaries as YAML sees them, so that ``---`` inside a block scalar stays what it is."""
    import yaml  # noqa: PLC0415 - slow to import

    documents: list[Document] = []
    start: int | None = None
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.DocumentStartEvent):
                start = None
            elif isinstance(event, yaml.DocumentEndEvent) and start is not None:
                lines = text.splitlines(keepends=True)[start : _end_line(event)]
                # Blanked rather than dropped, so that line numbers stay those of the file.
                body = "".join("\n" if line.rstrip() in ("---", "...") else line for line in lines).rstrip("\n")
                documents.append(Document(source, start + 1, body))
            elif start is None and not isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent):
                empty = isinstance(event, yaml.ScalarEvent) and event.value == ""
                start = None if empty or event.start_mark is None else event.start_mark.line
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        raise BadInputError(f"{source}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise BadInputError(f"{source}: not YAML: {error}") from error
    return documents


def _end_line(event: "yaml.Event") -> int:
    mark = event.end_mark
    assert mark is not None  # noqa: S101 - the parser marks every event it reads from text
    return mark.line + (mark.column > 0)


def join(documents: Sequence[Document]) -> str:
    """One stream for one request: all objects or none."""
    return _SEPARATOR.join(document.text for document in documents)


def place_of(documents: Sequence[Document], line: int | None) -> str:
    """File and line of a line of the joined stream."""
    if line is None:
        return documents[0].source if len({document.source for document in documents}) == 1 else "input"
    start = 1
    for document in documents:
        end = start + document.text.count("\n")
        if line <= end:
            return f"{document.source}:{document.line + line - start}"
        start = end + _SEPARATOR.count("\n")
    return f"line {line}"


def load(document: Document) -> dict[str, Any]:
    """The object of one document, for reading its kind and name only."""
    import yaml  # noqa: PLC0415

    value = yaml.safe_load(document.text)
    if not isinstance(value, dict):
        raise BadInputError(f"{document.place}: expected an object with apiVersion, kind and metadata")
    return value


def identity(document: Document) -> tuple[str, str | None, str]:
    """(kind, namespace, name) of a document. Raise BadInputError."""
    value = load(document)
    metadata = value.get("metadata")
    if not isinstance(value.get("kind"), str) or not isinstance(metadata, dict) or not metadata.get("name"):
        raise BadInputError(f"{document.place}: expected kind and metadata.name")
    return value["kind"], metadata.get("namespace"), str(metadata["name"])
