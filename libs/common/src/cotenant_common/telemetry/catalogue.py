"""The metrics that the sources declare. The call that makes an instrument is its declaration:

``metrics.counter("cotenant_quota_publications_total", "Tree states published")``, and ``gauge``, ``histogram``,
``observe`` and ``observe_gauge`` alike. Name and description are literals (or a name for one in the same file); labels
are the keys of the literal maps given to ``add``, ``record`` and ``set`` of the attribute that holds it.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

METRICS_PATH: Final = "docs/metrics.md"
PREFIX: Final = "cotenant_"
_KINDS: Final[Mapping[str, str]] = {
    "counter": "counter",
    "gauge": "gauge",
    "histogram": "histogram",
    "observe": "counter",
    "observe_gauge": "gauge",
}
_QUOTED: Final = re.compile(rf"[\"']{PREFIX}\w+[\"']")
"""Parsing every file would take seconds, and every file names our packages."""
_RECORDING: Final = frozenset({"add", "record", "set"})
_SOURCES: Final = ("libs/common/src", "services/*/src", "apps/*/src")
_HEAD: Final = "Made by `cotenant contracts write` from the calls that declare them; do not edit."


class CatalogueError(ValueError):
    """A metric is declared in a way that cannot be read; the text names file and line."""


@dataclass(frozen=True, slots=True)
class Declaration:
    name: str
    kind: str
    description: str
    labels: tuple[str, ...]
    package: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names that ``/metrics`` shows; a histogram has three."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


def find(root: Path) -> list[Declaration]:
    """Every metric below the repository's root, sorted by name. Raise CatalogueError."""
    found: dict[str, Declaration] = {}
    for pattern in _SOURCES:
        for source in sorted(root.glob(pattern)):
            for path in sorted(source.rglob("*.py")):
                for declared in read(path.read_text(encoding="utf-8"), path.relative_to(source).parts[0], str(path)):
                    found[declared.name] = _merged(found.get(declared.name), declared, path)
    return [found[name] for name in sorted(found)]


def _merged(earlier: Declaration | None, declared: Declaration, path: Path) -> Declaration:
    if earlier is None:
        return declared
    if (earlier.kind, earlier.description) != (declared.kind, declared.description):
        raise CatalogueError(f"{path}: {declared.name} is declared differently in {earlier.package}")
    labels = tuple(sorted({*earlier.labels, *declared.labels}))
    return Declaration(earlier.name, earlier.kind, earlier.description, labels, earlier.package)


def read(text: str, package: str, path: str = "<text>") -> list[Declaration]:
    """The metrics that one file declares. Raise CatalogueError."""
    if not _QUOTED.search(text):
        return []
    tree = ast.parse(text)
    holders = dict(_holders(tree))
    labels = _labels_by_holder(tree)
    literals = _literals(tree)
    found = []
    for call in _declaring_calls(tree, literals):
        kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name, description = (_text(argument, literals) for argument in call.args[:2])
        if name is None or description is None:
            raise CatalogueError(f"{path}:{call.lineno}: expected name and description of a metric as literals")
        own = {"kind"} if kind in {"observe", "observe_gauge"} else labels.get(holders.get(id(call), ""), set())
        found.append(Declaration(name, _KINDS[kind], description, tuple(sorted({"service", *own})), package))
    return found


def _holders(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """For each call that is assigned, the attribute or name that holds what it gave."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute | ast.Name):
                    yield id(node.value), target.attr if isinstance(target, ast.Attribute) else target.id


def _labels_by_holder(tree: ast.AST) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _RECORDING:
            holder = node.func.value
            name = getattr(holder, "attr", getattr(holder, "id", ""))
            for argument in node.args[1:]:
                if isinstance(argument, ast.Dict):
                    keys = {key.value for key in argument.keys if isinstance(key, ast.Constant)}
                    found.setdefault(name, set()).update(str(key) for key in keys)
    return found


def _literals(tree: ast.AST) -> dict[str, str]:
    """Names that are bound to one text in this file."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                    found[target.id] = node.value.value
    return found


def _declaring_calls(tree: ast.AST, literals: Mapping[str, str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KINDS:
            first = _text(node.args[0], literals) if len(node.args) >= 2 else None
            if first is not None and first.startswith(PREFIX):
                yield node


def _text(node: ast.expr, literals: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return literals.get(node.id) if isinstance(node, ast.Name) else None


def render(declared: Sequence[Declaration]) -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.description} |"
        for each in declared
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            _HEAD,
            "",
            "Every process serves them as Prometheus text on `/metrics` of its health port, beside the `process_*` and "
            "`python_*` of the client library. `service` is the service; all other labels come from closed sets, never "
            "a pod. A histogram has the series `_bucket`, `_count` and `_sum`. Alerts: "
            "[`deploy/prometheus/alerts.yaml`](../deploy/prometheus/alerts.yaml), what to do: [runbook](runbook.md).",
            "",
            "| name | kind | labels | meaning |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
