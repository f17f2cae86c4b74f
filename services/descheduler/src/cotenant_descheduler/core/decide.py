"""One pass over the cluster: hot nodes in, at most one removal per node out, each with its reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cotenant_common.model.reasons import ReasonCode
from cotenant_descheduler.core.classify import Heat, Thresholds, Verdict
from cotenant_descheduler.core.victims import (
    Candidate,
    Kept,
    Rejection,
    Target,
    landing_places,
    rank,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """``per_cycle`` None means no cap. ``cool_down_ms`` keeps one workload from moving A → B → A."""

    per_node: int = 1
    per_cycle: int | None = None
    cool_down_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Removal:
    """``landing`` lists nodes in order of preference; empty for a reclaim."""

    mode: Literal["move", "reclaim"]
    candidate: Candidate
    source: str
    landing: tuple[str, ...]
    reason: ReasonCode
    message: str
    numbers: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one pass found on one node; ``removal`` None says with ``message`` why nothing leaves."""

    node: str
    heat: Heat
    removal: Removal | None
    considered: int
    rejections: tuple[Rejection, ...]
    reason: ReasonCode | None
    message: str


def workload(candidate: Candidate) -> str:
    """Owner of the pod, or the pod itself: what a cool-down is counted for."""
    pod = candidate.pod
    return f"{pod.owner_kind}/{pod.namespace}/{pod.owner_name}" if pod.owner_kind else f"Pod/{pod.key}"


def decide(
    hot: Sequence[Verdict],
    candidates: Mapping[str, Sequence[Candidate]],
    targets: Sequence[Target],
    thresholds: Thresholds,
    recent_moves: Mapping[str, int],
    now_ms: int,
    limits: Limits,
) -> list[NodeReport]:
    """Hottest excess first; a node takes part as source or as target, never both."""
    sources = {verdict.node for verdict in hot}
    open_targets = [target for target in targets if target.node not in sources]
    reports: list[NodeReport] = []
    removed = 0
    for verdict in sorted(hot, key=lambda v: (v.heat is not Heat.DANGER, v.node)):
        if limits.per_cycle is not None and removed >= limits.per_cycle:
            reports.append(_nothing(verdict, 0, (), ReasonCode.BUDGET_EXCEEDED, "the cap per cycle is reached"))
            continue
        cooling = {name for name, at_ms in recent_moves.items() if now_ms - at_ms < limits.cool_down_ms}
        report = _decide_node(verdict, candidates.get(verdict.node, ()), open_targets, thresholds, cooling)
        removed += report.removal is not None
        reports.append(report)
    return reports


def _decide_node(
    verdict: Verdict,
    candidates: Sequence[Candidate],
    targets: Sequence[Target],
    thresholds: Thresholds,
    cooling: set[str],
) -> NodeReport:
    ranking = rank(candidates, verdict.excess)
    rejections = list(ranking.rejections)
    for candidate in ranking.candidates:
        if verdict.heat is Heat.DANGER:
            return _report(verdict, len(candidates), rejections, _reclaim(verdict, candidate))
        if workload(candidate) in cooling:
            rejections.append(_kept(candidate, Kept.COOL_DOWN, "its workload moved less than the cool-down ago"))
            continue
        if not candidate.pod.requeue:
            rejections.append(_kept(candidate, Kept.NO_REQUEUE, "it asked not to be queued again, so it cannot move"))
            continue
        landing, refused = landing_places(candidate, targets, thresholds.total)
        if landing:
            return _report(verdict, len(candidates), rejections, _move(verdict, candidate, landing))
        rejections.extend(refused)
        rejections.append(_kept(candidate, Kept.NO_LANDING_PLACE, "no other node takes it"))
    reason = ReasonCode.NO_LANDING_PLACE if ranking.candidates else ReasonCode.NOT_EVICTABLE
    message = f"{verdict.sentence()}; none of {len(candidates)} pods can leave"
    return _nothing(verdict, len(candidates), tuple(rejections), reason, message)


def _kept(candidate: Candidate, kept: Kept, why: str) -> Rejection:
    return Rejection(candidate.pod.key, kept, why)


def _reclaim(verdict: Verdict, candidate: Candidate) -> Removal:
    message = f"node {verdict.node} is in danger: {verdict.sentence()}; {candidate.pod.key} is its least important pod"
    return Removal(
        "reclaim", candidate, verdict.node, (), ReasonCode.NODE_PRESSURE, message, _numbers(verdict, candidate)
    )


def _move(verdict: Verdict, candidate: Candidate, landing: tuple[str, ...]) -> Removal:
    message = f"node {verdict.node} stays hot: {verdict.sentence()}; {candidate.pod.key} fits on {landing[0]}"
    return Removal("move", candidate, verdict.node, landing, ReasonCode.NODE_HOT, message, _numbers(verdict, candidate))


def _numbers(verdict: Verdict, candidate: Candidate) -> dict[str, object]:
    return {
        "causes": [
            {"what": c.what, "value": round(c.value, 2), "threshold": c.threshold, "excess": c.excess}
            for c in verdict.causes
        ],
        "usage": dict(sorted(candidate.usage.items())),
    }


def _report(verdict: Verdict, considered: int, rejections: list[Rejection], removal: Removal) -> NodeReport:
    return NodeReport(
        verdict.node, verdict.heat, removal, considered, tuple(rejections), removal.reason, removal.message
    )


def _nothing(
    verdict: Verdict, considered: int, rejections: tuple[Rejection, ...], reason: ReasonCode, message: str
) -> NodeReport:
    return NodeReport(verdict.node, verdict.heat, None, considered, rejections, reason, message)
