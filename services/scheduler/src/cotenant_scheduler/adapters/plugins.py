"""Plugins from outside the package, found by their entry points."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from cotenant_scheduler.core.plugins.interface import Plugin, PodFilter, PodScore, Preference, ShapePlugin
from cotenant_scheduler.core.profile import Outside

GROUP: Final = "cotenant.scheduler.plugins"

Factory = Callable[[Mapping[str, Any]], Plugin]


class PluginError(ValueError):
    """A plugin from outside cannot be used; the text names it and says why."""


def installed() -> dict[str, EntryPoint]:
    """By name. Nothing is imported yet: what no profile asks for must not be able to do harm."""
    return {each.name: each for each in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def build(wanted: Sequence[Outside], points: Mapping[str, EntryPoint]) -> list[Plugin]:
    """Raise PluginError."""
    return [_build(each, points[each.name]) for each in wanted]


def _build(wanted: Outside, point: EntryPoint) -> Plugin:
    try:
        factory: Factory = point.load()
        plugin = factory(wanted.arguments)
    except Exception as error:
        # Anything can go wrong in foreign code while it is imported; the pods must be placed nevertheless.
        raise PluginError(f"plugin {wanted.name} ({point.value}): {type(error).__name__}: {error}") from error
    if not isinstance(plugin, ShapePlugin | PodFilter | PodScore | Preference):
        raise PluginError(f"plugin {wanted.name} ({point.value}): expected a plugin, got {type(plugin).__name__}")
    if getattr(plugin, "name", None) != wanted.name:
        raise PluginError(f"plugin {wanted.name} ({point.value}): it calls itself {getattr(plugin, 'name', None)!r}")
    if wanted.weight is not None and hasattr(plugin, "weight"):
        plugin.weight = wanted.weight
    return plugin
