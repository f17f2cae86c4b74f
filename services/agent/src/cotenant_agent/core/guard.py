"""Latency guard: when latency-sensitive pods wait for cpu, best-effort work steps back at once and returns slowly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """A wait of one scheduler slice (about 3 ms) per scheduling means that somebody else runs first each time."""

    wait_ms_per_slice: float = 3.0
    min_slices: int = 20
    pressure_percent: float = 40.0
    breach_samples: int = 3
    clear_samples: int = 5
    tighten_ratio: float = 0.7
    floor_percent: int = 10
    recover_percent: int = 5
    futile_samples: int = 30
    rest_samples: int = 60


@dataclass(frozen=True, slots=True)
class LatencySignal:
    """What one latency-sensitive pod showed in one interval. None: not measured."""

    pod: str
    wait_ms_per_slice: float | None = None
    slices: int | None = None
    cpu_pressure_some: float | None = None
    latency_ms: float | None = None
    target_ms: float | None = None


@dataclass(frozen=True, slots=True)
class GuardState:
    """`cap_milli` is None while the guard asks for nothing."""

    cap_milli: int | None = None
    breaches: int = 0
    clears: int = 0
    at_floor: int = 0
    resting: int = 0
    pod: str | None = None
    message: str = ""


def breach_of(signal: LatencySignal, settings: GuardSettings) -> str | None:
    """Why this pod counts as disturbed; None when nothing measured says so."""
    if signal.latency_ms is not None and signal.target_ms is not None and signal.latency_ms > signal.target_ms:
        return f"{signal.pod} answers in {signal.latency_ms:.1f} ms, its target is {signal.target_ms:.1f} ms"
    enough = signal.slices is not None and signal.slices >= settings.min_slices
    if enough and signal.wait_ms_per_slice is not None and signal.wait_ms_per_slice > settings.wait_ms_per_slice:
        return (
            f"{signal.pod} waits {signal.wait_ms_per_slice:.1f} ms for a cpu each time it wants to run,"
            f" {settings.wait_ms_per_slice:.1f} ms is the line"
        )
    if signal.cpu_pressure_some is not None and signal.cpu_pressure_some > settings.pressure_percent:
        return (
            f"{signal.pod} is stalled for cpu {signal.cpu_pressure_some:.0f}% of the time,"
            f" {settings.pressure_percent:.0f}% is the line"
        )
    return None


def _silent(pod: str | None, signals: Sequence[LatencySignal]) -> bool:
    """The pod is still here and nothing of it was measured."""
    return any(
        s.pod == pod and s.slices is None and s.cpu_pressure_some is None and s.latency_ms is None for s in signals
    )


def step(
    state: GuardState,
    signals: Sequence[LatencySignal],
    be_milli: int | None,
    capacity_milli: int,
    settings: GuardSettings,
) -> GuardState:
    """One interval. Tightening is multiplicative and quick, recovery additive and slow, so the two cannot chase."""
    if state.resting > 0:
        return GuardState(resting=state.resting - 1)
    found = next(((s.pod, why) for s in signals if (why := breach_of(s, settings)) is not None), None)
    if found is None and _silent(state.pod, signals):
        return state  # no news of the pod that BE was held back for is not good news
    if found is None:
        return _recover(state, capacity_milli, settings)
    pod, why = found
    now = replace(state, breaches=state.breaches + 1, clears=0, pod=pod, message=why)
    if now.breaches < settings.breach_samples:
        return now
    return _tighten(now, be_milli, capacity_milli, settings)


def _tighten(state: GuardState, be_milli: int | None, capacity_milli: int, settings: GuardSettings) -> GuardState:
    floor = capacity_milli * settings.floor_percent // 100
    if state.cap_milli is None and (be_milli is None or be_milli <= floor):
        return state  # BE runs too little to be the cause; capping it would only hide the real one
    start = state.cap_milli if state.cap_milli is not None else min(be_milli or 0, capacity_milli)
    cap = max(floor, int(start * settings.tighten_ratio))
    at_floor = state.at_floor + 1 if cap == floor else 0
    if at_floor > settings.futile_samples:
        return GuardState(resting=settings.rest_samples)
    return replace(state, cap_milli=cap, breaches=0, at_floor=at_floor)


def _recover(state: GuardState, capacity_milli: int, settings: GuardSettings) -> GuardState:
    clears = state.clears + 1
    if state.cap_milli is None:
        return GuardState(clears=min(clears, settings.clear_samples))
    if clears < settings.clear_samples:
        return replace(state, clears=clears, breaches=0)
    cap = state.cap_milli + capacity_milli * settings.recover_percent // 100
    if cap >= capacity_milli:
        return GuardState(clears=clears)
    return replace(state, cap_milli=cap, clears=clears, breaches=0, at_floor=0)
