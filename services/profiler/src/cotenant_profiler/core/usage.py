"""Samples of one node, averaged over a short window that ends with the newest."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.resources import CPU, MEMORY, ResourceList


@dataclass(frozen=True, slots=True)
class PodSample:
    band: PriorityBand
    usage: ResourceList


@dataclass(frozen=True, slots=True)
class Sample:
    """One report. A resource that was not measured is missing."""

    at_ms: int
    node: ResourceList
    system: ResourceList
    pods: Mapping[str, PodSample] = field(default_factory=dict)


class UsageWindow:
    """CPU is averaged, for a second of it says little; of memory the newest value counts.

    Pods that the newest sample does not name are gone, whatever the window still holds of them.
    """

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._samples: deque[Sample] = deque()
        self._average: Sample | None = None
        self._node, self._system = _Mean(), _Mean()
        self._pods: dict[str, _Mean] = {}
        self._means: Mapping[str, PodSample] | None = None

    def add(self, sample: Sample) -> bool:
        """Take a sample; one that is not newer than the last is a repetition or late, and dropped."""
        if self._samples and sample.at_ms <= self._samples[-1].at_ms:
            return False
        last = self._samples[-1].pods if self._samples else None
        self._samples.append(sample)
        leaving: list[Sample] = []
        while sample.at_ms - self._samples[0].at_ms >= self._length_ms:
            leaving.append(self._samples.popleft())
        # One and the same table comes and goes while nothing changes on the node: then no pod's mean moves.
        still = len(leaving) == 1 and leaving[0].pods is sample.pods is last
        self._count(sample, 1, pods=not still)
        for one in leaving:
            self._count(one, -1, pods=not still)
        self._means = self._average.pods if still and self._average is not None else None
        self._average = None
        return True

    def _count(self, sample: Sample, sign: int, *, pods: bool) -> None:
        self._node.count(sample.node, sign)
        self._system.count(sample.system, sign)
        if not pods:
            return
        for uid, pod in sample.pods.items():
            mean = self._pods.get(uid)
            if mean is None:
                mean = self._pods[uid] = _Mean()
            mean.count(pod.usage, sign)
            if not mean.samples:
                del self._pods[uid]

    def average(self) -> Sample | None:
        """None until there is a sample. Asked several times per sample, and worked out once."""
        if self._average is None and self._samples:
            self._average = self._work_out()
        return self._average

    def _work_out(self) -> Sample:
        newest = self._samples[-1]
        pods = self._means
        if pods is None:
            pods = {uid: PodSample(pod.band, self._pods[uid].merged(pod.usage)) for uid, pod in newest.pods.items()}
        return Sample(newest.at_ms, self._node.merged(newest.node), self._system.merged(newest.system), pods)


@dataclass(slots=True)
class _Mean:
    """CPU over the samples of the window, kept as a sum: most samples change one in ten of its terms."""

    samples: int = 0
    total_milli: int = 0
    measured: int = 0

    def count(self, usage: ResourceList, sign: int) -> None:
        self.samples += sign
        cpu_milli = usage.get(CPU)
        if cpu_milli is not None:
            self.total_milli += sign * cpu_milli
            self.measured += sign

    def merged(self, newest: ResourceList) -> dict[str, int]:
        merged: dict[str, int] = {}
        if self.measured:
            merged[CPU] = self.total_milli // self.measured
        if MEMORY in newest:
            merged[MEMORY] = newest[MEMORY]
        return merged
