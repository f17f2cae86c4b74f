"""Emptying a node: the same gate, asked pod by pod, each answer counting for the next one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cotenant_gateway.core import gate
from cotenant_gateway.core.records import PodState, Put
from cotenant_gateway.core.removal import Decision, GateSettings, Ledger, Request, Victim, name_of


@dataclass(frozen=True, slots=True)
class Draining:
    """One pass. ``decisions`` in the order in which the pods were asked for; ``changes`` are one batch."""

    decisions: tuple[Decision, ...]
    changes: tuple[Put, ...] = ()


def drain(
    node: str, pods: Sequence[PodState], asked: Request, ledger: Ledger, settings: GateSettings, now_ms: int
) -> Draining:
    """``asked`` says who wants it and why; its victims are the pods on ``node``, least important first."""
    decisions: list[Decision] = []
    changes: list[Put] = []
    current = dict(ledger.pods)
    for pod in sorted(pods, key=_order):
        if pod.node != node or pod.finished:
            continue
        victim = Victim(pod.spec.uid, pod.spec.namespace or "", pod.spec.name, node)
        request = replace(asked, id=f"{asked.id}/{pod.spec.uid}", kind="drain", victims=(victim,))
        decision = gate.decide(request, replace(ledger, pods=current), settings, now_ms)
        decisions.append(decision)
        for change in decision.changes:
            changes.append(change)
            current[change.spec.uid] = replace(current[change.spec.uid], spec=change.spec)
    return Draining(tuple(decisions), tuple(changes))


def _order(pod: PodState) -> tuple[int, str]:
    return (pod.spec.pod().priority_value, name_of(pod))
