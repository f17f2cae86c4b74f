"""What a scenario expects: read from the file, and compared with an outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.contracts.messages.events import EVENT_TYPES
from cotenant_gateway.core.validate.schema import did_you_mean, quote
from cotenant_simulator.core.fields import Place
from cotenant_simulator.core.scenario import Check, Comparison, Expectation
from cotenant_simulator.core.summary import BY_REASON, FIGURES, figure

COMPARISONS: Final[tuple[Comparison, ...]] = ("equals", "atLeast", "atMost")
_PODS: Final = (
    "phase", "node", "reason", "message", "incarnation", "cpuset", "devices", "reservation", "quota",
    "priority_class", "qos",
)  # fmt: skip
_NODES: Final = ("allocatable", "requested", "usage", "batch", "mid", "classification")
_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Deleted")
_QUOTAS: Final = ("min", "max", "request", "used", "runtime", "guaranteed")
_RESERVATIONS: Final = ("phase", "node", "reason", "message")
SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "pod": _PODS,
    "quota": _QUOTAS,
    "reservation": _RESERVATIONS,
    "migration": _RESERVATIONS,
    "node": _NODES,
}
"""Subject → the fields that can be asked of it. ``node`` is a field of the others, so it comes last."""
SECTIONS: Final = {
    "pod": "pods", "quota": "quotas", "reservation": "reservations", "migration": "migrations", "node": "nodes",
}  # fmt: skip
_LISTS: Final = frozenset({"allocatable", "requested", "usage", "batch", "mid", *_QUOTAS} - {"quota"})
SUMMARY: Final = "summary"
_EVENTS: Final = ("event", "reason", "object")


def read_expectation(place: Place, duration_ms: int) -> Expectation:
    """Raise ScenarioError."""
    written = place.mapping()
    if written.get("at") is None:
        raise place.error("required, and missing: a time such as 15s, or end", "at")
    at_ms = duration_ms if written["at"] == "end" else place.at("at").duration_ms()
    if at_ms > duration_ms:
        raise place.error(f"{written['at']} is after the scenario's duration", "at")
    line = place.line or 0
    if "count" in written:
        return _read_count(place, at_ms, line)
    if SUMMARY in written:
        return _read_summary(place, at_ms, line)
    subject = next((name for name in SUBJECTS if name in written), None)
    if subject is None:
        raise place.error(f"expected one of {', '.join((*SUBJECTS, 'count', SUMMARY))}, got {', '.join(written)}")
    fields = [name for name in SUBJECTS[subject] if name != subject]
    place.known(("at", subject, *fields))
    if len(written) == 2:
        raise place.error(f"says nothing about the {subject}; add one of {', '.join(fields)}")
    key = place.at(subject)
    name = key.pod_key() if subject == "pod" else key.text()
    checks = [check for field in fields if field in written for check in _read_field(place.at(field), subject, field)]
    return Expectation(at_ms, subject, name, tuple(checks), written, line)


def _read_count(place: Place, at_ms: int, line: int) -> Expectation:
    place.known(("at", "count", *COMPARISONS))
    written = place.mapping()
    counted = place.at("count").known(_EVENTS, required=("event",))
    counted.at("event").one_of(EVENT_TYPES)
    events = {name: counted.at(name).text() for name in _EVENTS if name in counted.mapping()}
    checks = [Check((), name, place.at(name).integer()) for name in COMPARISONS if name in written]
    if not checks:
        raise place.error(f"expected one of {', '.join(COMPARISONS)}")
    return Expectation(at_ms, "count", events["event"], tuple(checks), written, line, events)


def _read_summary(place: Place, at_ms: int, line: int) -> Expectation:
    """One dotted name with comparisons beside it, or a mapping of names to what they must be."""
    written = place.mapping()
    named = place.at(SUMMARY)
    if isinstance(named.value, Mapping):
        place.known(("at", SUMMARY))
        checks = _read_figures(named, "")
        if not checks:
            raise place.error("names no figure", SUMMARY)
    else:
        place.known(("at", SUMMARY, *COMPARISONS))
        name = _figure(named, named.text())
        checks = [_compared(place.at(each), name, each) for each in COMPARISONS if each in written]
        if not checks:
            raise place.error(f"expected one of {', '.join(COMPARISONS)}")
    return Expectation(at_ms, SUMMARY, "", tuple(checks), written, line)


def _read_figures(place: Place, prefix: str) -> list[Check]:
    checks: list[Check] = []
    for key in place.mapping():
        inner = place.at(key)
        if not isinstance(inner.value, Mapping):
            checks.append(_compared(inner, _figure(inner, prefix + key), "equals"))
        elif any(name in COMPARISONS for name in inner.value):
            name = _figure(inner, prefix + key)
            inner.known(COMPARISONS)
            checks += [_compared(inner.at(each), name, each) for each in COMPARISONS if each in inner.value]
        else:
            checks += _read_figures(inner, f"{prefix}{key}.")
    return checks


def _figure(place: Place, name: str) -> str:
    if name in FIGURES or (name.startswith(BY_REASON) and name != BY_REASON):
        return name
    hint = did_you_mean(name, FIGURES) or f"; known are {', '.join(FIGURES)} and {BY_REASON}REASON"
    raise place.error(f"no figure {quote(name)} in the summary{hint}")


def _compared(place: Place, name: str, comparison: Comparison) -> Check:
    """Null is *not known*; nothing is more or less than that."""
    if place.value is None:
        if comparison != "equals":
            raise place.error("expected a number, got null")
        return Check((name,), comparison, None)
    return Check((name,), comparison, place.number())


def _read_field(place: Place, subject: str, field: str) -> list[Check]:
    if field not in _LISTS:
        return [_scalar(place, subject, (field,))]
    if place.value is None:
        return [Check((field,), "equals", None)]
    return [check for name in place.mapping() for check in _amount(place.at(name), (field, name))]


def _scalar(place: Place, subject: str, path: tuple[str, ...]) -> Check:
    if path == ("incarnation",) and place.value is not None:
        return Check(path, "equals", place.integer())
    if place.value is None or isinstance(place.value, Mapping):
        return Check(path, "equals", place.value)
    return Check(path, "equals", place.one_of(_PHASES) if subject == "pod" and path == ("phase",) else place.text())


def _amount(place: Place, path: tuple[str, ...]) -> list[Check]:
    """A quantity, null, or ``{atLeast: …, atMost: …}``."""
    if place.value is None:
        return [Check(path, "equals", None)]
    if not isinstance(place.value, Mapping):
        return [Check(path, "equals", place.quantity(path[-1]))]
    place.known(COMPARISONS)
    return [Check(path, name, place.at(name).quantity(path[-1])) for name in COMPARISONS if name in place.value]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``got`` is the value that was compared, or all of them by field when several were."""

    expectation: Expectation
    ok: bool
    got: Any

    def json(self) -> dict[str, Any]:
        return {**self.expectation.written, "ok": self.ok, "got": self.got}


def judge(expectation: Expectation, outcome: Mapping[str, Any]) -> Verdict:
    """``outcome`` is the simulation's own, as it stands at that moment."""
    if expectation.subject == "count":
        count = sum(_matches(expectation.events, event) for event in outcome["events"])
        return Verdict(expectation, all(_holds(check, count) for check in expectation.checks), count)
    if expectation.subject == SUMMARY:
        figures = {check.path[0]: figure(outcome[SUMMARY], check.path[0]) for check in expectation.checks}
        return Verdict(expectation, all(_holds(each, figures[each.path[0]]) for each in expectation.checks), figures)
    found = outcome[SECTIONS[expectation.subject]].get(expectation.key)
    if found is None:
        return Verdict(expectation, False, None)
    values = {".".join(check.path): _value(found, check.path) for check in expectation.checks}
    ok = all(_holds(check, values[".".join(check.path)]) for check in expectation.checks)
    return Verdict(expectation, ok, values)


def _matches(wanted: Mapping[str, str], event: Mapping[str, Any]) -> bool:
    return all(event["type" if name == "event" else name] == value for name, value in wanted.items())


def _value(found: Any, path: Sequence[str]) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _holds(check: Check, value: Any) -> bool:
    if check.comparison == "equals":
        return bool(value == check.value)
    if not isinstance(value, int | float):
        return False
    return bool(value >= check.value if check.comparison == "atLeast" else value <= check.value)


def describe(verdict: Verdict) -> str:
    """What was expected and what came, in a line."""
    wanted = ", ".join(
        f"{'.'.join(check.path) or 'count'} {'' if check.comparison == 'equals' else check.comparison + ' '}"
        f"{check.value!r}"
        for check in verdict.expectation.checks
    )
    key: Any = verdict.expectation.events if verdict.expectation.subject == "count" else verdict.expectation.key
    return f"{verdict.expectation.subject}{f' {key}' if key else ''}: expected {wanted}; got {verdict.got!r}"
