from hypothesis import given
from hypothesis import strategies as st

from cotenant_profiler.core.smooth import Smoothed, SmoothPolicy, differs, smooth

POLICY = SmoothPolicy(diff_ratio=0.1, hold_ms=10_000, refresh_ms=300_000)


def _run(*steps: tuple[int, int], policy: SmoothPolicy = POLICY) -> list[int]:
    state: Smoothed | None = None
    published = []
    for seconds, target in steps:
        state = smooth(state, target, seconds * 1000, policy)
        published.append(state.value)
    return published


def test_the_first_value_is_published_at_once() -> None:
    assert _run((0, 1000)) == [1000]


def test_a_fall_is_published_at_once_unless_it_is_noise() -> None:
    assert _run((0, 1000), (1, 900), (2, 899)) == [1000, 1000, 899]


def test_nothing_left_is_never_noise() -> None:
    policy = SmoothPolicy(diff_ratio=1.0, hold_ms=0, refresh_ms=300_000)
    assert _run((0, 5), (1, 0), policy=policy) == [5, 0]


def test_a_rise_waits_and_then_takes_the_least_that_was_there_all_the_time() -> None:
    assert _run((0, 1000), (1, 1800), (6, 1300), (9, 1900), (11, 1900)) == [1000, 1000, 1000, 1000, 1300]


def test_a_dip_starts_the_wait_anew() -> None:
    assert _run((0, 1000), (1, 1800), (6, 1000), (11, 1800), (20, 1800), (21, 1800))[-3:] == [1000, 1000, 1800]


def test_a_small_rise_is_published_when_the_value_is_old() -> None:
    steps = [(second, 1000 if second == 0 else 1050) for second in range(0, 330, 5)]
    published = _run(*steps)
    assert published[59] == 1000
    assert published[-1] == 1050


def test_the_reference_difference_test() -> None:
    assert not differs(0, 0, 0.1)
    assert differs(0, 1, 0.1)
    assert not differs(100, 110, 0.1)
    assert differs(100, 111, 0.1)


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=40))
def test_never_more_than_noise_above_the_target(targets: list[int]) -> None:
    state: Smoothed | None = None
    for second, target in enumerate(targets):
        state = smooth(state, target, second * 1000, POLICY)
        assert not (state.value > target and differs(state.value, target, POLICY.diff_ratio))
