"""Samples of one node, averaged over a short window that ends with the newest."""

from collections import deque
from collections.abc import Mapping, Sequence
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

    def add(self, sample: Sample) -> bool:
        """Take a sample; one that is not newer than the last is a repetition or late, and dropped."""
        if self._samples and sample.at_ms <= self._samples[-1].at_ms:
            return False
        self._samples.append(sample)
        self._average = None
        while sample.at_ms - self._samples[0].at_ms >= self._length_ms:
            self._samples.popleft()
        return True

    def average(self) -> Sample | None:
        """None until there is a sample. Asked several times per sample, and worked out once."""
        if self._average is None and self._samples:
            self._average = self._work_out()
        return self._average

    def _work_out(self) -> Sample:
        newest = self._samples[-1]
        used: dict[str, list[int]] = {uid: [] for uid in newest.pods}
        for sample in self._samples:
            for uid, pod in sample.pods.items():
                if uid in used and CPU in pod.usage:
                    used[uid].append(pod.usage[CPU])
        return Sample(
            newest.at_ms,
            _merge(newest.node, [one.node[CPU] for one in self._samples if CPU in one.node]),
            _merge(newest.system, [one.system[CPU] for one in self._samples if CPU in one.system]),
            {uid: PodSample(pod.band, _merge(pod.usage, used[uid])) for uid, pod in newest.pods.items()},
        )


def _merge(newest: ResourceList, cpu_milli: Sequence[int]) -> dict[str, int]:
    merged: dict[str, int] = {}
    if cpu_milli:
        merged[CPU] = sum(cpu_milli) // len(cpu_milli)
    if MEMORY in newest:
        merged[MEMORY] = newest[MEMORY]
    return merged
