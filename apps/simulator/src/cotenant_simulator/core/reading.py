"""The text of a scenario file turned into a ``Scenario``, or one clear error."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cotenant_gateway.core.validate.kinds import KINDS, find_kind
from cotenant_gateway.core.validate.objects import check_kind, check_object
from cotenant_gateway.core.validate.schema import Report, did_you_mean, prune, quote, show
from cotenant_gateway.core.yaml_source import Document, SourceError, load
from cotenant_simulator.core import annotations
from cotenant_simulator.core.annotations import AnnotationError
from cotenant_simulator.core.checks import read_expectation
from cotenant_simulator.core.fields import Place
from cotenant_simulator.core.scenario import (
    AGENT,
    BUS,
    SERVICES,
    Apply,
    Demand,
    Entry,
    Expectation,
    Fault,
    FaultKind,
    ObjectRef,
    Remove,
    Scenario,
    SetUsage,
    Signal,
    Silence,
    Verb,
)
from cotenant_simulator.errors import ScenarioError

API_VERSION: Final = "cotenant.io/v1"
KIND: Final = "Scenario"
RUNTIME: Final = "simulated"
_SPEC: Final = ("seed", "duration", "config", "objects", "timeline", "expect")
_LASTING: Final = ("usage", "signal", "silence", "fault")
_SIGNALS: Final = ("cpi", "psi_cpu_some", "psi_memory_some", "sched_wait_ms", "latency_ms")

_WORKLOADS: Final = ("Deployment", "Job")
_ORDINAL: Final = re.compile(r"(.+)-\d+")
"""A pod of a workload: the workload's key and a number."""

ReadConfig = Callable[[Place | None], tuple[Mapping[str, Mapping[str, Any]], list[str]]]
"""The section ``config`` (None: absent) → settings by service, and warnings. Raises ScenarioError."""


def read_scenario(text: str, source: str, read_config: ReadConfig) -> Scenario:
    """Raise ScenarioError for the first thing that is wrong."""
    place = _document(text, source)
    place.known(("apiVersion", "kind", "metadata", "spec"), required=("apiVersion", "kind", "metadata", "spec"))
    place.at("apiVersion").one_of((API_VERSION,))
    place.at("kind").one_of((KIND,))
    name = place.at("metadata").known(("name", "labels", "annotations"), required=("name",)).at("name").text()
    spec = place.at("spec").known(_SPEC, required=("duration",))
    duration_ms = spec.at("duration").duration_ms()
    overrides, warnings = read_config(spec.section("config"))
    objects = read_manifests(spec.section("objects"))
    timeline = _timeline(spec.section("timeline"), duration_ms)
    _check_names(spec.section("timeline"), objects, timeline)
    return Scenario(
        name=name,
        seed=spec.optional("seed", lambda each: each.integer()) or 0,
        duration_ms=duration_ms,
        overrides=overrides,
        objects=objects,
        timeline=timeline,
        expect=_expectations(spec.section("expect"), duration_ms),
        source=source,
        warnings=warnings,
    )


def _document(text: str, source: str) -> Place:
    try:
        documents = load(text)
    except SourceError as problem:
        raise ScenarioError(source, problem.line, "", str(problem)) from problem
    if len(documents) != 1:
        raise ScenarioError(source, None, "", f"expected one document of kind {KIND}, got {len(documents)}")
    return Place(source, documents[0])


def _expectations(place: Place | None, duration_ms: int) -> list[Expectation]:
    return [read_expectation(one, duration_ms) for one in place.items()] if place else []


def _timeline(place: Place | None, duration_ms: int) -> list[Entry]:
    return [_entry(one, duration_ms) for one in place.items()] if place else []


def _entry(place: Place, duration_ms: int) -> Entry:
    place.known(("at", "for", *_VERBS), required=("at",))
    verbs = [name for name in place.mapping() if name in _VERBS]
    if len(verbs) != 1:
        raise place.error(f"expected exactly one of {', '.join(_VERBS)}, got {', '.join(verbs) or 'none'}")
    verb = verbs[0]
    if place.value[verb] is None:
        raise place.error("says nothing", verb)
    at_ms = duration_ms if place.value["at"] == "end" else place.at("at").duration_ms()
    if at_ms > duration_ms:
        raise place.error(f"{place.value['at']} is after the scenario's duration", "at")
    lasting = place.optional("for", lambda each: each.duration_ms())
    if lasting is not None and verb not in _LASTING:
        raise place.error(f"only {', '.join(_LASTING)} can last; {verb} happens at once", "for")
    until_ms = None if lasting is None else at_ms + lasting
    return Entry(at_ms, _VERBS[verb](place.at(verb)), place.line or 0, until_ms)


def _check_names(place: Place | None, objects: Sequence[Document], timeline: Sequence[Entry]) -> None:
    """What no manifest of the file makes is a slip of the pen, and would do nothing without a word."""
    applied = [one for entry in timeline if isinstance(entry.verb, Apply) for one in entry.verb.documents]
    made = {kind: _named((*objects, *applied), kind) for kind in ("Node", "Pod", *_WORKLOADS)}
    for at, entry in enumerate(timeline):
        for kind, name, *path in _mentioned(entry.verb):
            workload_of = _ORDINAL.fullmatch(name)
            by_workload = kind == "Pod" and workload_of and any(workload_of[1] in made[each] for each in _WORKLOADS)
            if place is not None and name not in made[kind] and not by_workload:
                raise place.at(at).error(f"no {kind} {quote(name)} in this file{did_you_mean(name, made[kind])}", *path)


def _named(documents: Sequence[Document], kind: str) -> dict[str, None]:
    """As the timeline names them: ``namespace/name``, nodes by name alone."""
    found = [one.data["metadata"] for one in documents if one.data["kind"] == kind]
    return {
        one["name"] if kind == "Node" else f"{one.get('namespace') or 'default'}/{one['name']}": None for one in found
    }


def _mentioned(verb: Verb) -> Iterator[tuple[str, ...]]:
    """Kind, name, and where in the entry it stands."""
    if isinstance(verb, SetUsage | Signal | Silence | Fault) and verb.node is not None:
        yield "Node", verb.node, _word_of(verb), "node"
    if isinstance(verb, SetUsage):
        for key in verb.pods:
            yield "Pod", key, "usage", "pods"
    if isinstance(verb, Signal):
        yield "Pod", verb.pod, "signal", "pod"
    if isinstance(verb, Remove):
        for one in verb.objects:
            if one.kind in ("Node", "Pod", *_WORKLOADS):
                yield one.kind, one.name if one.namespace is None else f"{one.namespace}/{one.name}", "delete"


def _word_of(verb: Verb) -> str:
    return "usage" if isinstance(verb, SetUsage) else type(verb).__name__.lower()


def _apply(place: Place) -> Verb:
    return Apply(read_manifests(place))


def read_manifests(place: Place | None) -> tuple[Document, ...]:
    """As the gateway takes them; what can be said of each by itself is said now, with its line in the file."""
    documents = []
    for at, one in enumerate(place.items() if place else [], start=1):
        data = one.mapping()
        prefix = one.path
        lines = {p[len(prefix) :]: n for p, n in one.document.lines.items() if p[: len(prefix)] == prefix}
        document = Document(at, data, lines)
        _check_manifest(one, document)
        documents.append(document)
    return tuple(documents)


def _check_manifest(place: Place, document: Document) -> None:
    report, manifest = Report(), prune(document.data)
    kind = check_kind(manifest, report)
    if kind is not None:
        check_object(kind, manifest, report, RUNTIME)
    if report.errors:
        problem = report.errors[0]
        raise ScenarioError(
            place.source, document.line_of(problem.path), show((*place.path, *problem.path)), problem.message
        )
    for path in (("metadata",), ("spec", "template", "metadata")):
        _check_annotations(place, path)


def _check_annotations(place: Place, path: tuple[str, ...]) -> None:
    for part in (*path, "annotations"):
        if not isinstance(place.value, Mapping) or place.value.get(part) is None:
            return
        place = place.at(part)
    try:
        annotations.check(place.mapping())
    except AnnotationError as problem:
        raise place.error(problem.message, problem.annotation) from problem


def _remove(place: Place) -> Verb:
    return Remove(tuple(_reference(one) for one in place.items()))


def _reference(place: Place) -> ObjectRef:
    place.known(("kind", "namespace", "name", "apiVersion"), required=("kind", "name"))
    written = place.at("kind").text()
    kind = find_kind(written)
    if kind is None:
        raise place.error(f"unknown kind {quote(written)}{did_you_mean(written, KINDS)}", "kind")
    namespace = place.optional("namespace", lambda each: each.text())
    return ObjectRef(kind.name, (namespace or "default") if kind.namespaced else None, place.at("name").text())


def _usage(place: Place) -> Verb:
    place.known(("node", "system", "pods"))
    node = place.optional("node", lambda each: each.text())
    system = place.optional("system", lambda each: each.demand())
    if system is not None and node is None:
        raise place.error("required with system: whose system is it?", "node")
    pods = place.section("pods")
    if system is None and pods is None:
        raise place.error("sets nothing; add system or pods")
    return SetUsage(node, system, {} if pods is None else _pod_demands(pods))


def _pod_demands(pods: Place) -> dict[str, Demand]:
    named: dict[str, Demand] = {}
    for name in pods.mapping():
        key = _key(pods, name)
        if key in named:
            raise pods.error(f"{key} is already set in this entry", name)
        named[key] = pods.at(name).demand()
    return named


def _key(pods: Place, name: str) -> str:
    return Place(pods.source, pods.document, (*pods.path, name), name).pod_key()


def _signal(place: Place) -> Verb:
    place.known(("node", "pod", *_SIGNALS), required=("pod",))
    values = {name: place.optional(name, lambda each: each.number()) for name in _SIGNALS}
    if all(value is None for value in values.values()):
        raise place.error(f"shows nothing; add one of {', '.join(_SIGNALS)}")
    return Signal(place.optional("node", lambda each: each.text()), place.at("pod").pod_key(), **values)


def _silence(place: Place) -> Verb:
    return Silence(place.known(("node",), required=("node",)).at("node").text())


def _fault(place: Place) -> Verb:
    place.known(("service", "kind", "node", "delay"), required=("service", "kind"))
    service = place.at("service").one_of((*SERVICES, AGENT, BUS))
    kind = FaultKind(place.at("kind").one_of([each.value for each in FaultKind]))
    node = place.optional("node", lambda each: each.text())
    if (service == AGENT) != (node is not None):
        needs = "required: whose agent is it?" if node is None else f"only the agent has a node, {service} has none"
        raise place.error(needs, "node")
    delay = place.optional("delay", lambda each: each.duration_ms())
    if delay is not None and kind is not FaultKind.DELAY:
        raise place.error(f"only the kind delay takes it, not {kind}", "delay")
    return Fault(service, kind, node) if delay is None else Fault(service, kind, node, delay)


_VERBS: Final[Mapping[str, Callable[[Place], Verb]]] = {
    "apply": _apply,
    "delete": _remove,
    "usage": _usage,
    "signal": _signal,
    "silence": _silence,
    "fault": _fault,
}
