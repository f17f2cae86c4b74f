"""Settings of the descheduler, with Koordinator's names where it has one."""

from typing import ClassVar

from pydantic import Field

from cotenant_common.runtime.settings import ServiceSettings
from cotenant_descheduler.core.classify import Thresholds
from cotenant_descheduler.core.decide import Limits
from cotenant_descheduler.core.detector import AnomalyCondition


class DeschedulerSettings(ServiceSettings):
    """Percent of allocatable for thresholds; an empty map switches a set of thresholds off."""

    service: ClassVar[str] = "descheduler"

    lease_ttl_s: int = Field(default=4, ge=2)
    descheduling_interval_ms: int = Field(5_000, ge=500)
    """Longer than a suppress takes to work (1 s), so that the agent's cure is tried before a pod leaves."""
    usage_window_ms: int = Field(5_000, ge=1_000)
    node_metric_expiration_ms: int = Field(15_000, ge=1_000)
    """Fifteen reports in a row lost: the node's load is unknown, and unknown is never hot."""
    high_thresholds: dict[str, float] = Field(default_factory=lambda: dict(Thresholds().total))
    prod_high_thresholds: dict[str, float] = Field(default_factory=lambda: dict(Thresholds().prod))
    memory_pressure_threshold: float | None = Thresholds().memory_pressure
    run_queue_wait_threshold_ms: float | None = Thresholds().run_queue_wait_ms
    consecutive_abnormalities: int = Field(5, ge=0)
    consecutive_normalities: int = Field(3, ge=0)
    max_pods_to_evict_per_cycle: int | None = Field(None, ge=0)
    cool_down_ms: int = Field(300_000, ge=0)
    migration_ttl_ms: int = Field(300_000, ge=1_000)
    """A move whose successor does not run by then is recorded as failed."""
    migration_history_ms: int = Field(3_600_000, ge=0)
    dry_run: bool = False
    """Decide and report, ask the gate with dry_run, remove nothing."""

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            total=self.high_thresholds,
            prod=self.prod_high_thresholds,
            memory_pressure=self.memory_pressure_threshold,
            run_queue_wait_ms=self.run_queue_wait_threshold_ms,
        )

    @property
    def condition(self) -> AnomalyCondition:
        return AnomalyCondition(self.consecutive_abnormalities, self.consecutive_normalities)

    @property
    def limits(self) -> Limits:
        return Limits(per_cycle=self.max_pods_to_evict_per_cycle, cool_down_ms=self.cool_down_ms)
