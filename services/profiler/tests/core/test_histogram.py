import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_profiler.core.histogram import DecayingHistogram, ExponentialBuckets

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR


class _UnitBuckets:
    count = 10

    def find(self, value: float) -> int:
        return min(int(value), self.count - 1)

    def start(self, bucket: int) -> float:
        return float(bucket)


def _filled(*samples: tuple[float, float, int], half_life_ms: int | None = HOUR) -> DecayingHistogram:
    histogram = DecayingHistogram(_UnitBuckets(), half_life_ms)
    for value, weight, hours in samples:
        histogram.add(value, weight, T0 + hours * HOUR)
    return histogram


def test_an_old_heavy_sample_fades() -> None:
    histogram = _filled((2, 1000, 0), (1, 1, 20))
    assert histogram.percentile(0.999) == 2
    assert histogram.percentile(1.0) == 3


def test_a_sample_a_hundred_half_lives_old_is_gone() -> None:
    assert _filled((2, 1, 0), (1, 1, 101)).percentile(1.0) == 2


@pytest.mark.parametrize(("ratio", "value"), [(0.02, 2), (0.03, 3), (0.10, 3), (0.11, 4), (0.34, 4), (0.35, 5)])
def test_weights_double_every_half_life(ratio: float, value: float) -> None:
    assert _filled(*((i, i, i) for i in range(1, 5))).percentile(ratio) == value


@pytest.mark.parametrize(("ratio", "value"), [(0.3, 3), (0.4, 4), (0.7, 5)])
def test_without_decay_weights_are_as_given(ratio: float, value: float) -> None:
    assert _filled(*((i, i, i) for i in range(1, 5)), half_life_ms=None).percentile(ratio) == value


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_empty_is_zero(ratio: float) -> None:
    histogram = _filled()
    assert histogram.empty
    assert histogram.percentile(ratio) == 0


def test_the_last_bucket_returns_its_start() -> None:
    assert _filled((99, 1, 0)).percentile(0.5) == 9


def test_exponential_buckets_cover_the_range() -> None:
    buckets = ExponentialBuckets(maximum=1024, first=0.025)
    assert buckets.find(0) == buckets.find(0.0249) == 0
    assert buckets.find(10**9) == buckets.count - 1
    assert buckets.start(0) == 0
    assert buckets.start(1) == pytest.approx(0.025)


@given(st.floats(0.03, 1000))
def test_a_value_lies_in_its_bucket_and_the_bucket_is_five_percent_wide(value: float) -> None:
    buckets = ExponentialBuckets(maximum=1024, first=0.025)
    bucket = buckets.find(value)
    assert buckets.start(bucket) <= value * (1 + 1e-9)
    assert value <= buckets.start(bucket + 1) * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=20))
def test_percentiles_never_fall(samples: list[tuple[int, int, int]]) -> None:
    histogram = _filled(*samples)
    values = [histogram.percentile(ratio / 20) for ratio in range(21)]
    assert values == sorted(values)
