"""An outcome as text, the same to the byte for the same outcome."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cotenant_common.model import resources
from cotenant_common.model.resources import CPU
from cotenant_simulator.core import durations
from cotenant_simulator.core.checks import Verdict, describe
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.core.summary import flattened
from cotenant_simulator.hosting import Trouble

_MOST_PODS: Final = 60
_MOST_TROUBLES: Final = 10


def as_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_table(
    scenario: Scenario, data: Mapping[str, Any], verdicts: Sequence[Verdict], troubles: Sequence[Trouble]
) -> str:
    parts = [
        f"{scenario.name}: {durations.show(data['virtual_ms'])} of virtual time, seed {scenario.seed}",
        _pods(data["pods"]),
        _nodes(data["nodes"]),
        _quotas(data["quotas"]),
        _events(data["events"]),
        _summary(data["summary"]),
        _verdicts(scenario, verdicts),
        _notes(scenario, troubles),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned, two spaces apart, nothing after the last column."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines)


def _text(value: Any) -> str:
    return "-" if value in (None, "") else str(value)


def _pods(pods: Mapping[str, Mapping[str, Any]]) -> str:
    if not pods:
        return ""
    rows = [
        (name, pod["phase"], _text(pod["node"]), _text(pod["reason"]), str(pod["incarnation"]), _text(pod["qos"]))
        for name, pod in pods.items()
    ]
    left = len(rows) - _MOST_PODS
    more = f"\n… and {left} more" if left > 0 else ""
    return columns(("POD", "PHASE", "NODE", "REASON", "INCARNATION", "QOS"), rows[:_MOST_PODS]) + more


def _amounts(values: Mapping[str, int | None] | None) -> str:
    known = {name: value for name, value in (values or {}).items() if value is not None}
    return resources.describe(known) if known else "-"


def _nodes(nodes: Mapping[str, Mapping[str, Any]]) -> str:
    if not nodes:
        return ""
    rows = [
        (
            name,
            _text(node["classification"]),
            _percent(node["usage"][CPU], (node["allocatable"] or {}).get(CPU)),
            _amounts({key: value for key, value in node["requested"].items() if value}),
            _amounts(node["batch"]),
        )
        for name, node in nodes.items()
    ]
    return columns(("NODE", "STATE", "CPU", "REQUESTED", "BATCH"), rows)


def _percent(part: int | None, whole: int | None) -> str:
    return "-" if part is None or not whole else f"{100 * part // whole}%"


def _quotas(quotas: Mapping[str, Mapping[str, Any]]) -> str:
    if not quotas:
        return ""
    fields = ("min", "max", "request", "used", "runtime")
    rows = [(name, *(_amounts(quota[field]) for field in fields)) for name, quota in quotas.items()]
    return columns(("QUOTA", *(field.upper() for field in fields)), rows)


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    counted = Counter((event["type"], event["reason"] or "-") for event in events)
    rows = [(kind, reason, str(count)) for (kind, reason), count in sorted(counted.items())]
    return columns(("EVENT", "REASON", "COUNT"), rows) if rows else ""


def _summary(summary: Mapping[str, Any]) -> str:
    """What is known and not zero; the rest is in the JSON."""
    rows = [(name, f"{value:,}") for name, value in flattened(summary).items() if value]
    return columns(("FIGURE", "VALUE"), rows) if rows else ""


def _verdicts(scenario: Scenario, verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "nothing was expected"
    lines = [
        f"{'ok    ' if one.ok else 'FAILED'} {scenario.source}:{one.expectation.line} "
        f"at {durations.show(one.expectation.at_ms)}: {describe(one)}"
        for one in verdicts
    ]
    failed = sum(not one.ok for one in verdicts)
    return "\n".join([*lines, f"{len(verdicts) - failed} of {len(verdicts)} expectations hold"])


def _notes(scenario: Scenario, troubles: Sequence[Trouble]) -> str:
    lines = [f"warning: {warning}" for warning in scenario.warnings]
    lines += [
        f"logged as an error at {durations.show(one.t_ms)} by {one.service}: {one.event} {one.details}"
        for one in troubles[:_MOST_TROUBLES]
    ]
    if len(troubles) > _MOST_TROUBLES:
        lines.append(f"… and {len(troubles) - _MOST_TROUBLES} more")
    return "\n".join(lines)
