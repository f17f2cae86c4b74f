"""Plugins and their arguments from the ConfigMap ``koord-scheduler-config``, in the reference's own form.

Its value is a ``KubeSchedulerConfiguration``; the first profile counts. A section it does not have is left to the
settings.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml
from pydantic import ValidationError

from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_scheduler.arguments import ProfileArguments

CONFIG_MAP: Final = "koord-scheduler-config"
_OWN: Final = {
    field.alias: name
    for name, field in ProfileArguments.model_fields.items()
    if field.alias and field.alias[0].isupper()
}


class ConfigurationError(ValueError):
    """The ConfigMap cannot be used; the text says where and why. What was in force stays in force."""


def is_configuration(record: SpecRecord) -> bool:
    return record.kind == "ConfigMap" and record.name == CONFIG_MAP and record.deletion is None


def profile_arguments(records: Iterable[SpecRecord], settings: ProfileArguments) -> ProfileArguments:
    """The settings' arguments, overridden by the ConfigMap's. Raise ConfigurationError."""
    for record in records:
        if is_configuration(record):
            return _overridden(settings, record.manifest.get("data") or {})
    return settings


def _overridden(settings: ProfileArguments, data: Mapping[str, Any]) -> ProfileArguments:
    found: dict[str, Any] = {name: getattr(settings, name) for name in ProfileArguments.model_fields}
    others = dict(settings.others)
    for key in sorted(data):
        profile = _first_profile(key, data[key])
        for entry in _list(key, "pluginConfig", profile.get("pluginConfig")):
            name, arguments = str(entry.get("name")), _arguments(key, entry)
            if name in _OWN:
                found[_OWN[name]] = arguments
            else:
                others[name] = arguments
        if "plugins" in profile:
            found["plugins"] = profile["plugins"] or {}
    return _read({**found, "others": others})


def _first_profile(key: str, text: object) -> Mapping[str, Any]:
    profiles = _list(key, "profiles", _document(key, text).get("profiles"))
    return profiles[0] if profiles else {}


def _document(key: str, text: object) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(str(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(f"{CONFIG_MAP}: data.{key} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{CONFIG_MAP}: data.{key}: expected a map, got {type(document).__name__}")
    return document


def _list(key: str, place: str, value: object) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConfigurationError(f"{CONFIG_MAP}: data.{key}: {place}: expected a list of maps, got {value!r}")
    return value


def _arguments(key: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    arguments = entry.get("args") or {}
    if not isinstance(arguments, dict):
        place = f"pluginConfig {entry.get('name')}.args"
        raise ConfigurationError(f"{CONFIG_MAP}: data.{key}: {place}: expected a map, got {arguments!r}")
    return {name: value for name, value in arguments.items() if name not in ("apiVersion", "kind")}


def _read(arguments: Mapping[str, Any]) -> ProfileArguments:
    try:
        return ProfileArguments.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{CONFIG_MAP}: {place}: {first['msg']}") from error
