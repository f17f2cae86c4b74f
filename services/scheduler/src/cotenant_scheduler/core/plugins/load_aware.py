"""LoadAwareScheduling: keep hot nodes out and spread by measured load, corrected for what is not visible yet."""

from typing import Final

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import render
from cotenant_scheduler.core.columns import Bools, Ints, Rows
from cotenant_scheduler.core.estimate import FACTOR_RESOURCES
from cotenant_scheduler.core.load_columns import EXPIRED, JUDGE
from cotenant_scheduler.core.plugins import kernels
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.plugins.interface import Kernel, Parked, PluginSet, ShapeFilter, ShapeScore, Wake
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot

_VIEWS: Final = ("node usage", "prod usage", "aggregated usage")


class LoadAware(ShapeFilter, ShapeScore):
    """Filter: round(100 × (usage + delta + estimate) / capacity) > threshold refuses; equal passes."""

    name = "LoadAwareScheduling"
    wakes = Wake.NODE | Wake.ROOM | Wake.LOAD

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def kernel(self, plugins: PluginSet) -> Kernel | None:
        return kernels.offer(plugins)

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        if shape.is_daemon or not cluster.load.limited:
            return np.ones(len(rows), dtype=np.bool_)
        gate, limits = cluster.load.gate[int(shape.is_prod)][rows], _limits(shape, cluster, rows)
        hot = (_percent(shape, cluster, rows) > limits) & (limits > 0) & (cluster.load.capacity[:, rows] > 0)
        refused: Bools = (gate == EXPIRED) | ((gate == JUDGE) & hot.any(axis=0))
        return np.logical_not(refused)

    def hint(self, parked: Parked, cluster: Snapshot, row: int) -> Bools:
        """The same for many shapes and one node."""
        load, kinds = cluster.load, parked.asks
        able: Bools = np.ones(len(parked), dtype=np.bool_)
        for asks in range(2):
            if load.gate[asks, row] == EXPIRED:
                able &= kinds != asks
            elif load.gate[asks, row] == JUDGE:
                for each in range(2):
                    capacity, limit = load.capacity.item(each, row), load.limit.item(asks, each, row)
                    if capacity > 0 and limit > 0:
                        used = load.judged[asks, each, row] + parked.estimates[each]
                        able &= (kinds != asks) | (used * 200 + capacity < (limit + 1) * 2 * capacity)
        return able

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        """Nodes without a fresh report score 0: placed last, by their requests, not shut out."""
        load, policy = cluster.load, cluster.load.policy
        used = load.scored[int(shape.is_prod)][:, rows] + _column(shape.estimate.used)
        capacity = load.capacity[:, rows]
        free = np.maximum(capacity - used, 0) * 100 // np.maximum(capacity, 1)
        weights = np.array([[policy.weights.get(name, 0)] for name in FACTOR_RESOURCES], dtype=np.int64)
        total = (free * weights).sum(axis=0) + policy.dominant_weight * free.min(axis=0)
        points = total // max(1, int(weights.sum()) + policy.dominant_weight)
        found: Ints = np.where(load.fresh[rows], points, 0)
        return found

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        node, single, load = cluster.name(row), np.array([row]), cluster.load
        if load.gate[int(shape.is_prod), row] == EXPIRED:
            return Refusal(
                ReasonCode.METRICS_EXPIRED,
                f"node {node} reported usage last at {int(load.metric_ms[row])} ms, "
                f"older than the {load.policy.expiration_ms // 1000} s allowed",
                {"metric_ms": int(load.metric_ms[row]), "expiration_ms": load.policy.expiration_ms},
                f"a fresh report from node {node}",
            )
        asks = int(shape.is_prod)
        view, used = _VIEWS[load.view.item(asks, row)], load.judged[asks][:, single]
        limits, percents = _limits(shape, cluster, single), _percent(shape, cluster, single)[:, 0]
        which = next(i for i in range(2) if limits[i, 0] > 0 and percents[i] > limits[i, 0] and load.capacity[i, row])
        name, estimate = FACTOR_RESOURCES[which], shape.estimate.used[which]
        return Refusal(
            ReasonCode.LOAD_THRESHOLD_EXCEEDED,
            f"{name}: {view} of node {node} would be {percents[which]} % "
            f"({render(name, int(used[which, 0]))} now + {render(name, estimate)} estimated "
            f"of {render(name, int(load.capacity[which, row]))}), over {limits[which, 0]} %",
            {
                "resource": name, "percent": int(percents[which]), "threshold": int(limits[which, 0]),
                "view": view, "used": int(used[which, 0]), "estimate": estimate,
            },
            f"{name} load of {node} falling under {limits[which, 0]} %",
        )  # fmt: skip

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        expired = cluster.load.gate[int(shape.is_prod)][rows] == EXPIRED
        return alike(cluster, rows[expired], lambda row: self.refuse(shape, cluster, row)) + alike(
            cluster, rows[np.logical_not(expired)], lambda row: self.refuse(shape, cluster, row)
        )


def _column(pair: tuple[int, int]) -> Ints:
    return np.array(pair, dtype=np.int64).reshape(2, 1)


def _limits(shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
    found: Ints = cluster.load.limit[int(shape.is_prod)][:, rows]
    return found


def _percent(shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
    """Rounded half up, in integers."""
    capacity = np.maximum(cluster.load.capacity[:, rows], 1)
    used = cluster.load.judged[int(shape.is_prod)][:, rows] + _column(shape.estimate.used)
    percent: Ints = (used * 200 + capacity) // (2 * capacity)
    return percent
