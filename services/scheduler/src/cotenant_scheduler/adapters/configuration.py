"""Plugin arguments from the ConfigMap ``koord-scheduler-config``, in the reference's own form.

Its value is a ``KubeSchedulerConfiguration``; the first profile's ``pluginConfig`` entry for a plugin counts.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml
from pydantic import ValidationError

from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_scheduler.config import LoadAwareArguments

CONFIG_MAP: Final = "koord-scheduler-config"
_PLUGIN: Final = "LoadAwareScheduling"


class ConfigurationError(ValueError):
    """The ConfigMap cannot be used; the text says where and why. What was in force stays in force."""


def is_configuration(record: SpecRecord) -> bool:
    return record.kind == "ConfigMap" and record.name == CONFIG_MAP and record.deletion is None


def load_aware_arguments(records: Iterable[SpecRecord]) -> LoadAwareArguments | None:
    """None when no ConfigMap names the plugin: the settings hold. Raise ConfigurationError."""
    for record in records:
        if is_configuration(record):
            arguments = _arguments(record)
            if arguments is not None:
                return _read(arguments)
    return None


def _arguments(record: SpecRecord) -> Mapping[str, Any] | None:
    data = record.manifest.get("data") or {}
    for key in sorted(data):
        for profile in _document(key, data[key]).get("profiles") or ():
            for entry in profile.get("pluginConfig") or ():
                if entry.get("name") == _PLUGIN:
                    return entry.get("args") or {}
    return None


def _document(key: str, text: str) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{CONFIG_MAP}: data.{key} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{CONFIG_MAP}: data.{key}: expected a map, got {type(document).__name__}")
    return document


def _read(arguments: Mapping[str, Any]) -> LoadAwareArguments:
    own = {key: value for key, value in arguments.items() if key not in ("apiVersion", "kind")}
    try:
        return LoadAwareArguments.model_validate(own)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{CONFIG_MAP}: {_PLUGIN}.{place}: {first['msg']}") from error
