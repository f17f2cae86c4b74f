"""Sentences for refusals: what was tried, what came closest, what would help.

Pods that share an answer share its text, so no sentence here names a pod.
"""

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.cycle import NoChoice
from cotenant_scheduler.core.quota import NotCovered, QuotaRefusal
from cotenant_scheduler.core.refusals import RefusalGroup
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.verdict import Verdict, Waiting


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


def gated_verdict(pod: PodRequest) -> Verdict:
    gates = ", ".join(pod.gates)
    return Verdict(
        Waiting.GATED,
        ReasonCode.SCHEDULING_GATED,
        f"waits for its scheduling gates: {gates}",
        helps=(f"removing the gates {gates} from spec.schedulingGates",),
        numbers={"gates": list(pod.gates)},
    )
