import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_agent.runtime import RestartAt, RestartPolicy, Terminal, decide_restart
from cotenant_agent.runtime.backoff import backoff_ms


def decide(policy: RestartPolicy, code: int | None, streak: int = 0, ran_ms: int | None = 50) -> RestartAt | Terminal:
    return decide_restart(policy, code, streak=streak, ran_ms=ran_ms, finished_at_ms=1_000_000)


@pytest.mark.parametrize(
    ("policy", "code", "succeeded"),
    [
        (RestartPolicy.NEVER, 0, True),
        (RestartPolicy.NEVER, 1, False),
        (RestartPolicy.NEVER, None, False),
        (RestartPolicy.ON_FAILURE, 0, True),
    ],
)
def test_ends_for_good(policy: RestartPolicy, code: int | None, succeeded: bool) -> None:
    decision = decide(policy, code)
    assert isinstance(decision, Terminal)
    assert decision.succeeded is succeeded


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (RestartPolicy.ALWAYS, 0),
        (RestartPolicy.ALWAYS, 137),
        (RestartPolicy.ALWAYS, None),
        (RestartPolicy.ON_FAILURE, 1),
        (RestartPolicy.ON_FAILURE, None),
    ],
)
def test_runs_again(policy: RestartPolicy, code: int | None) -> None:
    decision = decide(policy, code)
    assert isinstance(decision, RestartAt)
    assert (decision.at_ms, decision.streak) == (1_001_000, 1)


def test_delays_double_up_to_five_minutes() -> None:
    assert [backoff_ms(n) for n in range(11)] == [1000 * 2**n for n in range(9)] + [300_000] * 2


@pytest.mark.parametrize(
    ("ran_ms", "delay_ms", "streak"), [(599_999, 32_000, 6), (600_000, 1_000, 1), (None, 32_000, 6)]
)
def test_ten_minutes_of_running_forgive(ran_ms: int | None, delay_ms: int, streak: int) -> None:
    decision = decide(RestartPolicy.ALWAYS, 1, streak=5, ran_ms=ran_ms)
    assert isinstance(decision, RestartAt)
    assert (decision.delay_ms, decision.streak) == (delay_ms, streak)


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_delay_is_bounded_and_never_shrinks(streak: int) -> None:
    assert 1_000 <= backoff_ms(streak) <= backoff_ms(streak + 1) <= 300_000
