"""Usage of every node, corrected by estimates for what is placed and not visible yet, as columns."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from cotenant_scheduler.core.columns import UNSET, Bools, Ints, Rows, grown
from cotenant_scheduler.core.estimate import (
    FACTOR_RESOURCES,
    Aggregation,
    LoadPolicy,
    NodeMetric,
    Pair,
    PlacedLoad,
    Share,
    Thresholds,
    aggregated_usage,
    share_of,
)

_NOTHING: Final = Share((0, 0), (0, 0), (0, 0))


def _pairs(size: int) -> Ints:
    return np.zeros((2, size), dtype=np.int64)


class LoadColumns:
    """Shares of placed pods are kept summed, so one placement costs one addition whatever else runs there."""

    def __init__(self, size: int, policy: LoadPolicy) -> None:
        self.policy = policy
        self.capacity = _pairs(size)
        self.plain = _pairs(size)
        self.prod = _pairs(size)
        self.aggregated = _pairs(size)
        self.scored = _pairs(size)
        self.plain_limit = _pairs(size)
        self.prod_limit = _pairs(size)
        self.aggregated_limit = _pairs(size)
        self.metric_ms: Ints = np.full(size, UNSET, dtype=np.int64)
        self.expired: Bools = np.zeros(size, dtype=np.bool_)
        self.limited = False
        """Whether any node ever had a threshold; most clusters never do, and then the filter costs nothing."""
        self._metrics: list[NodeMetric | None] = [None] * size
        self._aggregation: list[Aggregation | None] = [None] * size
        self._sums: list[Share] = [_NOTHING] * size
        self._shares: list[dict[str, Share]] = [{} for _ in range(size)]

    def grow(self, size: int) -> None:
        extra = size - len(self._metrics)
        for name in (
            "capacity", "plain", "prod", "aggregated", "scored", "plain_limit", "prod_limit", "aggregated_limit",
        ):  # fmt: skip
            bigger = _pairs(size)
            bigger[:, :-extra] = getattr(self, name)
            setattr(self, name, bigger)
        self.metric_ms = grown(self.metric_ms, size, UNSET)
        self.expired = grown(self.expired, size, 0)
        self._metrics.extend([None] * extra)
        self._aggregation.extend([None] * extra)
        self._sums.extend([_NOTHING] * extra)
        self._shares.extend({} for _ in range(extra))

    def metric(self, row: int) -> NodeMetric | None:
        return self._metrics[row]

    def set_capacity(self, row: int, capacity: Mapping[str, int], own: Thresholds | None) -> None:
        """Each threshold set of the node overrides the policy's alone; an aggregated one needs its type too."""
        policy = self.policy.thresholds
        own = own or Thresholds()
        overrides = bool(own.aggregated) and own.aggregation is not None
        chosen = own if overrides else policy
        self.capacity[:, row] = [capacity.get(name, 0) for name in FACTOR_RESOURCES]
        self.plain_limit[:, row] = _limits(own.plain or policy.plain)
        self.prod_limit[:, row] = _limits(own.prod or policy.prod)
        self.aggregated_limit[:, row] = _limits(chosen.aggregated if chosen.aggregation else {})
        self._aggregation[row] = chosen.aggregation
        limits = (self.plain_limit[:, row], self.prod_limit[:, row], self.aggregated_limit[:, row])
        self.limited = self.limited or any(each.any() for each in limits)
        self._write(row)

    def set_metric(self, row: int, metric: NodeMetric | None, placed: Iterable[PlacedLoad]) -> None:
        """A report changes what every pod on the node adds to it."""
        self._metrics[row] = metric
        self.metric_ms[row] = UNSET if metric is None else metric.update_ms
        self._shares[row] = {pod.uid: share_of(pod, metric) for pod in placed}
        total = _NOTHING
        for share in self._shares[row].values():
            total = _moved(total, share, +1)
        self._sums[row] = total
        self.expired[row] = False
        self._write(row)

    def add(self, row: int, pod: PlacedLoad) -> None:
        share = share_of(pod, self._metrics[row])
        self._shares[row][pod.uid] = share
        self._sums[row] = _moved(self._sums[row], share, +1)
        self._write(row)

    def remove(self, row: int, pod: PlacedLoad) -> None:
        """What a pod that left still shows in the last report goes with the next one."""
        share = self._shares[row].pop(pod.uid)
        self._sums[row] = _moved(self._sums[row], share, -1)
        self._write(row)

    def expire(self, now_ms: int) -> Rows:
        """Rows whose report crossed the line since the last call; what depends on the clock changes only here."""
        known = self.metric_ms != UNSET
        expired = known & (now_ms - self.metric_ms >= self.policy.expiration_ms)
        changed = np.flatnonzero(expired != self.expired)
        self.expired = expired
        return changed

    def next_expiry_ms(self) -> int | None:
        fresh = self.metric_ms[(self.metric_ms != UNSET) & ~self.expired]
        return int(fresh.min()) + self.policy.expiration_ms if len(fresh) else None

    def _write(self, row: int) -> None:
        metric, sums = self._metrics[row], self._sums[row]
        if metric is None:
            return
        policy = self.policy
        self.plain[:, row] = _corrected(metric.usage, sums)
        system = metric.system if policy.prod_usage_includes_system else (0, 0)
        self.prod[:, row] = system[0] + sums.prod[0], system[1] + sums.prod[1]
        wanted = self._aggregation[row]
        if wanted is not None:
            self.aggregated[:, row] = _corrected(aggregated_usage(metric, wanted), sums)
        scored = policy.score_aggregation
        self.scored[:, row] = _corrected(aggregated_usage(metric, scored) if scored else metric.usage, sums)


def _limits(thresholds: Mapping[str, int]) -> Pair:
    cpu, memory = (thresholds.get(name, 0) for name in FACTOR_RESOURCES)
    return cpu, memory


def _corrected(usage: Pair | None, sums: Share) -> Pair:
    if usage is None:
        return sums.estimated
    return usage[0] + sums.delta[0], usage[1] + sums.delta[1]


def _moved(total: Share, share: Share, sign: int) -> Share:
    return Share(
        (total.delta[0] + sign * share.delta[0], total.delta[1] + sign * share.delta[1]),
        (total.prod[0] + sign * share.prod[0], total.prod[1] + sign * share.prod[1]),
        (total.estimated[0] + sign * share.estimated[0], total.estimated[1] + sign * share.estimated[1]),
    )
