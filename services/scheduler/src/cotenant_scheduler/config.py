"""Settings of the scheduler; the environment prefix is ``COTENANT_SCHEDULER_``."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from cotenant_common.runtime.settings import ServiceSettings
from cotenant_scheduler.arguments import PluginFields, ProfileArguments


class SchedulerSettings(ServiceSettings, PluginFields):
    service: ClassVar[str] = "scheduler"

    plugin_config: dict[str, dict[str, Any]] = Field(default_factory=dict, alias="pluginConfig")
    """Arguments of plugins from outside the package, by name."""
    fused_kernel: Literal["auto", "on", "off"] = "auto"
    """Machine code for fit and load: some 100 MiB more, several times as fast. Auto: from 500 nodes on."""
    usage_window_s: int = Field(default=30, ge=1, le=600)
    """Plain usage is the mean over this window; shorter follows bursts, longer hides a herd."""
    percentile_window_s: int = Field(default=300, ge=30, le=3_600)
    """How much usage is kept for percentiles whose duration is not named."""
    bind_batch: int = Field(default=300, ge=1, le=450)
    """Bindings per atomic batch, at most. One takes up to two messages, and a batch holds 1,000."""
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

    def arguments(self) -> ProfileArguments:
        own = {name: getattr(self, name) for name in PluginFields.model_fields}
        return ProfileArguments(**own, others=self.plugin_config)
