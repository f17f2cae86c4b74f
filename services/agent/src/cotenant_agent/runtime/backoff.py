"""When an ended container runs again. Pure; the numbers are the kubelet's, but for a start of 1 s instead of 10."""

from dataclasses import dataclass
from enum import StrEnum

FIRST_DELAY_MS = 1_000
LONGEST_DELAY_MS = 300_000
HEALTHY_RUN_MS = 600_000


class RestartPolicy(StrEnum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class RestartAt:
    """`streak` is to be handed in with the next exit: restarts in a row without a healthy run."""

    at_ms: int
    delay_ms: int
    streak: int
    reason: str


@dataclass(frozen=True, slots=True)
class Terminal:
    succeeded: bool
    reason: str


def decide_restart(
    policy: RestartPolicy, status_code: int | None, *, streak: int, ran_ms: int | None, finished_at_ms: int
) -> RestartAt | Terminal:
    """`status_code` None: nobody saw the end. That is a failure, for success is what must be proven."""
    succeeded = status_code == 0
    ended = "ended with an unknown status" if status_code is None else f"exited with {status_code}"
    if policy is RestartPolicy.NEVER or (policy is RestartPolicy.ON_FAILURE and succeeded):
        return Terminal(succeeded, f"{ended}; restartPolicy {policy}")
    healthy = ran_ms is not None and ran_ms >= HEALTHY_RUN_MS
    before = 0 if healthy else streak
    delay_ms = backoff_ms(before)
    ran = "" if ran_ms is None else f" after {ran_ms} ms"
    return RestartAt(
        at_ms=finished_at_ms + delay_ms,
        delay_ms=delay_ms,
        streak=before + 1,
        reason=f"{ended}{ran}; restartPolicy {policy}, restart in {delay_ms} ms",
    )


def backoff_ms(streak: int) -> int:
    """1 s, doubling to 5 min."""
    # The exponent is capped before the power is taken: a crash loop of a month must not build huge integers.
    return min(LONGEST_DELAY_MS, FIRST_DELAY_MS << min(streak, 16))
