"""Arguments of plugins in the reference's names, so that a ``KubeSchedulerConfiguration`` can be pasted in."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_scheduler.core.estimate import Aggregation, LoadPolicy, Thresholds
from cotenant_scheduler.core.plugins.fit_scores import PlusRule, PlusRules, Strategy
from cotenant_scheduler.core.plugins.registry import FILTERS, WEIGHTS
from cotenant_scheduler.core.profile import Outside, PluginChoice, Profile


def _check_amounts(value: dict[str, int]) -> dict[str, int]:
    if set(value) - {CPU, MEMORY} or any(each < 0 for each in value.values()):
        raise ValueError(f"expected whole numbers from 0 for cpu and memory, got {value}")
    return value


Amounts = Annotated[dict[str, int], AfterValidator(_check_amounts)]
AggregationType = Literal["", "avg", "p50", "p90", "p95", "p99"]
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class Arguments(BaseModel):
    """Reference arguments: camelCase outside, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


def duration_ms(text: str | int) -> int:
    """A Go duration such as ``5m`` or ``1m30s``; a bare number is seconds. Raise ValueError."""
    if isinstance(text, int) or text.isdecimal():
        return 1000 * int(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"expected a duration such as 30s or 5m, got {text!r}")
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))


class AggregatedArguments(Arguments):
    usage_thresholds: Amounts = Field(default_factory=dict)
    usage_aggregation_type: AggregationType = ""
    usage_aggregated_duration: str | int = 0
    score_aggregation_type: AggregationType = ""
    score_aggregated_duration: str | int = 0

    @field_validator("usage_aggregated_duration", "score_aggregated_duration")
    @classmethod
    def _check(cls, value: str | int) -> str | int:
        duration_ms(value)
        return value


class LoadAwareArguments(Arguments):
    """``LoadAwareScheduling``. Percent by resource; a threshold that is absent or 0 is off."""

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = Field(default=180, gt=0)
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: Amounts = Field(default_factory=dict)
    dominant_resource_weight: int = Field(default=0, ge=0)
    usage_thresholds: Amounts = Field(default_factory=dict)
    prod_usage_thresholds: Amounts = Field(default_factory=dict)
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimated_scaling_factors: Amounts = Field(default_factory=dict)
    allow_customize_estimation: bool = False
    estimated_seconds_after_pod_scheduled: int | None = Field(default=None, ge=0)
    estimated_seconds_after_initialized: int | None = Field(default=None, ge=0)
    aggregated: AggregatedArguments | None = None

    def policy(self) -> LoadPolicy:
        aggregated = self.aggregated or AggregatedArguments()
        factors = {CPU: 85, MEMORY: 70} | self.estimated_scaling_factors
        weights = self.resource_weights or ({CPU: 1, MEMORY: 1} if not self.dominant_resource_weight else {})
        return LoadPolicy(
            thresholds=Thresholds(
                self.usage_thresholds,
                self.prod_usage_thresholds,
                aggregated.usage_thresholds,
                _aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
            ),
            filter_expired=self.filter_expired_node_metrics,
            schedule_when_expired=self.enable_schedule_when_node_metrics_expired,
            expiration_ms=1000 * self.node_metric_expiration_seconds,
            weights=weights,
            dominant_weight=self.dominant_resource_weight,
            scaling_factors=factors,
            prod_usage_includes_system=self.prod_usage_include_sys,
            score_by_prod_usage=self.score_according_prod_usage,
            score_aggregation=_aggregation(aggregated.score_aggregation_type, aggregated.score_aggregated_duration),
            allow_customize=self.allow_customize_estimation,
            after_scheduled_ms=_milliseconds(self.estimated_seconds_after_pod_scheduled),
            after_initialized_ms=_milliseconds(self.estimated_seconds_after_initialized),
        )


def _aggregation(kind: str, duration: str | int) -> Aggregation | None:
    return Aggregation(kind, duration_ms(duration)) if kind else None


def _milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None else 1000 * seconds


def own_thresholds(section: Mapping[str, Any]) -> Thresholds:
    """The annotation ``usage-thresholds`` of a node. Raise ValueError (pydantic's) naming the field."""
    read = OwnThresholds.model_validate(section)
    aggregated = read.aggregated_usage or AggregatedArguments()
    return Thresholds(
        read.usage_thresholds,
        read.prod_usage_thresholds,
        aggregated.usage_thresholds,
        _aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
    )


class OwnThresholds(Arguments):
    usage_thresholds: Amounts = Field(default_factory=dict)
    prod_usage_thresholds: Amounts = Field(default_factory=dict)
    aggregated_usage: AggregatedArguments | None = None


Weight = Annotated[int, Field(ge=0, le=10_000)]
_ALL: Final = "*"
_NEEDED: Final = "NodeResourcesFit"
_ELSEWHERE: Final = frozenset(
    {"Coscheduling", "DefaultBinder", "DefaultPreBind", "DefaultPreemption", "DeviceShare", "ElasticQuota"}
    | {"ImageLocality", "NodeName", "NodeNUMAResource", "PrioritySort", "Reservation", "SchedulingGates"}
    | {"EBSLimits", "GCEPDLimits", "AzureDiskLimits", "NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions"}
    | {"VolumeZone", "DynamicResources"}
)
"""Plugins of the reference that are no plugins here: built in, or about things that do not exist here."""


class WeightedResource(Arguments):
    name: str
    weight: Weight = 1


class ScoringStrategy(Arguments):
    type: Strategy = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = (WeightedResource(name=CPU), WeightedResource(name=MEMORY))


class FitArguments(Arguments):
    """``NodeResourcesFit``."""

    scoring_strategy: ScoringStrategy = ScoringStrategy()


class PlusArguments(Arguments):
    type: Strategy = "LeastAllocated"
    weight: Weight = 1


class FitPlusArguments(Arguments):
    """``NodeResourcesFitPlus``: a strategy and a weight per resource."""

    resources: dict[str, PlusArguments] = Field(default_factory=dict)


class ScarceArguments(Arguments):
    """``ScarceResourceAvoidance``."""

    resources: tuple[str, ...] = ()


class HintArguments(Arguments):
    """``SchedulingHint``."""

    max_hint_nodes: int = Field(default=100, ge=0)


class PluginName(Arguments):
    name: str
    weight: Weight | None = None


class ExtensionPoint(Arguments):
    enabled: tuple[PluginName, ...] = ()
    disabled: tuple[PluginName, ...] = ()

    def off(self, names: Iterable[str]) -> set[str]:
        """``*`` means all that are not enabled by name."""
        off = {each.name for each in self.disabled}
        everything = set(names) if _ALL in off else set()
        return (off | everything) - {each.name for each in self.enabled}


class PluginsArguments(Arguments):
    """Which plugins take part. Other extension points of the reference are read and have nothing to say here."""

    model_config = ConfigDict(extra="ignore")

    multi_point: ExtensionPoint = ExtensionPoint()
    filter: ExtensionPoint = ExtensionPoint()
    score: ExtensionPoint = ExtensionPoint()

    def enabled(self) -> dict[str, PluginName]:
        """By name; what ``score`` says of a weight outranks what ``multiPoint`` says."""
        points = (self.multi_point, self.filter, self.score)
        return {each.name: each for point in points for each in point.enabled}

    def weights(self) -> dict[str, int]:
        off = self.multi_point.off(WEIGHTS) - {each.name for each in self.score.enabled} | self.score.off(WEIGHTS)
        on = {each.name: each.weight for point in (self.multi_point, self.score) for each in point.enabled}
        return dict.fromkeys(sorted(off & set(WEIGHTS)), 0) | {
            name: weight or max(1, WEIGHTS[name]) for name, weight in on.items() if name in WEIGHTS
        }

    def filters_off(self) -> frozenset[str]:
        off = self.multi_point.off(FILTERS) - {each.name for each in self.filter.enabled} | self.filter.off(FILTERS)
        return frozenset(off & set(FILTERS))


class PluginFields(BaseModel):
    """What a profile and the settings say of plugins in the same words."""

    load_aware_scheduling: LoadAwareArguments = Field(default=LoadAwareArguments(), alias="LoadAwareScheduling")
    """Filter thresholds are off until set: a service that fills an idle node must start."""
    node_resources_fit: FitArguments = Field(default=FitArguments(), alias="NodeResourcesFit")
    node_resources_fit_plus: FitPlusArguments = Field(default=FitPlusArguments(), alias="NodeResourcesFitPlus")
    scarce_resource_avoidance: ScarceArguments = Field(default=ScarceArguments(), alias="ScarceResourceAvoidance")
    scheduling_hint: HintArguments = Field(default=HintArguments(), alias="SchedulingHint")
    plugins: PluginsArguments = PluginsArguments()
    """Which plugins take part and with what weight, as in a profile of the reference."""


class ProfileArguments(Arguments, PluginFields):
    """A profile as ``pluginConfig`` and ``plugins`` spell it. ``others`` are arguments of plugins from outside."""

    others: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def profile(self, outside: Iterable[str] = ()) -> Profile:
        """``outside`` names the plugins that are installed. Raise ValueError for one that nobody knows."""
        plugins, known = self.plugins, sorted({*outside})
        enabled = plugins.enabled()
        for name in sorted(enabled):
            if name not in {*known, *FILTERS, *WEIGHTS, *_ELSEWHERE}:
                names = ", ".join(sorted({*known, *FILTERS, *WEIGHTS}))
                raise ValueError(f"plugins: no plugin {name} is installed; there are {names}")
        if _NEEDED in plugins.filters_off():
            raise ValueError(f"plugins.filter.disabled: {_NEEDED} stays on, or nodes would be overfilled")
        strategy = self.node_resources_fit.scoring_strategy
        rules = {
            name: PlusRule(each.type, each.weight) for name, each in self.node_resources_fit_plus.resources.items()
        }
        choice = PluginChoice(
            weights=plugins.weights(),
            filters_off=plugins.filters_off(),
            fit_strategy=strategy.type,
            fit_weights={each.name: each.weight for each in strategy.resources},
            fit_plus=PlusRules(rules),
            scarce=self.scarce_resource_avoidance.resources,
            most_hint_nodes=self.scheduling_hint.max_hint_nodes,
            outside=tuple(
                Outside(name, enabled[name].weight, self.others.get(name, {})) for name in known if name in enabled
            ),
        )
        return Profile(self.load_aware_scheduling.policy(), choice)
