"""How quotas look in a terminal."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant.cli import output
from cotenant.cli.output import Column, Row
from cotenant_common.model import labels


def _amounts(name: str) -> Column:
    return Column(name.upper(), lambda row: output.resources(_some(row.get(name))))


def _some(amounts: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """Zeros say nothing in a table where most of it is zeros."""
    return {key: value for key, value in amounts.items() if value} if amounts else amounts


def _indented(row: Row) -> str:
    return "  " * int(row.get("depth") or 0) + str(row.get("name") or "")


_NUMBERS: Final = (
    Column("MIN", lambda row: output.resources(row.get("min"))),
    Column("MAX", lambda row: output.resources(row.get("max"))),
    Column("REQUEST", lambda row: output.resources(row.get("request"))),
    Column("USED", lambda row: output.resources(row.get("used"))),
    Column("RUNTIME", lambda row: output.resources(row.get("runtime"))),
    _amounts("borrowed"),
    _amounts("lent"),
    Column("STATE", lambda row: row.get("state")),
)
TREE_COLUMNS: Final = (Column("QUOTA", _indented), *_NUMBERS)
TOP_COLUMNS: Final = (Column("NAME", lambda row: str(row.get("name") or "")), *_NUMBERS)


def _written(row: Row, part: str, name: str) -> str | None:
    """Quantities in ``spec`` or ``status`` of a manifest, as they were written."""
    amounts = (row.get(part) or {}).get(name) or {}
    return ", ".join(f"{key.rpartition('/')[2]} {amounts[key]}" for key in sorted(amounts)) or None


OBJECT_COLUMNS: Final = (
    Column("PARENT", lambda row: _labels(row).get(labels.QUOTA_PARENT)),
    Column("MIN", lambda row: _written(row, "spec", "min")),
    Column("MAX", lambda row: _written(row, "spec", "max")),
    Column("USED", lambda row: _written(row, "status", "used")),
    Column("RUNTIME", lambda row: _written(row, "status", "runtime")),
    Column("STATE", lambda row: (row.get("status") or {}).get("state")),
    Column("REQUEST", lambda row: _written(row, "status", "request"), wide=True),
    Column("GUARANTEED", lambda row: _written(row, "status", "guaranteed"), wide=True),
    Column("PROBLEM", lambda row: (row.get("status") or {}).get("problem"), wide=True),
)


def _labels(row: Row) -> Mapping[str, str]:
    return (row.get("metadata") or {}).get("labels") or {}


def tree_rows(tree: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Quotas of one tree, children under their parent with their depth."""
    quotas = {str(quota["name"]): {**quota, **_lending(tree, str(quota["name"]))} for quota in tree.get("quotas") or ()}
    rows: list[dict[str, Any]] = []

    def visit(parent: str | None, depth: int) -> None:
        for name in sorted(quotas):
            found = quotas[name].get("parent")
            if (found if found in quotas else None) == parent:
                rows.append(quotas[name] | {"depth": depth, "state": _state(quotas[name])})
                visit(name, depth + 1)

    visit(None, 0)
    return rows


def _lending(tree: Mapping[str, Any], name: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {"borrowed": {}, "lent": {}}
    for loan in tree.get("loans") or ():
        for side, word in (("borrower", "borrowed"), ("lender", "lent")):
            if loan[side] == name:
                found[word][loan["resource"]] = found[word].get(loan["resource"], 0) + loan["amount"]
    return found


def _state(quota: Mapping[str, Any]) -> str:
    if quota.get("problem"):
        return "Detached"
    policy = quota.get("stop_policy") or "None"
    if policy != "None":
        return "Held" if policy == "Hold" else "Draining"
    return "Over" if quota.get("over_since_ms") is not None else "Open"


def loan_lines(tree: Mapping[str, Any]) -> Iterable[str]:
    """Who lends to whom now."""
    for loan in tree.get("loans") or ():
        amount = f"{output.exact(loan['resource'], loan['amount'])} {loan['resource']}"
        yield f"  {loan['borrower']} borrows {amount} from {loan['lender']}"
