"""Answers to ``explain`` and ``why-not``, always from a fresh look rather than from the last refusal."""

from typing import Any

from cotenant_common.contracts.messages.commands import ExplainReply, ExplainRequest, WhyNotReply, WhyNotRequest
from cotenant_common.contracts.messages.state import Binding, SpecRecord
from cotenant_common.model.ids import InvalidNameError, spec_key
from cotenant_scheduler.adapters.records import Records, refusal_counts
from cotenant_scheduler.adapters.state import ClusterState
from cotenant_scheduler.adapters.stories import Stories
from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.verdict import Verdict


def find(state: ClusterState, namespace: str, name: str) -> SpecRecord | None:
    try:
        return state.specs.items.get(spec_key("Pod", namespace, name))
    except InvalidNameError:
        return None


def explain(
    state: ClusterState, engine: Engine, records: Records, stories: Stories, request: ExplainRequest, now_ms: int
) -> ExplainReply:
    record = find(state, request.namespace, request.name)
    if record is None:
        text = f"no pod {request.namespace}/{request.name}; cotenant get pods lists what there is"
        return ExplainReply(found=False, state="Unknown", message=text)
    known = records.known(record.uid)
    common: dict[str, Any] = {
        "found": True,
        "uid": record.uid,
        "nodes_total": len(engine.cluster.alive_rows()),
        "attempts": known.attempts if known is not None else 0,
        "quota": quota_facts(engine, record.namespace or "", _quota_label(state, record.uid)),
        "timeline": timeline(record, stories),
    }
    binding = state.binding(record.uid)
    if binding is not None and state.rejection(record.uid) is None:
        return _explain_bound(state, stories, record, binding, common)
    return _explain_waiting(state, engine, record, common, now_ms)


def _quota_label(state: ClusterState, uid: str) -> str | None:
    pod = state.request(uid)
    return pod.quota_label if pod is not None else None


def _explain_bound(
    state: ClusterState, stories: Stories, record: SpecRecord, binding: Binding, common: dict[str, Any]
) -> ExplainReply:
    status, story = state.status(binding), stories.of(record.uid)
    chosen = f"bound to {binding.node}, attempt {binding.attempt}"
    if binding.score is not None:
        chosen += f", with {binding.score} points"
    if story.feasible is not None:
        chosen += f", the best of {story.feasible} nodes that could take it"
    if binding.queued_ms is not None:
        chosen += f", {binding.bound_ms - binding.queued_ms} ms after it was created"
    return ExplainReply(
        **common,
        state=status.phase if status is not None else "Bound",
        reason=status.reason if status is not None else None,
        message=chosen,
        node=binding.node,
        scores=story.scores or ({binding.node: binding.score} if binding.score is not None else {}),
    )


def _explain_waiting(
    state: ClusterState, engine: Engine, record: SpecRecord, common: dict[str, Any], now_ms: int
) -> ExplainReply:
    if record.deletion is not None or record.terminal_ms is not None:
        return ExplainReply(**common, state="Ended", message="the pod is on its way out and asks for no place")
    pod = state.request(record.uid)
    if pod is None:
        return ExplainReply(**common, state="Unreadable", message="its manifest cannot be read; the log says why")
    if record.uid in state.in_flight:
        return ExplainReply(**common, state="Binding", message="a node is chosen, its binding is being stored")
    verdict = engine.diagnose(pod, now_ms)
    if verdict is None:
        return ExplainReply(**common, state="Queued", message="a node can take it; its turn comes in priority order")
    return _refused(verdict, common)


def _refused(verdict: Verdict, common: dict[str, Any]) -> ExplainReply:
    return ExplainReply(
        **common,
        state=verdict.state.value,
        reason=verdict.reason.value,
        message=verdict.message,
        refusals=[count.model_dump(exclude_none=True) for count in refusal_counts(verdict)],
        helps=list(verdict.helps),
    )


def quota_facts(engine: Engine, namespace: str, label: str | None) -> dict[str, Any] | None:
    home = engine.quotas.home(namespace, label)
    if home is None:
        return None
    chain = []
    for name in engine.quotas.chain(home):
        share = engine.quotas.share(name)
        limits = (
            {} if share is None else {"min": dict(share.min), "max": dict(share.max), "runtime": dict(share.runtime)}
        )
        chain.append({"name": name, "used": engine.quotas.used(name), **limits})
    return {"name": home, "chain": chain}


def timeline(record: SpecRecord, stories: Stories) -> list[dict[str, Any]]:
    evictions = [
        {"at_ms": each.at_ms, "what": "evicted", "node": each.node, "reason": each.reason, "message": each.message}
        for each in record.evicted
    ]
    queued = {"at_ms": record.created_ms, "what": "queued", "incarnation": record.incarnation}
    return [*evictions, queued, *stories.of(record.uid).lines]


def why_not(state: ClusterState, engine: Engine, request: WhyNotRequest, now_ms: int) -> WhyNotReply:
    record = find(state, request.namespace, request.name)
    pod = state.request(record.uid) if record is not None else None
    if record is None or pod is None:
        return WhyNotReply(fits=False, message=f"no pod {request.namespace}/{request.name}")
    charge = engine.ledger.get(record.uid)
    if charge is not None and charge.node == request.node:
        return WhyNotReply(fits=True, message=f"{pod.key} is on {request.node}")
    try:
        refusals = engine.why_not(pod, request.node, now_ms)
    except LookupError as error:
        return WhyNotReply(fits=False, message=str(error.args[0]))
    reasons = [
        {"reason": each.code.value, "message": each.message, "numbers": dict(each.numbers), "helps": each.helps}
        for each in refusals
    ]
    if not reasons:
        elsewhere = f"; it is on {charge.node}, which had more points" if charge is not None else ""
        return WhyNotReply(fits=True, message=f"{request.node} can take {pod.key}{elsewhere}")
    text = "; ".join(each.message for each in refusals)
    return WhyNotReply(fits=False, reasons=reasons, message=f"{request.node} cannot take {pod.key}: {text}")
