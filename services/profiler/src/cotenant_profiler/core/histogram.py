"""Histogram whose samples lose half their weight every half-life (as in the Kubernetes autoscaler and Koordinator)."""

import math
from array import array
from dataclasses import dataclass
from typing import Final, Protocol

_EPSILON: Final = 0.0001
# 2^100 times the weight of the first sample still fits a double with room for sums; beyond it the reference moves.
_MAX_HALF_LIVES: Final = 100


class Buckets(Protocol):
    """How values map to buckets."""

    @property
    def count(self) -> int: ...

    def find(self, value: float) -> int: ...

    def start(self, bucket: int) -> float: ...


@dataclass(frozen=True, slots=True)
class ExponentialBuckets:
    """Each bucket is wider than the last by the growth ratio; the last one catches everything above ``maximum``."""

    maximum: float
    first: float
    growth: float = 0.05

    @property
    def count(self) -> int:
        return math.ceil(math.log(self.maximum * self.growth / self.first + 1, 1 + self.growth)) + 1

    def find(self, value: float) -> int:
        if value < self.first:
            return 0
        bucket = int(math.log(value * self.growth / self.first + 1, 1 + self.growth))
        return min(bucket, self.count - 1)

    def start(self, bucket: int) -> float:
        return self.first * ((1 + self.growth) ** bucket - 1) / self.growth


class DecayingHistogram:
    """``half_life_ms`` None: nothing decays. Times are milliseconds and may arrive in any order."""

    def __init__(self, buckets: Buckets, half_life_ms: int | None) -> None:
        self._buckets = buckets
        self._half_life_ms = half_life_ms
        self._weights = array("d", bytes(8 * buckets.count))
        self._total = 0.0
        self._reference_ms: int | None = None

    def add(self, value: float, weight: float, at_ms: int) -> None:
        # The scale may move the weights, so it comes before they are read.
        scaled = weight * self._scale(at_ms)
        self._weights[self._buckets.find(value)] += scaled
        self._total += scaled

    @property
    def empty(self) -> bool:
        return all(weight < _EPSILON for weight in self._weights)

    def percentile(self, ratio: float) -> float:
        """The end of the first bucket where the sum of weights reaches the ratio; 0 when empty."""
        live = [bucket for bucket, weight in enumerate(self._weights) if weight >= _EPSILON]
        if not live:
            return 0.0
        threshold = ratio * self._total
        reached = 0.0
        found = live[-1]
        for bucket in live:
            reached += self._weights[bucket]
            if reached >= threshold:
                found = bucket
                break
        last = self._buckets.count - 1
        return self._buckets.start(found if found == last else found + 1)

    def _scale(self, at_ms: int) -> float:
        if self._half_life_ms is None:
            return 1.0
        if self._reference_ms is None:
            self._reference_ms = _round_to(at_ms, self._half_life_ms)
        elif at_ms - self._reference_ms > _MAX_HALF_LIVES * self._half_life_ms:
            self._move_reference(_round_to(at_ms, self._half_life_ms), self._half_life_ms)
        return float(2.0 ** ((at_ms - self._reference_ms) / self._half_life_ms))

    def _move_reference(self, to_ms: int, half_life_ms: int) -> None:
        steps = (to_ms - (self._reference_ms or 0)) // half_life_ms
        factor = math.ldexp(1.0, -steps)
        self._weights = array("d", (weight * factor for weight in self._weights))
        self._total = sum(self._weights)
        self._reference_ms = to_ms


def _round_to(at_ms: int, unit_ms: int) -> int:
    return (at_ms + unit_ms // 2) // unit_ms * unit_ms
