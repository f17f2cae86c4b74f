"""The ConfigMap ``slo-controller-config``, and one node's policy rendered from it with the source of each value.

A value comes from the first matching node strategy, else the cluster strategy, else the default; each is a JSON
overlay, so what a layer leaves out is inherited and an explicit zero is not.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from cotenant_common.model import labels
from cotenant_gateway.core import names, strict_json
from cotenant_gateway.core.policy_fields import (
    COLOCATION,
    DISABLED_QOS,
    HOST_APPLICATIONS,
    NOT_ACTED_ON,
    PROFILE_KEY,
    QOS_CLASSES,
    SECTIONS,
    Path,
    Profile,
    Section,
)
from cotenant_gateway.core.validate.meta import LABEL_SELECTOR, selector_matches
from cotenant_gateway.core.validate.schema import Report, did_you_mean

Json = Mapping[str, Any]

DEFAULT: Final = "default"
CLUSTER: Final = "cluster"
_RATIO_LABELS: Final = {
    labels.CPU_RECLAIM_RATIO: "cpuReclaimThresholdPercent",
    labels.MEMORY_RECLAIM_RATIO: "memoryReclaimThresholdPercent",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "midStaticCPUReservedPercent",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "midStaticMemoryReservedPercent",
}
_MAX_RATIO: Final = 1_000
"""Far above sense, and far below ``1e9999``, which is a legal label value."""
_KNOWN_KEYS: Final = (*(s.key for s in SECTIONS), HOST_APPLICATIONS, *NOT_ACTED_ON, PROFILE_KEY)


@dataclass(frozen=True, slots=True)
class Problem:
    """``fatal`` ones make the value unusable; the others are worth a warning."""

    key: str
    message: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class NodeStrategy:
    name: str
    selector: Json
    values: Json

    def matches(self, node_labels: Mapping[str, str]) -> bool:
        return selector_matches(self.selector, node_labels)


@dataclass(frozen=True, slots=True)
class Strategies:
    """One key of the ConfigMap."""

    cluster: Json = field(default_factory=dict)
    nodes: tuple[NodeStrategy, ...] = ()


@dataclass(frozen=True, slots=True)
class SloConfig:
    """Everything the ConfigMap said, as far as it was readable."""

    sections: Mapping[str, Strategies] = field(default_factory=dict)
    host_applications: tuple[Json, ...] = ()
    profile: Profile | None = None
    """None: the gateway's own setting decides."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    idle_class: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    slo: dict[str, Any]
    colocation: dict[str, Any]
    sources: dict[str, str]
    observe: bool = False


def is_slo_config(namespace: str | None, name: str) -> bool:
    return name == names.SLO_CONFIG and namespace in names.SYSTEM_NAMESPACES


def check(data: Mapping[str, str]) -> list[Problem]:
    """Everything wrong with a ConfigMap before it is stored."""
    return parse(data, SloConfig())[1]


def parse(data: Mapping[str, str], previous: SloConfig) -> tuple[SloConfig, list[Problem]]:
    """A key that cannot be read keeps its previous value; a key that is missing goes back to the defaults."""
    problems = [
        Problem(key, f"unknown key{did_you_mean(key, _KNOWN_KEYS)}", fatal=False)
        for key in sorted(data)
        if key not in _KNOWN_KEYS
    ]
    problems += [Problem(key, "stored, but nothing acts on it yet", fatal=False) for key in NOT_ACTED_ON if key in data]
    sections: dict[str, Strategies] = {}
    for section in SECTIONS:
        if section.key not in data:
            continue
        found = _parse_section(section, data[section.key], problems)
        kept = found if found is not None else previous.sections.get(section.key)
        if kept is not None:
            sections[section.key] = kept
    applications = _parse_applications(data, previous, problems)
    return SloConfig(sections, applications, _parse_profile(data, previous, problems)), problems


def _load(key: str, text: str, problems: list[Problem]) -> dict[str, Any] | None:
    try:
        value = strict_json.parse(text)
    except ValueError as error:
        problems.append(Problem(key, f"not valid JSON: {error}"))
        return None
    if not isinstance(value, dict):
        problems.append(Problem(key, f"expected a JSON object, got {type(value).__name__}"))
        return None
    return value


def _parse_section(section: Section, text: str, problems: list[Problem]) -> Strategies | None:
    value = _load(section.key, text, problems)
    if value is None:
        return None
    before = sum(p.fatal for p in problems)
    raw_nodes = value.pop(section.nodes, None)
    if raw_nodes is not None and not isinstance(raw_nodes, list):
        problems.append(Problem(section.key, f"{section.nodes}: expected a list"))
        return None
    cluster = (value.get(section.cluster) or {}) if section.cluster else value
    if section.cluster:
        for name in value:
            if name != section.cluster:
                known = (section.cluster, section.nodes)
                problems.append(Problem(section.key, f"unknown field {name!r}{did_you_mean(name, known)}"))
    _check_values(section, cluster, section.cluster or "", problems)
    nodes = [_parse_node(section, at, raw, problems) for at, raw in enumerate(raw_nodes or ())]
    if sum(p.fatal for p in problems) > before:
        return None
    return Strategies(cluster, tuple(node for node in nodes if node is not None))


def _parse_node(section: Section, at: int, raw: Any, problems: list[Problem]) -> NodeStrategy | None:
    where = f"{section.nodes}[{at}]"
    if not isinstance(raw, dict):
        problems.append(Problem(section.key, f"{where}: expected an object"))
        return None
    selector = raw.get("nodeSelector")
    report = Report()
    LABEL_SELECTOR.check(selector, ("nodeSelector",), report)
    if not isinstance(selector, dict) or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        problems.append(Problem(section.key, f"{where}.nodeSelector: required: matchLabels of the nodes it is for"))
        return None
    problems.extend(Problem(section.key, f"{where}.{problem}") for problem in report.errors)
    values = {name: value for name, value in raw.items() if name not in ("name", "nodeSelector")}
    _check_values(section, values, where, problems)
    return NodeStrategy(str(raw.get("name") or where), selector, values)


def _check_values(section: Section, values: Any, where: str, problems: list[Problem]) -> None:
    if not isinstance(values, dict):
        problems.append(Problem(section.key, f"{where}: expected an object"))
        return
    for path, value in _leaves(values):
        if any(part in section.opaque for part in path) or value is None:
            continue
        found = section.field(path)
        shown = ".".join(filter(None, (where, *path)))
        if found is None:
            hint = did_you_mean(path[-1], [f.path[-1] for f in section.fields])
            problems.append(Problem(section.key, f"{shown}: unknown field{hint}"))
        elif message := found.check.problem(value):
            problems.append(Problem(section.key, f"{shown}: {message}"))


def _parse_applications(data: Mapping[str, str], previous: SloConfig, problems: list[Problem]) -> tuple[Json, ...]:
    if HOST_APPLICATIONS not in data:
        return ()
    value = _load(HOST_APPLICATIONS, data[HOST_APPLICATIONS], problems)
    if value is None:
        return previous.host_applications
    applications = value.get("applications") or []
    if not isinstance(applications, list) or not all(isinstance(a, dict) and a.get("name") for a in applications):
        problems.append(Problem(HOST_APPLICATIONS, "applications: expected a list of objects with a name"))
        return previous.host_applications
    return tuple(applications)


def _parse_profile(data: Mapping[str, str], previous: SloConfig, problems: list[Problem]) -> Profile | None:
    if PROFILE_KEY not in data:
        return None
    try:
        return Profile(data[PROFILE_KEY].strip())
    except ValueError:
        problems.append(Problem(PROFILE_KEY, f"expected {' or '.join(Profile)}, got {data[PROFILE_KEY]!r}"))
        return previous.profile


def render(node: NodeFacts, config: SloConfig, setting: Profile = Profile.DEFAULT) -> Policy:
    """The whole policy of one node."""
    profile = config.profile or setting
    sources: dict[str, str] = {}
    slo: dict[str, Any] = {}
    colocation: dict[str, Any] = {}
    for section in SECTIONS:
        values = _render_section(section, node, config.sections.get(section.key, Strategies()), profile, sources)
        if section.target is None:
            colocation = values
        else:
            slo[section.target] = values
    _override_colocation(colocation, node, sources)
    slo["hostApplications"] = list(config.host_applications)
    return Policy(slo, colocation, sources, profile is Profile.OBSERVE)


def _render_section(
    section: Section, node: NodeFacts, strategies: Strategies, profile: Profile, sources: dict[str, str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    prefix = section.target or "colocation"
    for f in section.fields:
        default = f.default(profile, idle_class=node.idle_class)
        if default is not None:
            _set(values, f.path, default)
            sources[_dotted(prefix, f.path)] = DEFAULT
    layers: list[tuple[str, Json]] = [(CLUSTER, strategies.cluster)]
    chosen = next((strategy for strategy in strategies.nodes if strategy.matches(node.labels)), None)
    if chosen is not None:
        layers.append((chosen.name, chosen.values))
    for source, layer in layers:
        _overlay(values, layer, prefix, source, sources)
    if section.target == "resourceQOSStrategy":
        _undo_disabled(values, prefix, sources)
    return values


def _overlay(values: dict[str, Any], layer: Json, prefix: str, source: str, sources: dict[str, str]) -> None:
    for path, value in _leaves(layer):
        if value is not None:
            _set(values, path, value)
            sources[_dotted(prefix, path)] = source


def _undo_disabled(values: dict[str, Any], prefix: str, sources: dict[str, str]) -> None:
    for cls in QOS_CLASSES:
        for name, none_values in DISABLED_QOS.items():
            section = values.get(cls, {}).get(name)
            if section is not None and not section.get("enable"):
                section.update(none_values)
                why = f"{sources.get(_dotted(prefix, (cls, name, 'enable')), DEFAULT)}: enable is false"
                sources.update(dict.fromkeys((_dotted(prefix, (cls, name, leaf)) for leaf in none_values), why))


def _override_colocation(colocation: dict[str, Any], node: NodeFacts, sources: dict[str, str]) -> None:
    """Annotation and labels of the node itself win over the ConfigMap; one that cannot be read is passed over."""
    text = node.annotations.get(labels.COLOCATION_STRATEGY)
    if text is not None:
        ignored: list[Problem] = []
        layer = _load(labels.COLOCATION_STRATEGY, text, ignored)
        good = {name: value for name, value in (layer or {}).items() if _is_good(name, value)}
        _overlay(colocation, good, "colocation", f"annotation {labels.COLOCATION_STRATEGY}", sources)
    for label, name in _RATIO_LABELS.items():
        percent = ratio_percent(node.labels.get(label))
        if percent is not None:
            colocation[name] = percent
            sources[f"colocation.{name}"] = f"label {label}"


def _is_good(name: str, value: Any) -> bool:
    return any(f.path == (name,) and f.check.problem(value) is None for f in COLOCATION)


def ratio_percent(text: str | None) -> int | None:
    """``0.57`` → 57, cut, not rounded; None for anything that is no ratio."""
    try:
        ratio = Decimal(text or "")
    except InvalidOperation:
        return None
    return int(ratio * 100) if ratio.is_finite() and 0 <= ratio <= _MAX_RATIO else None


def _leaves(values: Json, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _set(values: dict[str, Any], path: Path, value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value


def _dotted(prefix: str, path: Iterable[str]) -> str:
    return ".".join((prefix, *path))


def defaults_markdown() -> str:
    """``docs/policy-defaults.md``: every default, the reference's number beside ours, and why they differ."""
    lines = [
        "# Policy defaults",
        "",
        "Generated from the table that renders the policy. *Idle class*: the value on nodes that run BE in the",
        "kernel's idle class. `conservative` takes the reference's numbers; `observe` takes ours and writes nothing on",
        "the node. A dash is *unset*.",
    ]
    for section in SECTIONS:
        lines += ["", f"## {section.key}", "", "| field | default | idle class | reference | why |"]
        lines.append("|---|---|---|---|---|")
        for f in section.fields:
            cells = [_cell(value) for value in (f.ours, f.idle, f.reference)]
            lines.append(f"| `{'.'.join(f.path)}` | {' | '.join(cells)} | {f.why or '–'} |")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "–" if value is None else json.dumps(value)
