"""What prod has requested and will not use, from the peaks of what it used (Koordinator's peak predictors).

Two views are taken and the smaller holds: pod by pod, and all of prod beside the system. Peaks get a safety margin
here; who uses the result must not add another. CPU in milli-cores, memory in bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cotenant_common.model.resources import CPU, MEMORY, ResourceList

RESOURCES: Final = (CPU, MEMORY)
SAFETY_MARGIN_PERCENT: Final = 10


@dataclass(frozen=True, slots=True)
class PodPeak:
    """A prod pod. ``peak`` is p95 of its CPU and p98 of its memory; None: too young, or never measured."""

    uid: str
    request: ResourceList
    peak: ResourceList | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """``reclaimable`` may be lent; ``peak`` is what prod will use, with margin, unpredicted pods by their request."""

    reclaimable: ResourceList
    peak: ResourceList


def pod_forecast(
    pods: Iterable[PodPeak], allocatable: ResourceList, *, margin_percent: int = SAFETY_MARGIN_PERCENT
) -> Forecast:
    """Sum over pods of what each leaves of its own request."""
    known = list(pods)
    reclaimable, peaks = {}, {}
    for resource in RESOURCES:
        left = predicted = unpredicted = 0
        for pod in known:
            request = pod.request.get(resource, 0)
            if pod.peak is None or resource not in pod.peak:
                unpredicted += request
                continue
            peak = with_margin(pod.peak[resource], margin_percent)
            left += max(0, request - peak)
            predicted += peak
        reclaimable[resource] = min(left, max(0, allocatable.get(resource, 0) - predicted))
        peaks[resource] = predicted + unpredicted
    return Forecast(reclaimable, peaks)


def class_forecast(
    requests: ResourceList,
    prod_and_system_peak: ResourceList,
    allocatable: ResourceList,
    *,
    margin_percent: int = SAFETY_MARGIN_PERCENT,
) -> Forecast:
    """All of prod as one: its pods seldom peak together. ``requests`` is their sum, young pods included."""
    reclaimable, peaks = {}, {}
    for resource in RESOURCES:
        peak = with_margin(prod_and_system_peak.get(resource, 0), margin_percent)
        free = max(0, allocatable.get(resource, 0) - peak)
        reclaimable[resource] = min(max(0, requests.get(resource, 0) - peak), free)
        peaks[resource] = peak
    return Forecast(reclaimable, peaks)


def cautious(*forecasts: Forecast) -> Forecast:
    """The least that any forecast would lend, and the highest peak."""
    return Forecast(
        {name: min(one.reclaimable[name] for one in forecasts) for name in RESOURCES},
        {name: max(one.peak[name] for one in forecasts) for name in RESOURCES},
    )


def with_margin(value: int, percent: int) -> int:
    """Rounded up: a margin is not to be lost to rounding."""
    return -(-value * (100 + percent) // 100)
