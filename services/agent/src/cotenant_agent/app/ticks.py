"""What one tick came to, and when the next one may come to the same."""

from dataclasses import dataclass
from typing import Final

from cotenant_agent.core.evict import MemoryDecision
from cotenant_agent.core.guard import GuardState
from cotenant_agent.core.merge import CpuLimit
from cotenant_agent.core.usage import NodeUsage

_REST_MS: Final = 60_000
_REST_INTERVALS: Final = 10


@dataclass(frozen=True, slots=True)
class Tick:
    usage: NodeUsage
    limit: CpuLimit
    be_limit_milli: int | None
    """What BE is really held to now; None while nothing caps it."""
    guard: GuardState
    memory: MemoryDecision | None
    wish_milli: int | None = None
    """What BE would be held to; a freeze or an observation holds it to less strict a limit."""
    would_evict: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rest:
    """A tick that wrote nothing and moved no state: the same usage would make it once more.

    Only for a while, since others may turn knobs: a real machine never measures the same twice, a simulated one does.
    """

    tick: Tick
    since_ms: int

    def holds(self, usage: NodeUsage, now_ms: int) -> bool:
        return usage == self.tick.usage and now_ms - self.since_ms < max(_REST_MS, _REST_INTERVALS * usage.interval_ms)
