"""Messages of the bus to the core's own values, and back."""

from collections.abc import Iterable
from dataclasses import replace

from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import EvictReply, EvictRequest, VictimDecision
from cotenant_common.contracts.messages.state import (
    Deletion,
    Eviction,
    NodeInventory,
    PodSchedRecord,
    PodStatusRecord,
    SpecRecord,
)
from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core import removal
from cotenant_gateway.core.nodes import Inventory
from cotenant_gateway.core.records import Mark, PastEviction, Seen, Spec
from cotenant_gateway.core.views import Waiting


def to_spec(record: SpecRecord) -> Spec:
    return Spec(
        kind=record.kind,
        namespace=record.namespace,
        name=record.name,
        uid=record.uid,
        created_ms=record.created_ms,
        manifest=record.manifest,
        incarnation=record.incarnation,
        generation=record.generation,
        owner=record.owner,
        deletion=_to_mark(record.deletion),
        terminal_ms=record.terminal_ms,
        requeued_from=record.requeued_from,
        requeue_reason=record.requeue_reason,
        evicted=tuple(_to_past(entry) for entry in record.evicted),
        tells=tuple(record.tells),
    )


def _to_mark(mark: Deletion | None) -> Mark | None:
    if mark is None:
        return None
    return Mark(
        mark.at_ms,
        mark.grace_ms,
        mark.reason,
        mark.message,
        mark.requested_by,
        mark.requeue,
        mark.command_id,
        mark.kind,
        mark.data,
    )


def _to_past(entry: Eviction) -> PastEviction:
    return PastEviction(entry.at_ms, entry.uid, entry.node, entry.reason, entry.message, entry.requested_by, entry.data)


def to_record(spec: Spec) -> SpecRecord:
    return SpecRecord(
        kind=spec.kind,
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.uid,
        incarnation=spec.incarnation,
        generation=spec.generation,
        created_ms=spec.created_ms,
        manifest=dict(spec.manifest),
        owner=spec.owner,
        deletion=_to_deletion(spec.deletion),
        terminal_ms=spec.terminal_ms,
        requeued_from=spec.requeued_from,
        requeue_reason=spec.requeue_reason,
        evicted=[_to_eviction(past) for past in spec.evicted],
        tells=list(spec.tells),
    )


def _to_deletion(mark: Mark | None) -> Deletion | None:
    if mark is None:
        return None
    return Deletion(
        at_ms=mark.at_ms,
        grace_ms=mark.grace_ms,
        reason=mark.reason,
        message=mark.message,
        requested_by=mark.requested_by,
        requeue=mark.requeue,
        command_id=mark.command_id,
        kind=mark.kind,
        data=dict(mark.data),
    )


def _to_eviction(past: PastEviction) -> Eviction:
    return Eviction(
        at_ms=past.at_ms,
        uid=past.uid,
        node=past.node,
        reason=past.reason,
        message=past.message,
        requested_by=past.requested_by,
        data=dict(past.data),
    )


def to_seen(records: Iterable[PodStatusRecord]) -> Seen | None:
    """Of several nodes' words the one about the latest attempt; a refusal counts only when nothing else was said."""
    best = max(records, key=lambda r: (not r.rejected, r.attempt, r.node), default=None)
    if best is None:
        return None
    return Seen(
        uid=best.uid,
        node=best.node,
        phase=best.phase,
        ready=best.ready,
        reason=best.reason,
        message=best.message,
        rejected=best.rejected,
        restarts=best.restarts,
        started_ms=best.started_ms,
        finished_ms=best.finished_ms,
        exit_code=best.exit_code,
        warnings=tuple(best.warnings),
    )


def to_survivor(record: PodStatusRecord) -> Spec | None:
    """A pod that outlived its store, as it is to be written again: held to the node where it runs."""
    if record.survivor is None or record.survivor.deletion is not None:
        return None
    spec = to_spec(record.survivor)
    body = {**spec.body, "nodeName": record.node}
    return replace(
        spec,
        manifest={**spec.manifest, "spec": body},
        requeue_reason=str(ReasonCode.ADOPTED),
        tells=("pod.queued",),
    )


def to_waiting(record: PodSchedRecord | None) -> Waiting | None:
    if record is None:
        return None
    return Waiting(record.state, record.reason, record.message, record.attempts, record.nominated_node)


def to_inventory(record: NodeInventory) -> Inventory:
    details = {"kernel": record.kernel, "cpu_model": record.cpu_model, "cpus": record.cpus, "runtime": record.runtime}
    return Inventory(
        node=record.node,
        agent_id=record.agent_id,
        capacity=record.capacity,
        allocatable=record.allocatable,
        labels=record.labels,
        idle_class=record.idle_class,
        details={key: value for key, value in details.items() if value},
    )


def to_gate_request(message: EvictRequest) -> removal.Request:
    return removal.Request(
        id=message.id,
        kind=message.kind,
        victims=tuple(removal.Victim(v.uid, v.namespace, v.name, v.node) for v in message.victims),
        requested_by=message.requested_by,
        reason=message.reason,
        message=message.message,
        numbers=message.numbers,
        beneficiary=message.beneficiary,
        landing_node=message.landing_node,
        landing_reservation=message.landing_reservation,
        grace_ms=message.grace_ms,
        deadline_ms=message.deadline_ms,
    )


def to_evict_reply(command_id: str, decision: removal.Decision) -> EvictReply:
    return EvictReply(
        id=command_id,
        granted=decision.granted,
        reason=decision.reason,
        message=decision.message,
        victims=[_to_victim(verdict) for verdict in decision.verdicts],
        numbers=dict(decision.numbers),
        retry_after_ms=decision.refusal.retry_ms if decision.refusal else None,
    )


def _to_victim(verdict: removal.Verdict) -> VictimDecision:
    victim, refusal = verdict.victim, verdict.refusal
    return VictimDecision(
        pod=PodRef(uid=victim.uid, namespace=victim.namespace, name=victim.name, node=victim.node),
        granted=refusal is None,
        reason=refusal.reason if refusal else None,
        message=refusal.message if refusal else verdict.message,
    )
