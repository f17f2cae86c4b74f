"""Facts, past tense. On the wire a CloudEvent: attributes in ``ce-*`` headers, this model as the MessagePack body."""

from typing import Any

from pydantic import Field

from cotenant_common.contracts.messages.base import Message


class Event(Message):
    """``id`` names the state write that the event tells of (bucket, key, revision), so a replay is recognised."""

    id: str
    type: str
    """``pod.bound``: noun and verb of the subject."""
    at_ms: int
    source: str
    object: str
    """``Kind/namespace/name``; ``-`` stands for cluster scope."""
    uid: str | None = None
    reason: str | None = None
    message: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
    cause_id: str | None = None


EVENT_TYPES = (
    "pod.queued",
    "pod.bound",
    "pod.started",
    "pod.ready",
    "pod.restarted",
    "pod.finished",
    "pod.deleted",
    "pod.unschedulable",
    "pod.evicted",
    "pod.preempted",
    "pod.rejected",
    "quota.borrowed",
    "quota.returned",
    "quota.reclaimed",
    "quota.over",
    "node.registered",
    "node.ready",
    "node.notready",
    "node.lost",
    "node.hot",
    "node.cooled",
    "node.suppressed",
    "node.released",
    "interference.detected",
    "interference.mitigated",
    "interference.cleared",
    "migration.started",
    "migration.reserved",
    "migration.aborted",
    "migration.succeeded",
    "capacity.changed",
    "ledger.repaired",
    "emergency.used",
    "eviction.refused",
    "cluster.frozen",
    "cluster.unfrozen",
    "cluster.observed",
    "object.applied",
    "object.deleted",
    "policy.changed",
)
"""Closed set: metrics use it as a label, and a typo in a publisher fails its test."""

AGENT_EVENT_TYPES = (
    "pod.started",
    "pod.ready",
    "pod.restarted",
    "pod.finished",
    "pod.rejected",
    "node.registered",
    "node.suppressed",
    "node.released",
    "interference.detected",
    "interference.cleared",
    "emergency.used",
)
"""What an agent may tell: of pods, and the rest of its own node only."""
