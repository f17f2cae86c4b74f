"""A replay as text."""

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant_simulator.core import durations
from cotenant_simulator.report import columns


def table(data: Mapping[str, Any]) -> str:
    parts = [_head(data), _figures(data), _left_out(data), *(f"note: {note}" for note in data["notes"])]
    if written := data.get("written"):
        parts.append(f"written: {', '.join(written)}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(data: Mapping[str, Any]) -> str:
    replayed = data["replayed"]
    rows = [
        (what, f"{count['used']:,}", f"{count['in_trace']:,}" if count["in_trace"] else "-")
        for what, count in replayed.items()
        if count["used"] or count["in_trace"]
    ]
    head = f"{data['trace']['family']}: {durations.show(data['virtual_ms'])} of virtual time"
    pace = f"1 s of it is {data['speed_up']} s of the trace"
    return f"{head}, {pace}\n\n{columns(('', 'REPLAYED', 'IN THE TRACE'), rows)}"


def _figures(data: Mapping[str, Any]) -> str:
    rows = [
        *_flat("jobs", data["jobs"]),
        *_flat("", data["summary"]),
        *_flat("told by the trace", data["told_by_trace"]),
    ]
    return columns(("FIGURE", "VALUE"), rows) if rows else ""


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{prefix} {name}".strip(), inner)
    elif value is not None:
        yield prefix, f"{value:,}" if isinstance(value, int | float) else str(value)


def _left_out(data: Mapping[str, Any]) -> str:
    rows = [(one["reason"], f"{one['count']:,}", ", ".join(one["first_at"])) for one in data["left_out"]]
    return columns(("LEFT OUT OF THE FILES", "COUNT", "FIRST AT"), rows) if rows else ""
