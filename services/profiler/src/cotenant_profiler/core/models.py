"""Usage models of one node: a histogram pair for each prod pod, for prod as a whole and for the system."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.resources import CPU, MEMORY, ResourceList, add
from cotenant_profiler.core.facts import PodFacts
from cotenant_profiler.core.histogram import DecayingHistogram, ExponentialBuckets
from cotenant_profiler.core.predictor import Forecast, PodPeak, cautious, class_forecast, pod_forecast
from cotenant_profiler.core.usage import Sample

_HOUR_MS: Final = 3_600_000
# In milli-cores and bytes: 25 m to 1,024 cores, 5 MiB to 2 TiB.
_CPU_BUCKETS: Final = ExponentialBuckets(maximum=1_024_000, first=25)
_MEMORY_BUCKETS: Final = ExponentialBuckets(maximum=2**41, first=5 * 2**20)
_CPU_HALF_LIFE_MS: Final = 12 * _HOUR_MS
_MEMORY_HALF_LIFE_MS: Final = 24 * _HOUR_MS
_PROD: Final = (PriorityBand.PROD, PriorityBand.NONE)


@dataclass(slots=True)
class UsageModel:
    """``since_ms`` is when it learned its first sample."""

    since_ms: int
    cpu: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(_CPU_BUCKETS, _CPU_HALF_LIFE_MS))
    memory: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(_MEMORY_BUCKETS, _MEMORY_HALF_LIFE_MS))

    def learn(self, usage: ResourceList, now_ms: int) -> None:
        self.cpu.add(usage[CPU], 1.0, now_ms)
        self.memory.add(usage[MEMORY], 1.0, now_ms)

    def peak(self) -> dict[str, int]:
        """p95 of CPU, p98 of memory."""
        return {CPU: round(self.cpu.percentile(0.95)), MEMORY: round(self.memory.percentile(0.98))}


class NodeModels:
    """Learns at most once per ``interval_ms``. Models of pods that are gone are dropped with the next sample."""

    def __init__(self, *, interval_ms: int = 60_000, cold_start_ms: int = 24 * _HOUR_MS) -> None:
        self._interval_ms = interval_ms
        self._cold_start_ms = cold_start_ms
        self._learned_ms: int | None = None
        self._pods: dict[str, UsageModel] = {}
        self._prod: UsageModel | None = None
        self._system: UsageModel | None = None

    def learn(self, sample: Sample, now_ms: int) -> bool:
        """Add one sample of everybody; return whether it was time to. Half-measured pods are left to the system."""
        if self._learned_ms is not None and now_ms - self._learned_ms < self._interval_ms:
            return False
        if not _complete(sample.system):
            return False
        self._learned_ms = now_ms
        prod = {uid: pod.usage for uid, pod in sample.pods.items() if pod.band in _PROD and _complete(pod.usage)}
        self._pods = {uid: self._pods.get(uid) or UsageModel(now_ms) for uid in prod}
        for uid, usage in prod.items():
            self._pods[uid].learn(usage, now_ms)
        self._prod = self._prod or UsageModel(now_ms)
        self._prod.learn(_total(prod.values()), now_ms)
        self._system = self._system or UsageModel(now_ms)
        self._system.learn(sample.system, now_ms)
        return True

    def forecast(self, pods: Iterable[PodFacts], allocatable: ResourceList, now_ms: int) -> Forecast | None:
        """None until prod as a whole has been watched for the cold-start time: a young model knows no peaks."""
        if self._prod is None or self._system is None or now_ms - self._prod.since_ms < self._cold_start_ms:
            return None
        prod = [pod for pod in pods if pod.band in _PROD and not pod.deleting]
        by_pod = pod_forecast([PodPeak(pod.uid, pod.request, self._peak_of(pod, now_ms)) for pod in prod], allocatable)
        together = add(self._prod.peak(), self._system.peak())
        return cautious(by_pod, class_forecast(_total(pod.request for pod in prod), together, allocatable))

    def _peak_of(self, pod: PodFacts, now_ms: int) -> dict[str, int] | None:
        model = self._pods.get(pod.uid)
        if model is None:
            return None
        born_ms = model.since_ms if pod.created_ms is None else max(pod.created_ms, model.since_ms)
        return None if now_ms - born_ms < self._cold_start_ms else model.peak()


def _complete(usage: ResourceList) -> bool:
    return CPU in usage and MEMORY in usage


def _total(usages: Iterable[ResourceList]) -> dict[str, int]:
    total = {CPU: 0, MEMORY: 0}
    for usage in usages:
        total = add(total, {name: usage.get(name, 0) for name in total})
    return total
