"""Settings of the quota service; the environment prefix is ``COTENANT_QUOTA_``."""

from typing import ClassVar

from pydantic import Field

from cotenant_common.runtime.settings import ServiceSettings


class QuotaSettings(ServiceSettings):
    """Quotas themselves are ElasticQuota objects; here is only how the service works."""

    service: ClassVar[str] = "quota"

    coalesce_ms: int = Field(default=50, ge=0, le=150)
    """Changes within this time become one publication. The scheduler waits 200 ms for one that covers a new pod."""
    lease_ttl_s: int = Field(default=4, ge=2)
    """A standby takes over that long after a leader died without a word."""
    audit_interval_s: float = Field(default=60.0, gt=0)
    """How often the ledger is compared with specs and bindings as they stand."""
    snapshot_timeout_s: float = Field(default=30.0, gt=0)
    """How long a snapshot may take before the service says why it is not ready."""
    scale_min_quota: bool = True
    """Scale the mins of siblings down when together they pass what there is (enableMinQuotaScale)."""
    guarantee_usage: bool = False
    """Never cut a quota below what it uses (ElasticQuotaGuaranteeUsage)."""
    use_default_quota: bool = True
    """Pods that name no quota are charged to the default quota (not DisableDefaultQuota)."""
