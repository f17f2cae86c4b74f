"""Settings of the profiler; the environment prefix is ``COTENANT_PROFILER_``."""

from typing import ClassVar

from pydantic import Field

from cotenant_common.runtime.settings import ServiceSettings
from cotenant_profiler.core.node import Tuning


class ProfilerSettings(ServiceSettings):
    """What is sold on a node is its colocation strategy's business; here is only how the service works."""

    service: ClassVar[str] = "profiler"

    coalesce_ms: int = Field(default=100, ge=0)
    """Changes within this time become one write: usage of many nodes arrives spread over every second."""
    sweep_interval_s: float = Field(default=5.0, gt=0)
    """How often nodes that say nothing are looked at, for expired metrics."""
    window_s: float = Field(default=10.0, gt=0)
    """CPU is averaged over this time. Koordinator takes five minutes, and batch then waits that long for idle cores."""
    metric_stale_s: float = Field(default=60.0, gt=0)
    """Silence after which nothing is sold; samples come every second. degradeTimeMinutes holds when it is shorter."""
    rise_hold_s: float = Field(default=10.0, ge=0)
    """More is offered only after the room has stayed this long; less is offered at once."""
    learn_interval_s: float = Field(default=60.0, gt=0)
    """How often the histograms learn a sample."""
    cold_start_s: float = Field(default=86_400.0, ge=0)
    """Younger models and pods give nothing to mid: a peak comes once a day."""
    lease_ttl_s: int = Field(default=4, ge=2)
    """A standby takes over that long after a leader died without a word."""
    snapshot_timeout_s: float = Field(default=30.0, gt=0)
    """How long a snapshot may take before the service says why it is not ready."""

    def tuning(self) -> Tuning:
        return Tuning(
            window_ms=round(self.window_s * 1000),
            stale_ms=round(self.metric_stale_s * 1000),
            rise_hold_ms=round(self.rise_hold_s * 1000),
            learn_ms=round(self.learn_interval_s * 1000),
            cold_start_ms=round(self.cold_start_s * 1000),
        )
