"""Settings of the quota service; the environment prefix is ``COTENANT_QUOTA_``."""

from typing import ClassVar

from pydantic import Field

from cotenant_common.runtime.settings import ServiceSettings


class QuotaSettings(ServiceSettings):
    """Quotas themselves are ElasticQuota objects; here is only how the service works."""

    service: ClassVar[str] = "quota"

    gather_ms: int = Field(default=5, ge=0, le=50)
    """After a quiet time a change is published that long after it came: what one write brings along comes together."""
    coalesce_ms: int = Field(default=50, ge=0, le=150)
    """Least time between two publications, more for trees of more than 500 quotas. The scheduler waits 200 ms for one
    that covers a new pod."""
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
    enable_runtime_quota: bool = True
    """Share by demand. Off: every quota may use its max, and nothing is lent or revoked."""
    monitor_all_quotas: bool = True
    """Have borrowers give back what others are owed and wait for (over-use revoke)."""
    delay_evict_s: float = Field(default=120.0, ge=0)
    """How long a quota may use more than its share before its pods are evicted for it (delayEvictTime)."""
    revoke_interval_s: float = Field(default=1.0, gt=0)
    """How often over-use and held queues are looked at (revokePodInterval)."""
    revoke_unclaimed: bool = False
    """Revoke over-use that nobody waits for too, such as what a lowered max leaves."""
    refused_pause_s: float = Field(default=10.0, ge=0)
    """A pod that the eviction gate refused is not asked for again within this time; others are."""
    profile_interval_s: float = Field(default=10.0, gt=0)
    """How often the quotas of node pools are brought up to date."""
    use_default_quota: bool = True
    """Pods that name no quota are charged to the default quota (not DisableDefaultQuota)."""
