import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_simulator.core.durations import DurationError, parse_ms, show


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("10s", 10_000), ("1m30s", 90_000), ("2h", 7_200_000), ("0", 0), ("1d", 86_400_000)],
)
def test_durations_are_whole_milliseconds(text: str, ms: int):
    assert parse_ms(text) == ms


@pytest.mark.parametrize("text", ["", "10", "s", "1.5s", "-1s", "10s later", "10 s", None])
def test_what_has_no_unit_is_refused(text: str):
    with pytest.raises(DurationError, match="expected a duration"):
        parse_ms(text)


@given(st.integers(0, 10**10))
def test_there_and_back(ms: int):
    assert parse_ms(show(ms)) == ms
