"""From a jumping target to a published number: down at once, up only after the room has stayed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Smoothed:
    """``value`` is what is published. ``floor`` is the least target seen since ``rising_ms``, while it rises."""

    value: int
    published_ms: int
    rising_ms: int | None = None
    floor: int = 0


@dataclass(frozen=True, slots=True)
class SmoothPolicy:
    """``diff_ratio`` of the value is noise, ``hold_ms`` a rise must last, ``refresh_ms`` ends small drifts."""

    diff_ratio: float
    hold_ms: int
    refresh_ms: int


def differs(old: int, new: int, ratio: float) -> bool:
    """Koordinator's resourceDiffThreshold: strictly more than the ratio of the old value; anything differs from 0."""
    return new != 0 if old == 0 else abs(new - old) > old * ratio


def smooth(before: Smoothed | None, target: int, now_ms: int, policy: SmoothPolicy) -> Smoothed:
    """The next state; publish when ``value`` changed or ``published_ms`` moved.

    A value of 0 is never held back: room that is gone is gone. What is published never passes the least target
    of the hold time, so a moment of idleness sells nothing.
    """
    if before is None:
        return Smoothed(target, now_ms)
    if target < before.value and (target == 0 or differs(before.value, target, policy.diff_ratio)):
        return Smoothed(target, now_ms)
    if now_ms - before.published_ms >= policy.refresh_ms and target <= before.value:
        return Smoothed(target, now_ms)
    if target <= before.value:
        return Smoothed(before.value, before.published_ms)
    return _rise(before, target, now_ms, policy)


def _rise(before: Smoothed, target: int, now_ms: int, policy: SmoothPolicy) -> Smoothed:
    since = now_ms if before.rising_ms is None else before.rising_ms
    floor = target if before.rising_ms is None else min(before.floor, target)
    if now_ms - since < policy.hold_ms:
        return Smoothed(before.value, before.published_ms, since, floor)
    due = now_ms - before.published_ms >= policy.refresh_ms
    if differs(before.value, floor, policy.diff_ratio) or due:
        return Smoothed(floor, now_ms)
    # Too small to tell now. The hold starts again, so that the floor is never older than it.
    return Smoothed(before.value, before.published_ms, now_ms, target)
