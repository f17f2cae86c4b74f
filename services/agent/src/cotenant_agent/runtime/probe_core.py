"""Readiness, liveness and startup probes as a state machine. Pure: results and `now_ms` in, changes out."""

from dataclasses import dataclass, replace
from enum import StrEnum


class ProbeKind(StrEnum):
    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


@dataclass(frozen=True, slots=True)
class ExecAction:
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpGetAction:
    port: int
    path: str = "/"
    host: str = "127.0.0.1"
    scheme: str = "HTTP"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TcpSocketAction:
    port: int
    host: str = "127.0.0.1"


ProbeAction = ExecAction | HttpGetAction | TcpSocketAction


@dataclass(frozen=True, slots=True)
class Probe:
    """Defaults are those of Kubernetes."""

    action: ProbeAction
    initial_delay_ms: int = 0
    period_ms: int = 10_000
    timeout_ms: int = 1_000
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_ms: int | None = None
    """For the container that it ends; None: the pod's."""


@dataclass(frozen=True, slots=True)
class ContainerProbes:
    readiness: Probe | None = None
    liveness: Probe | None = None
    startup: Probe | None = None

    def restart_grace_ms(self, *, started: bool) -> int | None:
        """Of the probe that may ask for a restart now: startup until it succeeded, then liveness."""
        probe = self.liveness if started else self.startup
        return None if probe is None else probe.grace_ms

    def get(self, kind: ProbeKind) -> Probe | None:
        match kind:
            case ProbeKind.STARTUP:
                return self.startup
            case ProbeKind.LIVENESS:
                return self.liveness
            case ProbeKind.READINESS:
                return self.readiness


@dataclass(frozen=True, slots=True)
class ProbeResult:
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class Streak:
    """Results in a row of one probe, and when it is next due."""

    next_at_ms: int
    last_ok: bool | None = None
    count: int = 0

    def add(self, ok: bool, next_at_ms: int) -> "Streak":
        return Streak(next_at_ms, ok, self.count + 1 if ok is self.last_ok else 1)


@dataclass(frozen=True, slots=True)
class ProbeState:
    """`restart` is the reason to end the container; once set, nothing is due any more."""

    started: bool
    ready: bool
    restart: str | None
    startup: Streak | None
    liveness: Streak | None
    readiness: Streak | None

    def streak(self, kind: ProbeKind) -> Streak | None:
        match kind:
            case ProbeKind.STARTUP:
                return self.startup
            case ProbeKind.LIVENESS:
                return self.liveness
            case ProbeKind.READINESS:
                return self.readiness


def initial(probes: ContainerProbes, started_at_ms: int) -> ProbeState:
    """Without a probe the answer is yes; with one, readiness and startup must be shown first."""

    def first(probe: Probe | None) -> Streak | None:
        return None if probe is None else Streak(started_at_ms + probe.initial_delay_ms)

    return ProbeState(
        started=probes.startup is None,
        ready=probes.startup is None and probes.readiness is None,
        restart=None,
        startup=first(probes.startup),
        liveness=first(probes.liveness),
        readiness=first(probes.readiness),
    )


def next_at_ms(state: ProbeState, kind: ProbeKind) -> int | None:
    """None while this probe has nothing to ask: not set, waiting for startup, or past its purpose."""
    streak = state.streak(kind)
    if streak is None or state.restart is not None:
        return None
    asks_startup = kind is ProbeKind.STARTUP
    return streak.next_at_ms if asks_startup is not state.started else None


def observe(
    probes: ContainerProbes, state: ProbeState, kind: ProbeKind, result: ProbeResult, now_ms: int
) -> ProbeState:
    """A result that arrives when its probe is no longer due changes nothing."""
    probe, streak = probes.get(kind), state.streak(kind)
    if probe is None or streak is None or next_at_ms(state, kind) is None:
        return state
    # Counted from the result, so a probe slower than its period never queues up behind itself.
    streak = streak.add(result.ok, now_ms + probe.period_ms)
    threshold = probe.success_threshold if result.ok else probe.failure_threshold
    reached = streak.count >= threshold
    match kind:
        case ProbeKind.STARTUP:
            return _startup(probes, replace(state, startup=streak), probe, result, reached)
        case ProbeKind.LIVENESS:
            return _restart_if_failed(replace(state, liveness=streak), kind, probe, result, reached)
        case ProbeKind.READINESS:
            state = replace(state, readiness=streak)
            return replace(state, ready=result.ok) if reached else state


def _startup(
    probes: ContainerProbes, state: ProbeState, probe: Probe, result: ProbeResult, reached: bool
) -> ProbeState:
    if result.ok and reached:
        return replace(state, started=True, ready=probes.readiness is None)
    return _restart_if_failed(state, ProbeKind.STARTUP, probe, result, reached)


def _restart_if_failed(
    state: ProbeState, kind: ProbeKind, probe: Probe, result: ProbeResult, reached: bool
) -> ProbeState:
    if result.ok or not reached:
        return state
    reason = f"{kind} probe failed {probe.failure_threshold} times in a row: {result.message}"
    return replace(state, ready=False, restart=reason)
