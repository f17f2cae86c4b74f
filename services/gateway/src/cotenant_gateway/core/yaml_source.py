"""YAML and JSON text to plain data that still knows where each value stood.

A plain scalar becomes an integer, a boolean or null only where every reader agrees on it (``12``, ``true``, ``null``).
Everything else that YAML would turn into something clever (``0.1``, ``1e3``, ``010``, ``1:30``, ``yes``, dates) stays
the text that was written, so that a quantity is parsed exactly and from what the user saw.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

Path = tuple[str | int, ...]

_INTEGER: Final = re.compile(r"^-?(0|[1-9][0-9]{0,17})$", re.ASCII)
_WORDS: Final[Mapping[str, bool | None]] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "null": None, "Null": None, "NULL": None, "~": None, "": None,
}  # fmt: skip
# A few hundred bytes of nested aliases expand to gigabytes; real manifests stay far below both limits.
MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 64
MAX_TOTAL: Final = 2 * MAX_VALUES
"""Over all documents of one text: each could be a bomb of its own."""
_JSON_ESCAPE: Final = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)", re.IGNORECASE | re.DOTALL)
# libyaml is five times as fast and bounds nesting by itself; wheels have it, some distributions do not.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING_TAG: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "<<"


class SourceError(ValueError):
    """Text that is no YAML or JSON, or that cannot be an object."""

    def __init__(self, message: str, *, document: int | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.document = document
        self.line = line


@dataclass(frozen=True, slots=True)
class Document:
    """One object of the input; ``index`` counts from 1, lines too."""

    index: int
    data: Mapping[str, Any]
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line_of(self, path: Path) -> int | None:
        """Line of the value, or of the nearest parent that was written at all."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def load(text: str) -> list[Document]:
    """Every object of a multi-document stream, ``kind: List`` and JSON arrays flattened. Raise SourceError."""
    documents: list[Document] = []
    try:
        # JSON is YAML, except that YAML forbids tabs; one parser keeps the line numbers right for both.
        nodes = list(yaml.compose_all(_json_as_yaml(text) if _is_json(text) else text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise SourceError(_syntax(error), line=mark.line + 1 if mark else None) from error
    except yaml.YAMLError as error:
        raise SourceError(f"not valid YAML: {error}") from error
    except RecursionError as error:
        raise SourceError(f"more than {MAX_DEPTH} levels in one document") from error
    values = 0
    for node in nodes:
        if node is not None:
            values += _add(documents, node, MAX_TOTAL - values)
    return documents


def _json_as_yaml(text: str) -> str:
    """YAML forbids the surrogate pairs by which JSON spells what lies beyond 16 bits, such as emoji."""
    return _JSON_ESCAPE.sub(_escape, text.replace("\t", "  "))


def _escape(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    return chr(0x10000 + ((int(found[1], 16) & 0x3FF) << 10) + (int(found[2], 16) & 0x3FF))


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _syntax(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return f"not valid YAML: {', '.join(parts) or 'cannot be parsed'}"


def _add(documents: list[Document], node: yaml.Node, budget: int) -> int:
    """How many values it took of the budget."""
    builder = _Builder(len(documents) + 1, min(budget, MAX_VALUES))
    data = builder.build(node, (), 0)
    if data is None:
        return builder.values
    entries = _items(data, builder.document, node.start_mark.line + 1)
    width = len(entries[0][0]) if entries else 0
    lines_of: dict[Path, dict[Path, int]] = {}
    for path, line in builder.lines.items():
        lines_of.setdefault(path[:width], {})[path[width:]] = line
    for prefix, item in entries:
        documents.append(Document(len(documents) + 1, item, lines_of.get(prefix, {})))
    return builder.values


def _items(data: Any, index: int, line: int) -> Sequence[tuple[Path, Mapping[str, Any]]]:
    """(path, object) of a single object, an array or a ``kind: List``."""
    if isinstance(data, list):
        entries: list[tuple[Path, Any]] = [((at,), item) for at, item in enumerate(data)]
    elif isinstance(data, dict) and data.get("kind") == "List" and isinstance(data.get("items"), list):
        entries = [(("items", at), item) for at, item in enumerate(data["items"])]
    else:
        entries = [((), data)]
    for _, item in entries:
        if not isinstance(item, dict):
            raise SourceError(
                f"expected an object (a mapping with apiVersion and kind), got {_shape(item)}",
                document=index,
                line=line,
            )
    return entries


def _shape(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"the value {str(value)[:60]!r}"


class _Builder:
    def __init__(self, document: int, budget: int) -> None:
        self.document = document
        self.lines: dict[Path, int] = {}
        self.values = 0
        self._budget = budget

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self.values += 1
        line = node.start_mark.line + 1
        if self.values > self._budget or depth > MAX_DEPTH:
            raise SourceError(
                f"more than {MAX_VALUES} values or {MAX_DEPTH} levels in one document, or {MAX_TOTAL} in all; split it",
                document=self.document,
                line=line,
            )
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, at), depth + 1) for at, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key == _MERGE and not getattr(key_node, "style", None):
                merged |= self._merge(value_node, path, depth)
            elif key in own:
                raise SourceError(
                    f"the key {key!r} appears twice in one mapping; keep one of them",
                    document=self.document,
                    line=key_node.start_mark.line + 1,
                )
            else:
                self.lines[(*path, key)] = key_node.start_mark.line + 1
                own[key] = self.build(value_node, (*path, key), depth + 1)
        return {**merged, **own}

    def _merge(self, node: yaml.Node, path: Path, depth: int) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):  # the first source wins
            if not isinstance(source, yaml.MappingNode):
                raise SourceError("'<<' merges mappings only", document=self.document, line=node.start_mark.line + 1)
            merged |= self._mapping(source, path, depth + 1)
        return merged

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise SourceError(
                "a mapping's keys must be plain words", document=self.document, line=node.start_mark.line + 1
            )
        return str(node.value)


def _scalar(node: yaml.Node) -> str | int | bool | None:
    text = str(node.value)
    if getattr(node, "style", None) or node.tag == _STRING_TAG:
        return text
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if _INTEGER.match(text) else text


def from_data(objects: Sequence[Mapping[str, Any]]) -> list[Document]:
    """Objects that never were text, such as those of another service; a float becomes its shortest text."""
    return [Document(at, _without_floats(item)) for at, item in enumerate(objects, start=1)]


def _without_floats(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _without_floats(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_floats(entry) for entry in value]
    return value
