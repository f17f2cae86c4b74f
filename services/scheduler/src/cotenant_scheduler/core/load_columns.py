"""Usage of every node, corrected by estimates for what is placed and not visible yet, as columns."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotenant_scheduler.core.columns import UNSET, Bools, Ints, Rows, grown, widened
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

_NOTHING: Final[Share] = (0, 0, 0, 0, 0, 0)
PASS: Final = 0
"""Nothing is known of the node, or nothing is asked of it."""
JUDGE: Final = 1
EXPIRED: Final = 2
"""Its last report is too old to let anybody in."""
PLAIN_VIEW, PROD_VIEW, AGGREGATED_VIEW = 0, 1, 2


class LoadColumns:
    """Shares of placed pods are kept summed, so one placement costs one addition whatever else runs there.

    The first axis of ``judged``, ``limit``, ``scored`` and ``gate`` is the incoming pod: 0 any, 1 prod. The second is
    the resource, as in ``FACTOR_RESOURCES``. What to compare with what is settled here, once per report, and not by
    every pod that asks.
    """

    def __init__(self, size: int, policy: LoadPolicy) -> None:
        self.policy = policy
        self.capacity: Ints = np.zeros((2, size), dtype=np.int64)
        self._used: Ints = np.zeros((4, 2, size), dtype=np.int64)
        self.judged, self.scored = self._used[:2], self._used[2:]
        self.limit: Ints = np.zeros((2, 2, size), dtype=np.int64)
        self.gate: NDArray[np.int8] = np.zeros((2, size), dtype=np.int8)
        self.view: NDArray[np.int8] = np.zeros((2, size), dtype=np.int8)
        self.fresh: Bools = np.zeros(size, dtype=np.bool_)
        """Reported lately; nodes that are not score nothing."""
        self.metric_ms: Ints = np.full(size, UNSET, dtype=np.int64)
        self.expired: Bools = np.zeros(size, dtype=np.bool_)
        self.limited = False
        """Whether any node ever had a threshold; most clusters never do, and then the filter costs nothing."""
        self.largest = 0
        """No amount was ever larger; whoever calculates in floating point must know."""
        self.highest_limit = 0
        self.expires_ms: int | None = None
        """Never too late; too early when the report that would have expired was followed by a newer one."""
        self._metrics: list[NodeMetric | None] = [None] * size
        self._aggregation: list[Aggregation | None] = [None] * size
        self._sums: list[Share] = [_NOTHING] * size
        self._shares: list[dict[str, Share]] = [{} for _ in range(size)]
        self._one_view: list[bool] = [True] * size
        """Whether usage as reported is all that anybody looks at."""

    def grow(self, size: int) -> None:
        extra = size - len(self._metrics)
        for name in ("capacity", "_used", "limit", "gate", "view"):
            matrix: NDArray[Any] = getattr(self, name)
            setattr(self, name, widened(matrix, size, 0))
        self.judged, self.scored = self._used[:2], self._used[2:]
        self.fresh = grown(self.fresh, size, 0)
        self.metric_ms = grown(self.metric_ms, size, UNSET)
        self.expired = grown(self.expired, size, 0)
        self._metrics.extend([None] * extra)
        self._aggregation.extend([None] * extra)
        self._sums.extend([_NOTHING] * extra)
        self._shares.extend({} for _ in range(extra))
        self._one_view.extend([True] * extra)

    def metric(self, row: int) -> NodeMetric | None:
        return self._metrics[row]

    def set_capacity(self, row: int, capacity: Mapping[str, int], own: Thresholds | None) -> None:
        """Each threshold set of the node overrides the policy's alone; an aggregated one needs its type too."""
        policy = self.policy.thresholds
        own = own or Thresholds()
        overrides = bool(own.aggregated) and own.aggregation is not None
        chosen = own if overrides else policy
        self._aggregation[row] = chosen.aggregation
        aggregated = _limits(chosen.aggregated if chosen.aggregation else {})
        plain = _limits(own.plain or policy.plain)
        view, limit = (AGGREGATED_VIEW, aggregated) if any(aggregated) else (PLAIN_VIEW, plain)
        prod = _limits(own.prod or policy.prod)
        self.view[:, row] = view, PROD_VIEW if any(prod) else view
        self._one_view[row] = (
            view == PLAIN_VIEW
            and not any(prod)
            and self.policy.score_aggregation is None
            and not self.policy.score_by_prod_usage
        )
        self.limit[0, :, row] = limit
        self.limit[1, :, row] = prod if any(prod) else limit
        self.limited = self.limited or any(limit) or any(prod)
        self.highest_limit = max(self.highest_limit, *limit, *prod)
        amounts = [capacity.get(name, 0) for name in FACTOR_RESOURCES]
        self.capacity[:, row] = amounts
        self.largest = max(self.largest, *amounts)
        self._open_or_close(row)
        self._write(row)

    def set_metric(self, row: int, metric: NodeMetric | None, placed: Iterable[PlacedLoad]) -> None:
        """A report changes what every pod on the node adds to it."""
        settled = metric is not None and self.fresh.item(row)
        self._metrics[row] = metric
        self.metric_ms[row] = UNSET if metric is None else metric.update_ms
        shares = self._shares[row] = {pod.uid: share_of(pod, metric) for pod in placed}
        self._sums[row] = _total(shares.values())
        if not settled:
            self.expired[row] = False
            self._open_or_close(row)
        if metric is not None:
            expires_ms = metric.update_ms + self.policy.expiration_ms
            if self.expires_ms is None or expires_ms < self.expires_ms:
                self.expires_ms = expires_ms
        self._write(row)

    def add(self, row: int, pod: PlacedLoad) -> None:
        share = share_of(pod, self._metrics[row])
        self._shares[row][pod.uid] = share
        a, b, c, d, e, f = self._sums[row]
        self._sums[row] = (a + share[0], b + share[1], c + share[2], d + share[3], e + share[4], f + share[5])
        self._write(row)

    def remove(self, row: int, pod: PlacedLoad) -> None:
        """What a pod that left still shows in the last report goes with the next one."""
        share = self._shares[row].pop(pod.uid)
        a, b, c, d, e, f = self._sums[row]
        self._sums[row] = (a - share[0], b - share[1], c - share[2], d - share[3], e - share[4], f - share[5])
        self._write(row)

    def expire(self, now_ms: int) -> Rows:
        """Rows whose report crossed the line since the last call; what depends on the clock changes only here."""
        if self.expires_ms is None or now_ms < self.expires_ms:
            return _NO_ROWS
        known = self.metric_ms != UNSET
        expired = known & (now_ms - self.metric_ms >= self.policy.expiration_ms)
        changed = np.flatnonzero(expired != self.expired)
        self.expired = expired
        for row in changed:
            self._open_or_close(int(row))
        alive = self.metric_ms[known & ~expired]
        self.expires_ms = int(alive.min()) + self.policy.expiration_ms if len(alive) else None
        return changed

    def _open_or_close(self, row: int) -> None:
        policy = self.policy
        known, expired = self._metrics[row] is not None, bool(self.expired[row])
        self.fresh[row] = known and not expired
        for asks in range(2):
            if not known or not self.limit[asks, :, row].any():
                gate = PASS
            elif expired and policy.filter_expired:
                gate = PASS if policy.schedule_when_expired else EXPIRED
            else:
                gate = JUDGE
            self.gate[asks, row] = gate

    def _write(self, row: int) -> None:
        metric, sums = self._metrics[row], self._sums[row]
        if metric is None:
            return
        cpu, memory = metric.usage
        cpu += sums[0]
        memory += sums[1]
        if self._one_view[row]:
            self._used[:, 0, row] = cpu
            self._used[:, 1, row] = memory
            largest = max(memory, cpu)
        else:
            largest = self._write_views(row, metric, sums, (cpu, memory))
        self.largest = max(self.largest, largest)

    def _write_views(self, row: int, metric: NodeMetric, sums: Share, plain: Pair) -> int:
        """Return the largest amount."""
        policy, wanted, scored = self.policy, self._aggregation[row], self.policy.score_aggregation
        prod = _prod(metric, sums, policy)
        aggregated = _corrected(aggregated_usage(metric, wanted), sums) if wanted is not None else plain
        by_view = (plain, prod, aggregated)
        points = _corrected(aggregated_usage(metric, scored), sums) if scored is not None else plain
        used = (
            by_view[self.view.item(0, row)],
            by_view[self.view.item(1, row)],
            points,
            prod if policy.score_by_prod_usage else points,
        )
        self._used[:, :, row] = used
        return max(max(pair) for pair in used)


_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)


def _limits(thresholds: Mapping[str, int]) -> Pair:
    cpu, memory = (thresholds.get(name, 0) for name in FACTOR_RESOURCES)
    return cpu, memory


def _corrected(usage: Pair | None, sums: Share) -> Pair:
    if usage is None:
        return sums[4], sums[5]
    return usage[0] + sums[0], usage[1] + sums[1]


def _prod(metric: NodeMetric, sums: Share, policy: LoadPolicy) -> Pair:
    system = metric.system if policy.prod_usage_includes_system else (0, 0)
    return system[0] + sums[2], system[1] + sums[3]


def _total(shares: Iterable[Share]) -> Share:
    a = b = c = d = e = f = 0
    for share in shares:
        a, b, c = a + share[0], b + share[1], c + share[2]
        d, e, f = d + share[3], e + share[4], f + share[5]
    return a, b, c, d, e, f
