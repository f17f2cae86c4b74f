"""Settings of the scheduler; the environment prefix is ``COTENANT_SCHEDULER_``.

Plugin arguments keep the reference's names, so that a ``KubeSchedulerConfiguration`` can be pasted in.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import SettingsConfigDict

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_common.runtime.settings import ServiceSettings
from cotenant_scheduler.core.estimate import Aggregation, LoadPolicy, Thresholds


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


class SchedulerSettings(ServiceSettings):
    service: ClassVar[str] = "scheduler"

    load_aware_scheduling: LoadAwareArguments = Field(default=LoadAwareArguments(), alias="LoadAwareScheduling")
    """Filter thresholds are off until set: a service that fills an idle node must start."""
    usage_window_s: int = Field(default=30, ge=1, le=600)
    """Plain usage is the mean over this window; shorter follows bursts, longer hides a herd."""
    percentile_window_s: int = Field(default=300, ge=30, le=3_600)
    """How much usage is kept for percentiles whose duration is not named."""
    bind_batch: int = Field(default=100, ge=1, le=300)
    """Bindings per atomic batch. One takes up to two messages, and a batch holds 1,000."""
    bind_backlog: int = Field(default=2_000, ge=1)
    """Placements that may wait for the bus before deciding pauses: what is decided later is decided better."""
    rejected_back_off_s: int = Field(default=10, ge=1)
    """How long a node that refused a pod is left alone by it; doubles with each refusal, at most 5 minutes."""
    audit_interval_s: float = Field(default=30.0, gt=0)
    """How often charges are compared with bindings as they stand."""
    snapshot_timeout_s: float = Field(default=30.0, gt=0)
    lease_ttl_s: int = Field(default=4, ge=2)
    seed: int = 0
    """Breaks ties between equal nodes."""

    model_config = SettingsConfigDict(populate_by_name=True)
