"""A policy as the text of a scenario takes it, so that what is written runs the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotenant_gateway.core.yaml_source import load
from cotenant_simulator.policies import AS_WRITTEN, PRESETS, choose_policy


@dataclass(frozen=True, slots=True)
class Written:
    """The fields ``config`` and ``objects``, word for word."""

    config: Mapping[str, Any] = field(default_factory=dict)
    objects: Sequence[Mapping[str, Any]] = ()


def written_policy(named: str) -> Written:
    """A file, or the name of a shipped policy. Raise ScenarioError."""
    chosen = choose_policy(named)
    if named in AS_WRITTEN:
        return Written()
    if named in PRESETS:
        return Written(chosen.overrides)
    [document] = load(Path(named).read_text(encoding="utf-8"))
    return Written(document.data.get("config") or {}, [one.data for one in chosen.objects])
