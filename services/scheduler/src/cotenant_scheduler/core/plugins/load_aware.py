"""LoadAwareScheduling: keep hot nodes out and spread by measured load, corrected for what is not visible yet."""

from typing import Final

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import render
from cotenant_scheduler.core.columns import UNSET, Bools, Ints, Rows
from cotenant_scheduler.core.estimate import FACTOR_RESOURCES
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot

_VIEWS: Final = ("node usage", "prod usage", "aggregated usage")


class LoadAware:
    """Filter: round(100 × (usage + delta + estimate) / capacity) > threshold refuses; equal passes."""

    name = "LoadAware"

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        if shape.is_daemon or not cluster.load.limited:
            return np.ones(len(rows), dtype=np.bool_)
        _, used, limits = _judged(shape, cluster, rows)
        hot = (_percent(shape, used, cluster, rows) > limits) & (limits > 0) & (cluster.load.capacity[:, rows] > 0)
        judged = cluster.load.metric_ms[rows] != UNSET
        policy = cluster.load.policy
        if not policy.filter_expired:
            cool: Bools = np.logical_not(judged & hot.any(axis=0))
            return cool
        expired = cluster.load.expired[rows]
        refused = judged & np.logical_not(expired) & hot.any(axis=0)
        if not policy.schedule_when_expired:
            refused |= judged & expired & (limits > 0).any(axis=0)
        passed: Bools = np.logical_not(refused)
        return passed

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        """Nodes without a fresh report score 0: placed last, by their requests, not shut out."""
        load, policy = cluster.load, cluster.load.policy
        by_prod = policy.score_by_prod_usage and shape.is_prod
        used = (load.prod if by_prod else load.scored)[:, rows] + _column(shape.estimate.used)
        capacity = load.capacity[:, rows]
        free = np.maximum(capacity - used, 0) * 100 // np.maximum(capacity, 1)
        weights = np.array([[policy.weights.get(name, 0)] for name in FACTOR_RESOURCES], dtype=np.int64)
        total = (free * weights).sum(axis=0) + policy.dominant_weight * free.min(axis=0)
        known = (load.metric_ms[rows] != UNSET) & np.logical_not(load.expired[rows])
        found: Ints = np.where(known, total // max(1, int(weights.sum()) + policy.dominant_weight), 0)
        return found

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        node, single, load = cluster.name(row), np.array([row]), cluster.load
        if load.policy.filter_expired and load.expired[row]:
            return Refusal(
                ReasonCode.METRICS_EXPIRED,
                f"node {node} reported usage last at {int(load.metric_ms[row])} ms, "
                f"older than the {load.policy.expiration_ms // 1000} s allowed",
                {"metric_ms": int(load.metric_ms[row]), "expiration_ms": load.policy.expiration_ms},
                f"a fresh report from node {node}",
            )
        view, used, limits = _judged(shape, cluster, single)
        percents = _percent(shape, used, cluster, single)[:, 0]
        which = next(i for i in range(2) if limits[i, 0] > 0 and percents[i] > limits[i, 0] and load.capacity[i, row])
        name, estimate = FACTOR_RESOURCES[which], shape.estimate.used[which]
        return Refusal(
            ReasonCode.LOAD_THRESHOLD_EXCEEDED,
            f"{name}: {_VIEWS[int(view[0])]} of node {node} would be {percents[which]} % "
            f"({render(name, int(used[which, 0]))} now + {render(name, estimate)} estimated "
            f"of {render(name, int(load.capacity[which, row]))}), over {limits[which, 0]} %",
            {
                "resource": name, "percent": int(percents[which]), "threshold": int(limits[which, 0]),
                "view": _VIEWS[int(view[0])], "used": int(used[which, 0]), "estimate": estimate,
            },
            f"{name} load of {node} falling under {limits[which, 0]} %",
        )  # fmt: skip

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        expired = cluster.load.expired[rows] & cluster.load.policy.filter_expired
        return alike(cluster, rows[expired], lambda row: self.refuse(shape, cluster, row)) + alike(
            cluster, rows[np.logical_not(expired)], lambda row: self.refuse(shape, cluster, row)
        )


def _column(pair: tuple[int, int]) -> Ints:
    return np.array(pair, dtype=np.int64).reshape(2, 1)


def _judged(shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[Ints, Ints, Ints]:
    """(view, used, limits): prod thresholds for prod pods where set, else aggregated where set, else plain."""
    load = cluster.load
    prod_limit, aggregated_limit = load.prod_limit[:, rows], load.aggregated_limit[:, rows]
    by_prod = (prod_limit > 0).any(axis=0) & shape.is_prod
    by_percentile = (aggregated_limit > 0).any(axis=0)
    view: Ints = np.where(by_prod, 1, np.where(by_percentile, 2, 0)).astype(np.int64)
    used = np.where(by_prod, load.prod[:, rows], np.where(by_percentile, load.aggregated[:, rows], load.plain[:, rows]))
    limits = np.where(by_prod, prod_limit, np.where(by_percentile, aggregated_limit, load.plain_limit[:, rows]))
    return view, used, limits


def _percent(shape: Shape, used: Ints, cluster: Snapshot, rows: Rows) -> Ints:
    """Rounded half up, in integers."""
    capacity = np.maximum(cluster.load.capacity[:, rows], 1)
    percent: Ints = ((used + _column(shape.estimate.used)) * 200 + capacity) // (2 * capacity)
    return percent
