"""``spec.config``: the reference's plugin and argument names, mapped onto the settings of the services.

Every service takes its own settings by their camelCase names too. An argument of the reference that no setting stands
behind yet is accepted, because existing configurations hold it, and named in a warning; an unknown one is an error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cotenant_agent.config import AgentSettings
from cotenant_common.runtime.settings import ServiceSettings
from cotenant_descheduler.config import DeschedulerSettings
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core.yaml_source import Path
from cotenant_profiler.config import ProfilerSettings
from cotenant_quota.config import QuotaSettings
from cotenant_scheduler.config import SchedulerSettings
from cotenant_simulator.core import durations
from cotenant_simulator.core.fields import Place

Overrides = dict[str, dict[str, Any]]

SETTINGS: Final[Mapping[str, type[ServiceSettings]]] = {
    "gateway": GatewaySettings,
    "scheduler": SchedulerSettings,
    "quota": QuotaSettings,
    "profiler": ProfilerSettings,
    "descheduler": DeschedulerSettings,
    "agent": AgentSettings,
}
# What a simulated process has no use for, or what the simulator itself decides.
_HIDDEN: Final = frozenset(ServiceSettings.model_fields) | {
    "api_enabled", "api_host", "api_port", "api_token_file", "allowed_origins", "max_body_bytes", "runtime",
    "mirror_json", "uid_seed", "node", "labels", "state_dir", "cgroup_root", "cgroup_fs", "proc_fs", "sys_fs", "cpus",
    "memory_bytes", "reserved_cpu_milli", "reserved_memory_bytes", "max_pods", "default_user", "seed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the reference: the service and setting behind it, and the factor between their units.

    ``setting`` empty: accepted, and nothing is behind it yet. ``negate``: the setting says the opposite.
    """

    setting: str = ""
    service: str = ""
    duration: str = ""
    """Unit of the setting when the argument is a duration: ``ms`` or ``s``."""
    factor: int = 1
    negate: bool = False


_NOT_YET: Final = Argument()
_LOAD_AWARE: Final = "LoadAwareScheduling"
_REPORTS_TO_MISS_MS: Final = 60_000
"""The reference lets a node's metrics grow three minutes old, which is three of its own reports."""
_THRESHOLDS: Final = {
    "highThresholds": Argument("high_thresholds"),
    "lowThresholds": Argument("low_thresholds"),
    "prodHighThresholds": Argument("prod_high_thresholds"),
    "prodLowThresholds": Argument("prod_low_thresholds"),
}
_LOW_NODE_LOAD: Final = {
    **_THRESHOLDS,
    "paused": Argument("paused"),
    "dryRun": Argument("dry_run"),
    "numberOfNodes": Argument("number_of_nodes"),
    "nodeFit": Argument("node_fit"),
    "useDeviationThresholds": Argument("use_deviation_thresholds"),
    "nodeMetricExpirationSeconds": Argument("node_metric_expiration_ms", factor=1000),
    "resourceWeights": Argument("resource_weights"),
    "evictableNamespaces": Argument("evictable_namespaces"),
    "nodeSelector": Argument("node_selector"),
    "podSelectors": Argument("pod_selectors"),
    "detectorCacheTimeout": _NOT_YET,
    "anomalyCondition": {
        "timeout": Argument("anomaly_timeout_ms", duration="ms"),
        "consecutiveAbnormalities": Argument("consecutive_abnormalities"),
        "consecutiveNormalities": Argument("consecutive_normalities"),
    },
}
_MIGRATION: Final = {
    "dryRun": Argument("dry_run"),
    "maxMigratingPerNode": Argument("moves_per_node", "gateway"),
    "maxMigratingPerNamespace": _NOT_YET,
    "maxMigratingPerWorkload": Argument("max_migrating", "gateway"),
    "maxUnavailablePerWorkload": Argument("max_unavailable", "gateway"),
    "skipCheckExpectedReplicas": Argument("protect_last_replicas", "gateway", negate=True),
    "objectLimiters": {"workload": {"duration": Argument("move_cool_down_s", "gateway", duration="s"),
                                    "maxMigrating": _NOT_YET}},
    "defaultJobTTL": Argument("migration_ttl_ms", duration="ms"),
    **dict.fromkeys(
        ("defaultJobMode", "evictionPolicy", "evictQPS", "evictBurst", "schedulerNames", "maxConcurrentReconciles",
         "maxMigratingGlobally", "arbitrationArgs", "skipEvictionGates", "evictLocalStoragePods",
         "evictFailedBarePods", "evictSystemCriticalPods", "evictDaemonSetPods", "ignorePvcPods", "priorityThreshold",
         "labelSelector", "nodeFit", "nodeSelector"), _NOT_YET,
    ),
}  # fmt: skip
_ELASTIC_QUOTA: Final = {
    "delayEvictTime": Argument("delay_evict_s", duration="s"),
    "revokePodInterval": Argument("revoke_interval_s", duration="s"),
    "monitorAllQuotas": Argument("monitor_all_quotas"),
    "enableCheckParentQuota": Argument("check_parent_quota"),
    "enableRuntimeQuota": Argument("enable_runtime_quota"),
    "enableMinQuotaScale": Argument("scale_min_quota"),
    "disableDefaultQuotaPreemption": Argument("disable_default_quota_preemption"),
}
REFERENCE: Final[Mapping[str, Mapping[str, Any]]] = {
    "gateway": {},
    "scheduler": {
        "ElasticQuota": {
            name: Argument(entry.setting, "quota", entry.duration) for name, entry in _ELASTIC_QUOTA.items()
        },
        **dict.fromkeys(
            (
                "Coscheduling",
                "NodeNUMAResource",
                "Reservation",
                "DeviceShare",
                "NodeResourcesFitPlus",
                "ScarceResourceAvoidance",
            ),
            _NOT_YET,
        ),
    },
    "quota": {"ElasticQuota": _ELASTIC_QUOTA, **_ELASTIC_QUOTA},
    "profiler": {},
    "descheduler": {
        "LowNodeLoad": _LOW_NODE_LOAD,
        "MigrationController": _MIGRATION,
        "deschedulingInterval": Argument("descheduling_interval_ms", duration="ms"),
        "maxNoOfPodsToEvictTotal": Argument("max_pods_to_evict_per_cycle"),
        "maxNoOfPodsToEvictPerNode": _NOT_YET,
        "maxNoOfPodsToEvictPerNamespace": _NOT_YET,
        **dict.fromkeys(("CustomPriority", "FragmentationAware", "ScaleDownBinPack"), _NOT_YET),
    },
    "agent": {
        "metricReportIntervalSeconds": Argument("usage_interval_ms", factor=1000),
        "collectResUsedInterval": Argument("usage_interval_ms", duration="ms"),
    },
}


class _Sealed(ServiceSettings):
    """Settings from the scenario alone: the environment of whoever runs it must not change its outcome."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@cache
def sealed(service: str) -> type[Any]:
    """The settings class of a service, deaf to the environment."""
    base = SETTINGS[service]
    return type(f"Simulated{base.__name__}", (_Sealed, base), {"service": base.service, "__module__": __name__})


def read_config(place: Place | None) -> tuple[Overrides, list[str]]:
    """Settings by service, checked by the services' own models. Raise ScenarioError."""
    overrides: Overrides = {name: {} for name in SETTINGS}
    warnings: list[str] = []
    if place is not None:
        place.known(SETTINGS)
        for service in place.mapping():
            section = place.at(service)
            if section.value is not None:
                _read_service(service, section, overrides, warnings)
        for service, values in overrides.items():
            if values:
                _check(service, place, values)
    _follow_slow_reports(overrides)
    return overrides, warnings


def _read_service(service: str, place: Place, overrides: Overrides, warnings: list[str]) -> None:
    own = own_settings(service)
    place.known({**REFERENCE[service], **own})
    for name in place.mapping():
        if name in own:
            overrides[service][own[name]] = place.at(name).value
        else:
            _read_argument(REFERENCE[service][name], place.at(name), service, overrides, warnings)


def _read_argument(
    known: "Argument | Mapping[str, Any]", place: Place, service: str, overrides: Overrides, warnings: list[str]
) -> None:
    if not isinstance(known, Argument):
        if place.value is not None:
            place.known(known)
            for name in place.mapping():
                _read_argument(known[name], place.at(name), service, overrides, warnings)
        return
    owner = known.service or service
    if known.setting not in SETTINGS[owner].model_fields:
        warnings.append(f"{place.error('nothing acts on it yet')}")
        return
    overrides[owner][known.setting] = _converted(known, place)


def _converted(argument: Argument, place: Place) -> Any:
    if argument.duration:
        ms = place.duration_ms()
        return ms if argument.duration == "ms" else ms // 1000
    if argument.negate:
        return place.value is not True
    return argument.factor * place.integer() if argument.factor != 1 else place.value


def own_settings(service: str) -> dict[str, str]:
    """Name in the file → name of the field, for the settings a simulated service has."""
    fields = SETTINGS[service].model_fields
    return {_outer(name, field): field.alias or name for name, field in fields.items() if name not in _HIDDEN}


def _outer(name: str, field: FieldInfo) -> str:
    return field.alias or to_camel(name)


def _check(service: str, place: Place, values: Mapping[str, Any]) -> None:
    """``place`` is the whole section: an argument may stand under another service than the one it sets."""
    try:
        sealed(service)(**values)
    except ValidationError as problems:
        first = problems.errors(include_url=False)[0]
        where = _where(place.value, first["loc"], service)
        raise place.error(f"{first['msg']}, got {first['input']!r}", *where) from problems


def _where(written: Mapping[str, Any], loc: tuple[int | str, ...], service: str) -> Path:
    """The path in the file of a field that the settings refused."""
    target = str(loc[0]) if loc else ""
    found: Path = (service, target)
    for section, values in written.items():
        own = {outer: field for outer, field in own_settings(section).items() if section == service}
        direct = next((outer for outer, field in own.items() if field == target and outer in (values or {})), None)
        deeper = (direct,) if direct else _find(REFERENCE[section], target, values, section, service)
        if deeper is not None:
            found = (section, *deeper)
    return (*found, *(to_camel(part) if isinstance(part, str) and "_" in part else part for part in loc[1:]))


def _find(known: Mapping[str, Any], target: str, written: Any, section: str, service: str) -> Path | None:
    for name, entry in known.items():
        if not isinstance(written, Mapping) or name not in written:
            continue
        if isinstance(entry, Argument):
            if entry.setting == target and (entry.service or section) == service:
                return (name,)
        elif (deeper := _find(entry, target, written[name], section, service)) is not None:
            return (name, *deeper)
    return None


def _follow_slow_reports(overrides: Overrides) -> None:
    """Reports that come once a minute must not look lost after fifteen seconds; what the file sets stands."""
    interval_ms = overrides["agent"].get("usage_interval_ms")
    if not isinstance(interval_ms, int) or interval_ms <= 1_000:
        return
    scaled: dict[str, dict[str, Any]] = {
        "descheduler": {
            "node_metric_expiration_ms": 15 * interval_ms,
            "usage_window_ms": 5 * interval_ms,
            "descheduling_interval_ms": max(5_000, interval_ms),
        },
        "profiler": {
            "metric_stale_s": 10 * interval_ms / 1000,
            "window_s": 10 * interval_ms / 1000,
            "sweep_interval_s": max(5.0, interval_ms / 1000),
        },
    }
    for service, values in scaled.items():
        for name, value in values.items():
            overrides[service].setdefault(name, value)
    written = overrides["scheduler"].get(_LOAD_AWARE) or {}
    if interval_ms > _REPORTS_TO_MISS_MS and isinstance(written, Mapping):
        expiration = {"nodeMetricExpirationSeconds": 3 * interval_ms // 1000}
        overrides["scheduler"][_LOAD_AWARE] = {**expiration, **written}


def schema_text() -> str:
    """The section ``config`` with every field and its default, as a Markdown table per service."""
    parts = []
    for service in SETTINGS:
        rows = [*_reference_rows(service, REFERENCE[service]), *_own_rows(service)]
        table = "\n".join(f"| `{name}` | {default} | {note} |" for name, default, note in rows)
        parts.append(f"### `config.{service}`\n\n| field | default | |\n|---|---|---|\n{table}\n")
    return "\n".join(parts)


def _reference_rows(service: str, known: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name, entry in known.items():
        if not isinstance(entry, Argument):
            rows += _reference_rows(service, entry, f"{prefix}{name}.")
            continue
        owner = entry.service or service
        field = SETTINGS[owner].model_fields.get(entry.setting)
        if field is None:
            rows.append((prefix + name, "", "accepted; nothing acts on it yet"))
        else:
            rows.append((prefix + name, _shown_as(entry, field), ""))
    return rows


def _shown_as(argument: Argument, field: FieldInfo) -> str:
    default = _default(field)
    if argument.duration and isinstance(default, int | float):
        return durations.show(round(default * (1 if argument.duration == "ms" else 1000)))
    if argument.negate:
        return _shown(not default)
    return _shown(default // argument.factor if argument.factor != 1 and isinstance(default, int) else default)


def _own_rows(service: str) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name, field in SETTINGS[service].model_fields.items():
        if name in _HIDDEN:
            continue
        outer, default = _outer(name, field), _default(field)
        if isinstance(default, BaseModel):
            rows += [
                (f"{outer}.{inner.alias or to_camel(key)}", _shown(_default(inner)), "")
                for key, inner in type(default).model_fields.items()
            ]
        else:
            rows.append((outer, _shown(default), ""))
    return rows


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key}: {_shown(each)}" for key, each in value.items())
        return f"{{{inside}}}"
    return re.sub(r"\.0$", "", str(value)) or "''"
