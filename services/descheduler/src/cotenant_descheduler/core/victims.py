"""Which pod leaves a hot node: the least important one whose absence just fixes it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant_common.model import labels
from cotenant_common.model.pod import Pod
from cotenant_common.model.qos import KubernetesQos, PriorityBand, QosClass

NEVER_EVICT: Final = 2**31 - 1

_BAND_ORDER: Final = (
    PriorityBand.FREE,
    PriorityBand.BATCH,
    PriorityBand.MID,
    PriorityBand.PROD,
    PriorityBand.NONE,
)
_KUBERNETES_ORDER: Final = (KubernetesQos.BEST_EFFORT, KubernetesQos.BURSTABLE, KubernetesQos.GUARANTEED)
_QOS_ORDER: Final = (QosClass.BE, QosClass.LS, QosClass.LSR, QosClass.LSE, QosClass.SYSTEM, QosClass.NONE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod on the hot node with its measured usage; a missing key is unknown."""

    pod: Pod
    usage: Mapping[str, int]
    started_ms: int | None = None


class Kept(StrEnum):
    """Why a pod stays, or a node does not take it: few words, so that they can be counted."""

    LEAVING = "Leaving"
    NOT_BEST_EFFORT = "NotBestEffort"
    DAEMON_SET = "DaemonSet"
    NEVER_EVICT = "NeverEvict"
    NOT_PREEMPTIBLE = "NotPreemptible"
    NO_USE = "NoUse"
    USAGE_UNKNOWN = "UsageUnknown"
    COOL_DOWN = "CoolDown"
    NO_REQUEUE = "NoRequeue"
    NO_LANDING_PLACE = "NoLandingPlace"
    NO_ROOM = "NoRoom"
    TOO_HOT = "TooHot"


@dataclass(frozen=True, slots=True)
class Rejection:
    """``pod`` is a pod that stays, or a node that does not take it."""

    pod: str
    kept: Kept
    why: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates in order, and why the others may not go: a protection never blocks silently."""

    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]


def rank(candidates: Iterable[Candidate], excess: Mapping[str, int]) -> Ranking:
    """Order by importance, then prefer the smallest pod that cures the excess, then the newer one."""
    allowed: list[Candidate] = []
    rejected: list[Rejection] = []
    for candidate in candidates:
        refused = _protected(candidate, excess)
        if refused is None:
            allowed.append(candidate)
        else:
            rejected.append(Rejection(candidate.pod.key, *refused))
    allowed.sort(key=lambda candidate: _sort_key(candidate, excess))
    return Ranking(tuple(allowed), tuple(rejected))


def eviction_cost(pod: Pod) -> int:
    """``scheduling.koordinator.sh/eviction-cost``; absent or malformed is 0. Go's rule: no ``+``, no leading zero."""
    text = pod.annotations.get(labels.EVICTION_COST, "0")
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or (len(digits) > 1 and digits[0] == "0"):
        return 0
    value = int(text)
    return value if -(2**31) <= value < 2**31 else 0


def _protected(candidate: Candidate, excess: Mapping[str, int]) -> tuple[Kept, str] | None:
    pod = candidate.pod
    if pod.deleting:
        return Kept.LEAVING, "is leaving already"
    if pod.qos is not QosClass.BE:
        return Kept.NOT_BEST_EFFORT, f"has QoS {pod.qos.value or 'none'}; only BE pods are moved for heat"
    if pod.owner_kind == "DaemonSet":
        return Kept.DAEMON_SET, "belongs to a DaemonSet"
    if eviction_cost(pod) == NEVER_EVICT:
        return Kept.NEVER_EVICT, "has the eviction cost that means never"
    if not pod.preemptible:
        return Kept.NOT_PREEMPTIBLE, "is not preemptible"
    return _useless(candidate.usage, excess)


def _useless(usage: Mapping[str, int], excess: Mapping[str, int]) -> tuple[Kept, str] | None:
    """Why removing the pod would not help; unknown usage proves nothing, so it is a reason of its own."""
    if not excess or any(usage.get(resource, 0) > 0 for resource in excess):
        return None
    short = " and ".join(sorted(excess))
    if all(resource in usage for resource in excess):
        return Kept.NO_USE, f"uses none of the short {short}"
    return Kept.USAGE_UNKNOWN, f"has no measured usage of the short {short}"


def _sort_key(candidate: Candidate, excess: Mapping[str, int]) -> tuple[object, ...]:
    pod = candidate.pod
    return (
        _BAND_ORDER.index(pod.band),
        pod.priority_value,
        _KUBERNETES_ORDER.index(pod.kubernetes_qos),
        _QOS_ORDER.index(pod.qos),
        pod.sub_priority,
        eviction_cost(pod),
        -_cure(candidate.usage, excess),
        -(candidate.started_ms or pod.created_ms),
        pod.key,
    )


def _cure(usage: Mapping[str, int], excess: Mapping[str, int]) -> float:
    """Koordinator's score of usage against excess: x below 1, 1 + 1/x from there, so the tightest fit is highest."""
    scores = [_fit(usage.get(resource, 0) / amount) for resource, amount in sorted(excess.items()) if amount > 0]
    return sum(scores) / len(scores) if scores else float(sum(usage.values()))


def _fit(ratio: float) -> float:
    return ratio if ratio < 1 else 1 + 1 / ratio


@dataclass(frozen=True, slots=True)
class Target:
    """A node that might take the victim: its measured usage and what of its allocatable is unrequested."""

    node: str
    allocatable: Mapping[str, int]
    usage: Mapping[str, int]
    free: Mapping[str, int]


def landing_places(
    candidate: Candidate, targets: Sequence[Target], lines: Mapping[str, float]
) -> tuple[tuple[str, ...], tuple[Rejection, ...]]:
    """Targets that hold the pod's request and stay under their lines with its usage, coolest first."""
    fitting: list[tuple[float, str]] = []
    rejected: list[Rejection] = []
    for target in targets:
        refused = _does_not_take(candidate, target, lines)
        if refused is None:
            fitting.append((_hottest(candidate, target), target.node))
        else:
            rejected.append(Rejection(target.node, *refused))
    return tuple(node for _, node in sorted(fitting)), tuple(rejected)


def _does_not_take(candidate: Candidate, target: Target, lines: Mapping[str, float]) -> tuple[Kept, str] | None:
    for resource, wanted in sorted(candidate.pod.requests.items()):
        room = target.free.get(resource)
        if wanted > 0 and (room is None or wanted > room):
            return Kept.NO_ROOM, f"has {'no' if room is None else room} {resource} free, {wanted} needed"
    for resource, line in sorted(lines.items()):
        if resource not in target.usage or not target.allocatable.get(resource):
            return Kept.USAGE_UNKNOWN, f"its {resource} usage is unknown"
        share = _share(candidate, target, resource)
        if share > line:
            return Kept.TOO_HOT, f"{resource} usage would be {share:.1f} %, over {line:g} %"
    return None


def _share(candidate: Candidate, target: Target, resource: str) -> float:
    after = target.usage[resource] + candidate.usage.get(resource, 0)
    return 100.0 * after / target.allocatable[resource]


def _hottest(candidate: Candidate, target: Target) -> float:
    return max((_share(candidate, target, r) for r in target.usage if target.allocatable.get(r)), default=0.0)
