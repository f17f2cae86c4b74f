"""The one arbiter of the best-effort cpu limit: the smallest wish wins and its reason travels with it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cotenant_common.model.reasons import ReasonCode


class WishSource(StrEnum):
    SUPPRESS = "suppress"
    GUARD = "guard"
    POLICY = "policy"
    FREEZE = "freeze"


@dataclass(frozen=True, slots=True)
class CpuWish:
    source: WishSource
    limit_milli: int
    reason: ReasonCode
    message: str


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """`limit_milli` is None when nobody asks for a limit."""

    limit_milli: int | None
    source: WishSource | None = None
    reason: ReasonCode = ReasonCode.RELEASED
    message: str = "nothing limits best-effort work"


def merge(wishes: Iterable[CpuWish]) -> CpuLimit:
    """On a tie the earlier wish is named, so the order of the list is the order of precedence."""
    smallest: CpuWish | None = None
    for wish in wishes:
        if smallest is None or wish.limit_milli < smallest.limit_milli:
            smallest = wish
    if smallest is None:
        return CpuLimit(None)
    return CpuLimit(smallest.limit_milli, smallest.source, smallest.reason, smallest.message)


def hold(limit: CpuLimit, held_milli: int | None, reason: str) -> CpuLimit:
    """The limit in a freeze: let go it may, tighten it may not. ``held_milli`` None: BE runs free."""
    if limit.limit_milli is None or (held_milli is not None and limit.limit_milli >= held_milli):
        return limit
    kept = "runs free" if held_milli is None else f"stays at {held_milli}m"
    message = f"BE {kept}: frozen: {reason}; it would be {limit.limit_milli}m: {limit.message}"
    return CpuLimit(held_milli, WishSource.FREEZE, ReasonCode.FROZEN, message)
