"""Which best-effort pods must leave when memory runs short (Koordinator's memory eviction), and how many alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cotenant_common.model.reasons import ReasonCode


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running BE pod. `memory_bytes` is None when it has no sample yet. `leaving`: already asked to go."""

    uid: str
    name: str
    priority: int
    memory_bytes: int | None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class MemoryInputs:
    capacity_bytes: int
    used_bytes: int | None
    threshold_percent: int | None
    lower_percent: int | None = None
    candidates: Sequence[Candidate] = ()


@dataclass(frozen=True, slots=True)
class Victim:
    uid: str
    reason: ReasonCode
    message: str


@dataclass(frozen=True, slots=True)
class MemoryDecision:
    used_percent: int
    release_bytes: int
    victims: tuple[Victim, ...]


def memory_victims(inputs: MemoryInputs) -> MemoryDecision | None:
    """None when the rule is off, not measured, or memory is below the line."""
    threshold = inputs.threshold_percent
    if threshold is None or threshold < 0 or inputs.used_bytes is None or inputs.capacity_bytes <= 0:
        return None
    used_percent = inputs.used_bytes * 100 // inputs.capacity_bytes
    if used_percent < threshold:
        return None
    lower = threshold - 2 if inputs.lower_percent is None else inputs.lower_percent
    release = inputs.capacity_bytes * (used_percent - lower) // 100
    # A victim that has not gone yet still shows as used; without counting it each round would choose another one.
    freed = sum(pod.memory_bytes or 0 for pod in inputs.candidates if pod.leaving)
    victims: list[Victim] = []
    for pod in sorted((pod for pod in inputs.candidates if not pod.leaving), key=_order):
        if freed >= release:
            break
        freed += pod.memory_bytes or 0
        victims.append(_victim(pod, used_percent, threshold, release))
    return MemoryDecision(used_percent, release, tuple(victims))


def _order(pod: Candidate) -> tuple[int, int, int, tuple[int, ...]]:
    """Lowest priority, then largest use (unknown last), then the later name."""
    unknown = pod.memory_bytes is None
    return (pod.priority, int(unknown), -(pod.memory_bytes or 0), (*(-ord(letter) for letter in pod.name), 1))


def _victim(pod: Candidate, used_percent: int, threshold: int, release: int) -> Victim:
    size = "an unknown amount" if pod.memory_bytes is None else f"{pod.memory_bytes} bytes"
    return Victim(
        pod.uid,
        ReasonCode.NODE_PRESSURE,
        f"memory is at {used_percent}%, the line is {threshold}%; {release} bytes must go and {pod.name} holds {size}",
    )


@dataclass(frozen=True, slots=True)
class Allowance:
    """Removals that the node may decide alone. The gate's answers renew it; without them it runs out.

    One at a time: the next is spent only after `cool_down_ms`, so that the effect of the last can be seen.
    """

    size: int
    left: int
    cool_down_ms: int
    last_ms: int | None = None

    def may_spend(self, now_ms: int) -> bool:
        return self.left > 0 and (self.last_ms is None or now_ms - self.last_ms >= self.cool_down_ms)

    def spend(self, now_ms: int) -> "Allowance":
        return replace(self, left=self.left - 1, last_ms=now_ms)

    def renew(self) -> "Allowance":
        return replace(self, left=self.size)
