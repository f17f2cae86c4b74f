"""Sentences for refusals: what was tried, what came closest, what would help.

Pods that share an answer share its text, so no sentence here names a pod.
"""

from dataclasses import replace
from typing import Final

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.cycle import NoChoice
from cotenant_scheduler.core.quota import NotCovered, QuotaRefusal
from cotenant_scheduler.core.refusals import RefusalGroup
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.verdict import Verdict, Waiting

_SHOWN: Final = 3


def choice_verdict(found: NoChoice) -> Verdict:
    groups = sorted(found.groups, key=lambda group: (-group.nodes, group.code, group.message))
    if found.barred:
        groups.append(_rejections(found.barred))
    if not groups:
        return Verdict(
            Waiting.UNSCHEDULABLE,
            ReasonCode.NO_NODES,
            "there is no node at all",
            nodes_total=found.nodes,
            helps=("a node joining: cotenant agent join",),
        )
    reason = groups[0].code
    counts = "; ".join(f"{group.nodes} × {group.code} ({group.message})" for group in groups)
    return Verdict(
        Waiting.REJECTED if reason is ReasonCode.BIND_REJECTED else Waiting.UNSCHEDULABLE,
        reason,
        f"0 of {found.nodes} nodes can take it: {counts}",
        tuple(groups),
        found.nodes,
        tuple(dict.fromkeys(group.helps for group in groups if group.helps)),
    )


def _rejections(barred: tuple[str, ...]) -> RefusalGroup:
    node = barred[0]
    return RefusalGroup(
        ReasonCode.BIND_REJECTED,
        len(barred),
        f"node {node} refused to start the pod and is left alone for a while",
        node,
    )


def quota_verdict(refusal: QuotaRefusal, chain: tuple[str, ...]) -> Verdict:
    return Verdict(
        Waiting.UNSCHEDULABLE,
        refusal.code,
        refusal.message,
        helps=(refusal.helps,),
        quota_chain=chain,
        numbers=refusal.numbers,
    )


def stale_verdict(gap: NotCovered, waited_ms: int) -> Verdict:
    return Verdict(
        Waiting.UNSCHEDULABLE,
        ReasonCode.QUOTA_STATUS_STALE,
        f"{gap.message}; waited {waited_ms} ms for it",
        helps=("the quota service running: cotenant status",),
        quota_chain=(gap.quota,),
        numbers=gap.numbers,
    )


def nominated_verdict(node: str, victims: tuple[str, ...], quota: str | None, since_ms: int) -> Verdict:
    who = f"{len(victims)} less important pods ({_some(victims)})" if victims else "pods that are leaving already"
    where = f"of quota {quota} " if quota is not None and victims else ""
    return Verdict(
        Waiting.NOMINATED,
        ReasonCode.PREEMPTING,
        f"nominated for {node}, waits for {who} {where}to leave",
        helps=("nothing: its room is held until it starts",),
        numbers={"node": node, "victims": list(victims), "since_ms": since_ms},
    )


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def with_preemption(verdict: Verdict, why_not: str) -> Verdict:
    return replace(verdict, message=f"{verdict.message}; {why_not}") if why_not else verdict


def gated_verdict(pod: PodRequest) -> Verdict:
    gates = ", ".join(pod.gates)
    return Verdict(
        Waiting.GATED,
        ReasonCode.SCHEDULING_GATED,
        f"waits for its scheduling gates: {gates}",
        helps=(f"removing the gates {gates} from spec.schedulingGates",),
        numbers={"gates": list(pod.gates)},
    )
