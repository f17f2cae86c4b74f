"""Why a pod may not go to a node: code, sentence, numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant_common.model.reasons import ReasonCode


@dataclass(frozen=True, slots=True)
class Refusal:
    """One node's answer."""

    code: ReasonCode
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    helps: str | None = None


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """Nodes that refuse for one reason, with the one that comes closest as the example."""

    code: ReasonCode
    nodes: int
    message: str
    example_node: str | None = None
    helps: str | None = None
    plugin: str = ""
    """Who refused; only what can change that plugin's mind is worth another attempt."""
