"""Commands carry an id and a deadline; delivering one twice changes nothing. Queries carry neither."""

from typing import Any, Literal

from pydantic import Field

from cotenant_common.contracts.messages.base import Message, PodRef

EvictionKind = Literal["move", "preempt", "reclaim", "emergency", "drain"]


class EvictRequest(Message):
    """All victims or none."""

    id: str
    kind: EvictionKind
    victims: list[PodRef]
    requested_by: str
    reason: str
    message: str
    numbers: dict[str, Any] = Field(default_factory=dict)
    beneficiary: str | None = None
    """uid or quota to whom the room is promised; required for preempt and reclaim."""
    landing_node: str | None = None
    """Node where a move has a place; required for move."""
    landing_reservation: str | None = None
    """Reservation that holds the place; it has to be Available on ``landing_node``."""
    grace_ms: int | None = None
    deadline_ms: int | None = None
    dry_run: bool = False


class VictimDecision(Message):
    pod: PodRef
    granted: bool
    reason: str | None = None
    message: str = ""
    successor_uid: str | None = None


class EvictReply(Message):
    id: str
    granted: bool
    reason: str | None = None
    message: str
    victims: list[VictimDecision] = Field(default_factory=list)
    numbers: dict[str, Any] = Field(default_factory=dict)
    """What the answer was worked out from."""
    retry_after_ms: int | None = None
    """When the same request may fare better with nothing else changed; None where time changes nothing."""


class ApplyRequest(Message):
    """Another service asks the gateway to write an object for it."""

    id: str
    manifests: list[dict[str, Any]]
    requested_by: str
    dry_run: bool = False


class ApplyResult(Message):
    kind: str
    namespace: str | None = None
    name: str
    action: Literal["created", "configured", "unchanged", "refused"]
    uid: str | None = None
    warnings: list[str] = Field(default_factory=list)
    errors: list[str] = Field(default_factory=list)


class ApplyReply(Message):
    id: str
    ok: bool
    results: list[ApplyResult]


class EmergencyUsed(Message):
    """An agent reports a removal it decided alone, under its leased allowance."""

    id: str
    node: str
    victim: PodRef
    reason: str
    message: str
    numbers: dict[str, Any] = Field(default_factory=dict)
    at_ms: int


class ExplainRequest(Message):
    namespace: str
    name: str


class ExplainReply(Message):
    """The scheduler's story of one pod."""

    found: bool
    uid: str | None = None
    state: str
    reason: str | None = None
    message: str
    nodes_total: int = 0
    refusals: list[dict[str, Any]] = Field(default_factory=list)
    helps: list[str] = Field(default_factory=list)
    scores: dict[str, int] = Field(default_factory=dict)
    node: str | None = None
    quota: dict[str, Any] | None = None
    attempts: int = 0
    timeline: list[dict[str, Any]] = Field(default_factory=list)


class WhyNotRequest(Message):
    namespace: str
    name: str
    node: str


class WhyNotReply(Message):
    fits: bool
    reasons: list[dict[str, Any]] = Field(default_factory=list)
    message: str


class LogsRequest(Message):
    """``after`` is the cursor of the last reply; an agent answers with at most 256 KiB."""

    uid: str
    container: str | None = None
    tail_lines: int | None = None
    after: str | None = None
    limit_bytes: int = 262_144


class LogsReply(Message):
    found: bool
    text: str = ""
    cursor: str | None = None
    running: bool = False
    message: str = ""


class QuotaTreeRequest(Message):
    tree: str | None = None


class QuotaTreeReply(Message):
    trees: list[dict[str, Any]]
