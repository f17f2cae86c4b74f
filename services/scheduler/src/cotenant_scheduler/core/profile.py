"""Which rules are in force: how load is judged, which plugins take part, with what weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant_scheduler.core.estimate import LoadPolicy
from cotenant_scheduler.core.plugins.fit_scores import PlusRules, Strategy


@dataclass(frozen=True, slots=True)
class Outside:
    """A plugin from outside the package that the profile asks for. ``weight`` None leaves it to the plugin."""

    name: str
    weight: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """``weights`` override the defaults by name; a score of weight 0 is left out."""

    weights: Mapping[str, int] = field(default_factory=dict)
    filters_off: frozenset[str] = frozenset()
    fit_strategy: Strategy = "LeastAllocated"
    fit_weights: Mapping[str, int] | None = None
    fit_plus: PlusRules = field(default_factory=PlusRules)
    scarce: tuple[str, ...] = ()
    most_hint_nodes: int = 100
    outside: tuple[Outside, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    load: LoadPolicy = field(default_factory=LoadPolicy)
    plugins: PluginChoice = field(default_factory=PluginChoice)
