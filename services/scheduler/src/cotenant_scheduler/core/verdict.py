"""The answer to one attempt, in words for people and in codes for whoever decides when to try again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.refusals import RefusalGroup

NODES_TOPIC: Final = "nodes"


def quota_topic(name: str) -> str:
    return f"quota/{name}"


class Waiting(StrEnum):
    """State of a pod that is not placed, as ``podsched`` names it."""

    QUEUED = "Queued"
    GATED = "Gated"
    UNSCHEDULABLE = "Unschedulable"
    REJECTED = "Rejected"
    NOMINATED = "Nominated"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``signature`` ignores numbers: an event is due when it changes, not whenever a node frees a milli-core."""

    state: Waiting
    reason: ReasonCode
    message: str
    groups: tuple[RefusalGroup, ...] = ()
    nodes_total: int = 0
    helps: tuple[str, ...] = ()
    quota_chain: tuple[str, ...] = ()
    """Set when the quota said no: only these quotas can help."""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def codes(self) -> frozenset[ReasonCode]:
        return frozenset(group.code for group in self.groups)

    @property
    def topics(self) -> tuple[str, ...]:
        """What has to happen before it is worth asking again: quota names, or plugins that may change their mind."""
        if self.quota_chain:
            return tuple(quota_topic(name) for name in self.quota_chain)
        return (NODES_TOPIC, *sorted({group.plugin for group in self.groups}))

    @property
    def signature(self) -> tuple[str, ...]:
        return (self.state, self.reason, *sorted(self.codes))
