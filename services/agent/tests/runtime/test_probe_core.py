from collections.abc import Sequence

import pytest

from cotenant_agent.runtime import ContainerProbes, Probe, ProbeKind, ProbeResult, ProbeState, TcpSocketAction
from cotenant_agent.runtime.probe_core import initial, next_at_ms, observe

R, L, S = ProbeKind.READINESS, ProbeKind.LIVENESS, ProbeKind.STARTUP
START = 1_000


def probe(**fields: int) -> Probe:
    return Probe(TcpSocketAction(80), **fields)


def feed(probes: ContainerProbes, kind: ProbeKind, results: str, state: ProbeState | None = None) -> list[ProbeState]:
    """One state per letter: `+` a success, `-` a failure, each when it is due."""
    state = state or initial(probes, START)
    states = []
    for letter in results:
        due = next_at_ms(state, kind)
        state = observe(probes, state, kind, ProbeResult(letter == "+", "told so"), due or 0)
        states.append(state)
    return states


def ready(states: Sequence[ProbeState]) -> str:
    return "".join("R" if state.ready else "." for state in states)


@pytest.mark.parametrize(
    ("success", "failure", "results", "expected"),
    [
        (1, 3, "+", "R"),
        (1, 3, "+--+", "RRRR"),
        (1, 3, "+---+", "RRR.R"),
        (1, 1, "+-+-", "R.R."),
        (3, 1, "++-+++", ".....R"),
        (2, 2, "+-++--", "...RR."),
        (1, 3, "---", "..."),
    ],
)
def test_readiness_table(success: int, failure: int, results: str, expected: str) -> None:
    probes = ContainerProbes(readiness=probe(success_threshold=success, failure_threshold=failure))
    states = feed(probes, R, results)
    assert ready(states) == expected
    assert all(state.restart is None for state in states)


@pytest.mark.parametrize(("results", "dies_at"), [("---", 2), ("--+---", 5), ("+--+--", None)])
def test_liveness_table(results: str, dies_at: int | None) -> None:
    states = feed(ContainerProbes(liveness=probe()), L, results)
    assert [i for i, state in enumerate(states) if state.restart][:1] == ([] if dies_at is None else [dies_at])


def test_without_probes_a_started_container_is_ready() -> None:
    state = initial(ContainerProbes(), START)
    assert (state.started, state.ready) == (True, True)


def test_restart_says_why_and_ends_the_questions() -> None:
    probes = ContainerProbes(liveness=probe(failure_threshold=2), readiness=probe())
    state = feed(probes, L, "--")[-1]
    assert state.restart == "liveness probe failed 2 times in a row: told so"
    assert not state.ready
    assert [next_at_ms(state, kind) for kind in ProbeKind] == [None, None, None]


def test_startup_holds_the_others_back() -> None:
    probes = ContainerProbes(startup=probe(), liveness=probe(), readiness=probe())
    state = initial(probes, START)
    assert [next_at_ms(state, kind) for kind in (S, L, R)] == [START, None, None]
    assert observe(probes, state, L, ProbeResult(False, "early"), START) == state
    state = feed(probes, S, "-+")[-1]
    assert (state.started, state.ready) == (True, False)
    assert next_at_ms(state, S) is None
    assert next_at_ms(state, L) == START


def test_startup_that_never_succeeds_restarts() -> None:
    state = feed(ContainerProbes(startup=probe(failure_threshold=4)), S, "----")[-1]
    assert state.restart is not None
    assert not state.started


def test_initial_delay_then_period() -> None:
    probes = ContainerProbes(readiness=probe(initial_delay_ms=500, period_ms=2_000))
    state = initial(probes, START)
    assert next_at_ms(state, R) == 1_500
    assert next_at_ms(observe(probes, state, R, ProbeResult(True, ""), 1_700), R) == 3_700
