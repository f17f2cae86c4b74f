"""Is this service alive, and may others rely on it? Not ready until told so, and never without a reason."""

from dataclasses import dataclass, field

from cotenant_common.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    ready: bool
    reason: str
    alive: bool
    stalled: tuple[str, ...] = ()
    """Loops whose last beat is older than they promised."""
    loops: dict[str, float] = field(default_factory=dict)
    """Seconds since the last beat, by loop."""


class Health:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready = False
        self._reason = "starting"
        self._beats: dict[str, tuple[float, float]] = {}
        self.failure: str | None = None
        """Why this process must be replaced: set once, never cleared."""

    def set_ready(self, ready: bool, reason: str = "") -> None:
        self._ready = ready
        self._reason = reason or ("" if ready else "not ready, no reason given")

    @property
    def ready(self) -> bool:
        return self._ready and self.failure is None

    @property
    def reason(self) -> str:
        return self.failure or self._reason

    def beat(self, loop_name: str, *, within_s: float = 60.0) -> None:
        """The loop promises its next beat within that time; a loop that breaks the promise fails liveness."""
        self._beats[loop_name] = (self._clock.monotonic(), within_s)

    def forget(self, loop_name: str) -> None:
        """The loop ended on purpose."""
        self._beats.pop(loop_name, None)

    def snapshot(self) -> HealthSnapshot:
        now = self._clock.monotonic()
        ages = {name: now - at for name, (at, _) in sorted(self._beats.items())}
        stalled = tuple(name for name, age in ages.items() if age > self._beats[name][1])
        alive = not stalled and self.failure is None
        return HealthSnapshot(self.ready, self.reason, alive, stalled, ages)
