"""A policy: what is decided differently from a scenario as it is written. ``config`` and ``objects`` in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from cotenant_gateway.core.policy_fields import Profile
from cotenant_gateway.core.yaml_source import Document, SourceError, load
from cotenant_simulator.config import read_config, sealed
from cotenant_simulator.core.fields import Place
from cotenant_simulator.core.reading import read_manifests
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.sources import read_text

AS_WRITTEN: Final = ("none", "default")
PRESETS: Final = (Profile.CONSERVATIVE.value, Profile.OBSERVE.value)
"""Profiles that the gateway ships: they choose the defaults of the node policy."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``overrides`` are settings by service; ``objects`` are there from the start."""

    name: str
    source: str = ""
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    objects: Sequence[Document] = ()
    warnings: Sequence[str] = ()


UNCHANGED: Final = Policy("as written")


def choose_policy(named: str) -> Policy:
    """``none`` or ``default``, a shipped name, or a file. Raise ScenarioError."""
    if named in AS_WRITTEN:
        return Policy(named)
    if named in PRESETS:
        return Policy(named, named, {"gateway": {"policy": named}})
    path = Path(named)
    if not path.suffix and not path.exists():
        known = ", ".join((*AS_WRITTEN, *PRESETS))
        raise ScenarioError(named, None, "", f"no such policy: expected a YAML file or one of {known}")
    return read_policy(path)


def read_policy(path: Path) -> Policy:
    """Raise ScenarioError."""
    source = str(path)
    try:
        documents = load(read_text(path))
    except SourceError as problem:
        raise ScenarioError(source, problem.line, "", str(problem)) from problem
    if len(documents) != 1:
        raise ScenarioError(source, None, "", f"expected one document with config or objects, got {len(documents)}")
    place = Place(source, documents[0]).known(("config", "objects"))
    overrides, warnings = read_config(place.section("config"))
    objects = read_manifests(place.section("objects"))
    if not any(overrides.values()) and not objects:
        raise ScenarioError(source, place.line, "", "changes nothing: expected config, objects or both")
    return Policy(path.stem, source, overrides, objects, warnings)


def apply_policy(scenario: Scenario, policy: Policy) -> Scenario:
    """The policy wins, setting by setting and object by object. Raise ScenarioError when the two do not go together."""
    overrides = {
        service: {**scenario.overrides.get(service, {}), **policy.overrides.get(service, {})}
        for service in {**scenario.overrides, **policy.overrides}
    }
    for service, values in overrides.items():
        _check(service, values, scenario, policy)
    mine = {_identity(one): one for one in policy.objects}
    kept = [one for one in scenario.objects if _identity(one) not in mine]
    warnings = [*scenario.warnings, *policy.warnings]
    return replace(scenario, overrides=overrides, objects=(*mine.values(), *kept), warnings=warnings)


def _identity(document: Document) -> tuple[str, str, str]:
    metadata = document.data["metadata"]
    return document.data["kind"], str(metadata.get("namespace") or "default"), metadata["name"]


def _check(service: str, values: Mapping[str, Any], scenario: Scenario, policy: Policy) -> None:
    try:
        sealed(service)(**values)
    except ValidationError as problems:
        first = problems.errors(include_url=False)[0]
        where = ".".join(("config", service, *map(str, first["loc"])))
        message = f"together with {scenario.source}: {first['msg']}, got {first['input']!r}"
        raise ScenarioError(policy.source or scenario.source, None, where, message) from problems


def named_apart(policies: Sequence[Policy]) -> list[Policy]:
    """Two files of one name are told apart by their paths."""
    names = [policy.name for policy in policies]
    if len(set(names)) == len(names):
        return list(policies)
    return [replace(one, name=f"{at}: {one.source or one.name}") for at, one in zip("AB", policies, strict=False)]
