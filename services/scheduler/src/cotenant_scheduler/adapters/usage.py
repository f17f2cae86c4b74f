"""Usage of a node over a window, from samples that arrive once a second."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cotenant_common.contracts.messages.telemetry import NodeUsage, Usage
from cotenant_common.model.qos import PriorityBand
from cotenant_scheduler.core.estimate import Aggregation, NodeMetric, Pair, PodMetric

_PROD: Final = (PriorityBand.PROD.value, PriorityBand.PROD.short)
_PERCENT: Final = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


_PodSum = list[int]
"""Milli-cores and bytes, each times the milliseconds they were measured over; how many samples; 1 for a prod pod.

A plain list: every pod of every node passes here once a second.
"""


@dataclass(frozen=True, slots=True)
class _Sample:
    """What has to be taken off again when the sample leaves the window."""

    at_ms: int
    weight: int
    node: Pair
    system: Pair
    pods: list[tuple[str, int, int]]


@dataclass(slots=True)
class UsageWindow:
    """Running sums, so that a sample costs what it carries and not what the window holds.

    A pod's mean is over the whole window, like the node's: then node mean + (estimate − pod mean) is the estimate for
    a pod that started a moment ago, and not less.
    """

    window_ms: int
    kept_ms: int
    _samples: deque[_Sample] = field(default_factory=deque)
    _history: deque[tuple[int, Pair]] = field(default_factory=deque)
    _weight: int = 0
    _node: Pair = (0, 0)
    _system: Pair = (0, 0)
    _pods: dict[str, _PodSum] = field(default_factory=dict)

    def add(self, sample: NodeUsage) -> bool:
        """False for a sample that is late or has no CPU yet: it changes nothing."""
        used = _pair(sample.usage)
        if used is None or (self._samples and sample.at_ms <= self._samples[-1].at_ms):
            return False
        self._take(sample, used)
        while self._samples[0].at_ms <= sample.at_ms - self.window_ms:
            self._drop(self._samples.popleft())
        self._history.append((sample.at_ms, used))
        while self._history[0][0] <= sample.at_ms - self.kept_ms:
            self._history.popleft()
        return True

    def _take(self, sample: NodeUsage, used: Pair) -> None:
        weight, pods, sums = max(1, sample.interval_ms), [], self._pods
        for pod in sample.pods:
            uid, cpu, memory = pod.uid, weight * (pod.cpu_milli or 0), weight * (pod.memory_bytes or 0)
            pods.append((uid, cpu, memory))
            total = sums.get(uid)
            if total is None:
                sums[uid] = [cpu, memory, 1, pod.band in _PROD]
            else:
                total[0] += cpu
                total[1] += memory
                total[2] += 1
                total[3] = pod.band in _PROD
        system = _pair(sample.system) or (0, 0)
        self._samples.append(_Sample(sample.at_ms, weight, used, system, pods))
        self._weight += weight
        self._node = _moved(self._node, used, weight)
        self._system = _moved(self._system, system, weight)

    def _drop(self, sample: _Sample) -> None:
        sums = self._pods
        for uid, cpu, memory in sample.pods:
            total = sums[uid]
            if total[2] == 1:
                del sums[uid]
            else:
                total[0] -= cpu
                total[1] -= memory
                total[2] -= 1
        self._weight -= sample.weight
        self._node = _moved(self._node, sample.node, -sample.weight)
        self._system = _moved(self._system, sample.system, -sample.weight)

    def metric(self, wanted: Iterable[Aggregation]) -> NodeMetric | None:
        """The report as of the newest sample; None before the first."""
        if not self._samples:
            return None
        newest, weight = self._samples[-1].at_ms, self._weight
        pods = {
            uid: PodMetric((cpu // weight, memory // weight), bool(prod))
            for uid, (cpu, memory, _, prod) in self._pods.items()
        }
        return NodeMetric(
            update_ms=newest,
            interval_ms=self.window_ms,
            usage=self._mean(self._node),
            system=self._mean(self._system),
            pods=pods,
            aggregated={each: self._aggregate(each, newest) for each in wanted},
        )

    def _mean(self, total: Pair) -> Pair:
        return total[0] // self._weight, total[1] // self._weight

    def _aggregate(self, wanted: Aggregation, newest_ms: int) -> Pair:
        since = newest_ms - (wanted.duration_ms or self.kept_ms)
        inside = [used for at_ms, used in self._history if at_ms > since]
        if wanted.kind == "avg":
            return sum(used[0] for used in inside) // len(inside), sum(used[1] for used in inside) // len(inside)
        percent = _PERCENT[wanted.kind]
        return _nearest_rank([used[0] for used in inside], percent), _nearest_rank(
            [used[1] for used in inside], percent
        )


def _nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def _pair(usage: Usage) -> Pair | None:
    """Both or nothing: half a measurement would compare a measured with an unknown node."""
    if usage.cpu_milli is None or usage.memory_bytes is None:
        return None
    return usage.cpu_milli, usage.memory_bytes


def _moved(total: Pair, used: Pair, weight: int) -> Pair:
    return total[0] + weight * used[0], total[1] + weight * used[1]
