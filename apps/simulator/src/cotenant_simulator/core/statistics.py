"""What a handful of runs says, and what it does not.

One arm: the median, with the percentile bootstrap's 95 % interval. Two arms on the same seeds: the mean of the paired
differences with Student's 95 % interval, and Holm's correction over all figures for which of them are more than noise.
Every number is a function of the values alone: resampling is seeded.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Final

RESAMPLES: Final = 2_000
LEVEL: Final = 0.95
_SEED: Final = 20_240_601
_TINY: Final = 1e-30
_STEPS: Final = 300


@dataclass(frozen=True, slots=True)
class Estimate:
    """``low`` and ``high`` None: one value has no interval. ``count`` are the runs in which the figure was known."""

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Second arm less the first. ``p`` None: too few pairs. ``notable``: more than noise after Holm's correction."""

    mean: float
    low: float | None
    high: float | None
    pairs: int
    p: float | None
    notable: bool = False


def median_of(values: Sequence[float]) -> Estimate | None:
    """None of nothing."""
    if not values:
        return None
    if len(values) == 1 or min(values) == max(values):
        edge = None if len(values) == 1 else values[0]
        return Estimate(values[0], edge, edge, len(values))
    chance = random.Random(_SEED)  # noqa: S311 - no secret
    medians = sorted(median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (1 - LEVEL) / 2)
    return Estimate(median(values), medians[tail], medians[-1 - tail], len(values))


def paired(first: Sequence[float | None], second: Sequence[float | None]) -> Difference | None:
    """Values of the same seeds in the same order; pairs that lack one are left out. None without pairs."""
    apart = [b - a for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not apart:
        return None
    mean, pairs = fmean(apart), len(apart)
    if pairs == 1:
        return Difference(mean, None, None, 1, None)
    error = stdev(apart) / math.sqrt(pairs)
    # Differences of sums of floats: below this, all pairs say the same.
    if error <= 1e-12 * max(1.0, abs(mean)):
        return Difference(mean, mean, mean, pairs, 0.0 if mean else 1.0)
    half = t_quantile((1 + LEVEL) / 2, pairs - 1) * error
    return Difference(mean, mean - half, mean + half, pairs, 2 * (1 - t_below(abs(mean) / error, pairs - 1)))


def marked(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """Holm: the smallest p against all, the next against one less, until the first that does not pass."""
    ordered = sorted(((one.p, name) for name, one in found.items() if one.p is not None), key=lambda each: each[0])
    passed: list[str] = []
    for rank, (p, name) in enumerate(ordered):
        if p > (1 - LEVEL) / (len(ordered) - rank):
            break
        passed.append(name)
    return {name: replace(one, notable=name in passed) for name, one in found.items()}


def t_below(t: float, freedom: int) -> float:
    """P(T ≤ t) for t ≥ 0."""
    return 1 - _beta_below(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def t_quantile(probability: float, freedom: int) -> float:
    """For probabilities above a half."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_below(middle, freedom) < probability else (low, middle)
    return high


def _beta_below(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return max(0.0, min(1.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_below(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(_STEPS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        d = 1 / _away_from_zero(1 + term * d)
        c = _away_from_zero(1 + term / c)
        fraction *= c * d
        if abs(1 - c * d) < 1e-12:
            break
    return front * (fraction - 1) / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
