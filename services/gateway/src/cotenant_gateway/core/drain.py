"""Emptying a node: the same gate, asked pod by pod, each answer counting for the next one."""

from collections.abc import Sequence
from dataclasses import replace

from cotenant_gateway.core import gate
from cotenant_gateway.core.records import PodState
from cotenant_gateway.core.removal import Decision, GateSettings, Ledger, Request, Victim, name_of


def drain(
    node: str, pods: Sequence[PodState], asked: Request, ledger: Ledger, settings: GateSettings, now_ms: int
) -> tuple[Decision, ...]:
    """One pass. ``asked`` says who wants it and why; its victims are the pods on ``node``, least important first."""
    decisions: list[Decision] = []
    current = dict(ledger.pods)
    for pod in sorted(pods, key=_order):
        if pod.node != node or pod.finished:
            continue
        victim = Victim(pod.spec.uid, pod.spec.namespace or "", pod.spec.name, node)
        request = replace(asked, id=f"{asked.id}/{pod.spec.uid}", kind="drain", victims=(victim,))
        decision = gate.decide(request, replace(ledger, pods=current), settings, now_ms)
        decisions.append(decision)
        for change in decision.changes:
            current[change.spec.uid] = replace(current[change.spec.uid], spec=change.spec)
    return tuple(decisions)


def _order(pod: PodState) -> tuple[int, str]:
    return (pod.spec.pod().priority_value, name_of(pod))
