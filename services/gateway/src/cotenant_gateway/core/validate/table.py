"""``docs/fields.md``: what happens to every field, from the same schema that validates."""

from collections.abc import Iterator
from typing import Final

from cotenant_gateway.core.validate.kinds import KINDS
from cotenant_gateway.core.validate.meta import METADATA
from cotenant_gateway.core.validate.podspec import POD_SPEC
from cotenant_gateway.core.validate.schema import Field, Listing, Shape, Type

_HEAD = """# Fields

Generated from the schema that validates. *Used*: acted on. *Kept*: stored for readers. *Ignored*: accepted with a
warning that gives the reason. *Refused*: an error that gives the reason. A field that is not listed is unknown and an
error.
"""


_SHARED: Final = {"Metadata": METADATA, "Pod spec": POD_SPEC}
"""Listed once; every kind refers to them."""


def fields_markdown() -> str:
    parts = [_HEAD]
    for title, shape in _SHARED.items():
        parts += [f"\n## {title}\n", *_table(shape)]
    for name in sorted(KINDS):
        kind = KINDS[name]
        scope = "in a namespace" if kind.namespaced else "cluster-wide"
        parts += [f"\n## {name}\n\n`{', '.join(kind.api_versions)}`, {scope}.\n", *_table(kind.shape)]
    return "\n".join(parts) + "\n"


def _table(shape: Shape) -> list[str]:
    rows = [_row(path, f) for path, f in _walk(shape, "")]
    return ["| field | value | decision | note |", "|---|---|---|---|", *rows]


def _row(path: str, f: Field) -> str:
    note = "; ".join(filter(None, ["required" if f.required else "", f.why])) or "–"
    shared = next((title for title, shape in _SHARED.items() if shape is f.type), None)
    value = f"see {_link(shared)}" if shared else f.type.describe()
    return f"| `{path}` | {value} | {f.decision} | {note} |"


def _link(title: str) -> str:
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _walk(shape: Shape, prefix: str) -> Iterator[tuple[str, Field]]:
    for f in shape.fields:
        path = f"{prefix}{f.name}"
        yield path, f
        inner, suffix = _inner(f.type)
        if inner is not None and inner not in _SHARED.values():
            yield from _walk(inner, f"{path}{suffix}.")


def _inner(kind: Type) -> tuple[Shape | None, str]:
    if isinstance(kind, Shape):
        return kind, ""
    if isinstance(kind, Listing) and isinstance(kind.item, Shape):
        return kind.item, "[]"
    return None, ""
