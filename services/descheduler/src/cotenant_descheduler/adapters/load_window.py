"""Turns the stream of node usage into the load that the core judges."""

from collections import deque
from collections.abc import Iterable, Mapping

from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_descheduler.core.classify import NodeLoad


class LoadWindow:
    """The last ``window_ms`` of one node's reports, averaged. A value that no report holds stays unknown."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._reports: deque[NodeUsage] = deque()

    def add(self, report: NodeUsage) -> None:
        if self._reports and report.at_ms <= self._reports[-1].at_ms:
            return  # reordered or repeated
        self._reports.append(report)
        while report.at_ms - self._reports[0].at_ms > self._window_ms:
            self._reports.popleft()

    @property
    def latest_ms(self) -> int | None:
        return self._reports[-1].at_ms if self._reports else None

    def load(self, node: str, allocatable: Mapping[str, int], *, schedulable: bool) -> NodeLoad | None:
        """None before the first report."""
        if not self._reports:
            return None
        return NodeLoad(
            node=node,
            at_ms=self._reports[-1].at_ms,
            allocatable=allocatable,
            usage=_mean_usage(report.usage for report in self._reports),
            prod_usage=_mean_prod(self._reports),
            memory_pressure=_mean(report.memory_pressure_some for report in self._reports),
            run_queue_wait_ms=_mean(report.run_queue_wait_ms for report in self._reports),
            schedulable=schedulable,
        )

    def pod_usage(self) -> dict[str, dict[str, int]]:
        """Mean usage by pod uid over the reports that name the pod."""
        by_uid: dict[str, list[PodUsage]] = {}
        for report in self._reports:
            for pod in report.pods:
                by_uid.setdefault(pod.uid, []).append(pod)
        return {uid: _mean_usage(samples) for uid, samples in by_uid.items()}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean_usage(samples: Iterable[Usage | PodUsage]) -> dict[str, int]:
    listed = list(samples)
    means = {
        CPU: _mean(sample.cpu_milli for sample in listed),
        MEMORY: _mean(sample.memory_bytes for sample in listed),
    }
    return {name: round(value) for name, value in means.items() if value is not None}


def _mean_prod(reports: Iterable[NodeUsage]) -> dict[str, int]:
    return _mean_usage(
        Usage(
            cpu_milli=_known_sum(pod.cpu_milli for pod in _prod(report)),
            memory_bytes=_known_sum(pod.memory_bytes for pod in _prod(report)),
        )
        for report in reports
    )


def _prod(report: NodeUsage) -> list[PodUsage]:
    return [pod for pod in report.pods if pod.band == PriorityBand.PROD]


def _known_sum(values: Iterable[int | None]) -> int:
    return sum(value for value in values if value is not None)
