"""The one place that decides forced removals. All victims of a request or none; a dry run is the same decision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant_common.model import labels
from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core import limits
from cotenant_gateway.core.names import NEVER_EVICT_COST, SYSTEM_CRITICAL
from cotenant_gateway.core.records import Mark, PodState, Put, Spec
from cotenant_gateway.core.removal import (
    Decision,
    GateSettings,
    Ledger,
    Refusal,
    Request,
    Verdict,
    Victim,
    name_of,
    workload_of,
)

NEEDS_BENEFICIARY: Final = ("preempt", "reclaim")
MAX_VICTIMS: Final = 900
_AUTOMATIC: Final = ("move", "preempt", "reclaim")
_HELD: Final = "Available"


def decide(request: Request, ledger: Ledger, settings: GateSettings, now_ms: int) -> Decision:
    answered = _answered_before(request, ledger)
    if answered is not None:
        return answered
    wrong = _wrong_request(request, ledger, now_ms)
    if wrong is not None:
        return _refused(request, {}, wrong)
    single = {victim.uid: _wrong_victim(request, victim, ledger) for victim in request.victims}
    refusals = {uid: refusal for uid, refusal in single.items() if refusal is not None}
    if refusals:
        return _refused(request, refusals)
    # A victim on its way out already costs nothing more and gives its room all the same.
    victims = [pod for uid in single if not (pod := ledger.pods[uid]).leaving]
    override = False
    limit = limits.over_limit(request.kind, victims, ledger, settings, now_ms) if victims else None
    if limit is not None and request.kind == "emergency":
        limit, override = limits.emergency(limit, victims, ledger, settings.emergency_pause_ms, now_ms), True
    if limit is not None:
        return _refused(request, {}, limit)
    granted = _granted(request, victims, ledger, settings, override=override, now_ms=now_ms)
    looked_at = _only_looked_at(request, victims, ledger, granted.message)
    return granted if looked_at is None else _refused(request, {}, looked_at)


def reported(pod: PodState, request: Request, now_ms: int) -> Put | None:
    """A removal that an agent did alone under its allowance, whatever the budgets say. None when it is booked."""
    if pod.leaving or _removed_by(request.id, pod.spec):
        return None
    spec = _marked(pod, request, None, override=False, now_ms=now_ms)
    return Put(spec.marked(spec.deletion, "pod.evicted", "emergency.used"), pod.spec) if spec.deletion else None


def _answered_before(request: Request, ledger: Ledger) -> Decision | None:
    """A mark or a successor that holds the command's id was the answer; it is given again, and nothing else happens."""
    wanted = {victim.uid for victim in request.victims}
    in_specs = any(uid in wanted for pod in ledger.pods.values() for uid in _removed_by(request.id, pod.spec))
    of_old = any(removal.command_id == request.id and removal.uid in wanted for removal in ledger.past)
    if not (in_specs or of_old):
        return None
    verdicts = tuple(Verdict(victim, None, "was granted before") for victim in request.victims)
    return Decision(True, f"command {request.id} was granted before", verdicts, replay=True)


def _removed_by(command_id: str, spec: Spec) -> list[str]:
    """uids, of this pod and the incarnations before it, that the command removed."""
    earlier = [past.uid for past in spec.evicted if past.data.get("command_id") == command_id]
    return [*earlier, spec.uid] if spec.deletion and spec.deletion.command_id == command_id else earlier


def _wrong_request(request: Request, ledger: Ledger, now_ms: int) -> Refusal | None:
    if ledger.frozen is not None:
        message = f"removals are frozen: {ledger.frozen}; `cotenant unfreeze` ends it, a delete still works"
        return Refusal(ReasonCode.FROZEN, message, {"freeze_reason": ledger.frozen})
    if request.deadline_ms is not None and now_ms > request.deadline_ms:
        late = now_ms - request.deadline_ms
        message = f"the command's deadline passed {late} ms ago; plan again"
        return Refusal(ReasonCode.NOT_EVICTABLE, message, {"late_ms": late})
    if not request.victims:
        return Refusal(ReasonCode.NOT_FOUND, "the request names no victim")
    if len(request.victims) > MAX_VICTIMS:
        message = f"{len(request.victims)} victims in one request; {MAX_VICTIMS} go into one write"
        return Refusal(ReasonCode.NOT_EVICTABLE, message, {"victims": len(request.victims), "limit": MAX_VICTIMS})
    if request.kind in NEEDS_BENEFICIARY and not request.beneficiary:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"a {request.kind} needs a beneficiary to whom the room is promised")
    return _no_landing(request, ledger) if request.kind == "move" else None


def _no_landing(request: Request, ledger: Ledger) -> Refusal | None:
    """A place is proved by the node that the scheduler confirmed, or better by a reservation that is held there."""
    node = request.landing_node
    if not node:
        return Refusal(ReasonCode.NO_LANDING_PLACE, "a move needs a node where a place is held; none was named")
    place = ledger.places.get(node)
    if place is None:
        return Refusal(ReasonCode.NO_LANDING_PLACE, f"the place was to be on {node}, and there is no such node")
    if place.closed is not None:
        return Refusal(ReasonCode.NO_LANDING_PLACE, f"the place was to be on {node}, which {place.closed}")
    name = request.landing_reservation
    if name is None:
        return None
    held = ledger.reservations.get(name)
    if held is None:
        return Refusal(ReasonCode.NO_LANDING_PLACE, f"there is no reservation {name}")
    if held.phase != _HELD or held.node != node:
        where = f"on {held.node}" if held.node else "on no node"
        message = f"reservation {name} is {held.phase} {where}; a move needs it {_HELD} on {node}"
        return Refusal(ReasonCode.NO_LANDING_PLACE, message, {"phase": held.phase, "node": held.node})
    return None


def _wrong_victim(request: Request, victim: Victim, ledger: Ledger) -> Refusal | None:
    pod = ledger.pods.get(victim.uid)
    name = f"{victim.namespace}/{victim.name}"
    if pod is None:
        return Refusal(ReasonCode.NOT_FOUND, f"pod {name} ({victim.uid}) does not exist any more")
    if pod.leaving:
        return _promised_away(request, pod, name)
    if pod.finished:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} has finished")
    if pod.node is None:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} is on no node; delete it instead")
    if request.kind == "move" and request.landing_node == pod.node:
        return Refusal(ReasonCode.NO_LANDING_PLACE, f"the place held for {name} is on {pod.node}, where it runs")
    return _protected(request.kind, pod, name)


def _promised_away(request: Request, pod: PodState, name: str) -> Refusal | None:
    """Room that is being freed for one cannot be promised to a second one."""
    mark = pod.spec.deletion
    owner = mark.data.get("beneficiary") if mark is not None else None
    if request.beneficiary is None or owner in (None, request.beneficiary):
        return None
    message = f"pod {name} is leaving already, and its room is promised to {owner}"
    return Refusal(ReasonCode.NOT_EVICTABLE, message, {"promised_to": owner})


def _protected(kind: str, pod: PodState, name: str) -> Refusal | None:
    if kind not in _AUTOMATIC:
        return None
    parsed = pod.spec.pod()
    if (parsed.priority or 0) >= SYSTEM_CRITICAL:
        message = f"pod {name} is system-critical (priority {parsed.priority})"
        return Refusal(ReasonCode.NOT_EVICTABLE, message, {"priority": parsed.priority})
    if kind != "move" and not parsed.preemptible:
        return Refusal(ReasonCode.NOT_EVICTABLE, f'pod {name} is labelled {labels.QUOTA_PREEMPTIBLE}: "false"')
    if pod.spec.annotations.get(labels.EVICTION_COST) == str(NEVER_EVICT_COST):
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} has the highest {labels.EVICTION_COST}: never evict")
    return None


def _only_looked_at(request: Request, victims: Sequence[PodState], ledger: Ledger, would: str) -> Refusal | None:
    scopes = {name_of(pod): scope for pod in victims if (scope := ledger.observing.scope_of(pod)) is not None}
    if not scopes:
        return None
    message = f"only observing {next(iter(scopes.values()))}: would be {would}: {request.message}"
    numbers = {**request.numbers, "would_evict": list(scopes), "kind": request.kind}
    return Refusal(ReasonCode.OBSERVE_ONLY, message, numbers)


def _granted(
    request: Request,
    victims: Sequence[PodState],
    ledger: Ledger,
    settings: GateSettings,
    *,
    override: bool,
    now_ms: int,
) -> Decision:
    promise_ms = settings.promise_ms if request.beneficiary else None
    changes = [Put(_marked(pod, request, promise_ms, override=override, now_ms=now_ms), pod.spec) for pod in victims]
    marked = [pod.spec.uid for pod in victims]
    leaving = [ledger.pods[v.uid] for v in request.victims if v.uid not in marked]
    changes += [put for pod in leaving if (put := _promised(pod, request, promise_ms, now_ms)) is not None]
    verdicts = tuple(
        Verdict(victim, None, request.message if victim.uid in marked else "is leaving already")
        for victim in request.victims
    )
    count = len(request.victims)
    by_override = ", overriding a budget" if override else ""
    numbers: dict[str, Any] = {"victims": count}
    if promise_ms is not None:
        numbers |= {"beneficiary": request.beneficiary, "promise_ms": promise_ms}
    return Decision(True, f"{count} of {count} granted{by_override}", verdicts, None, tuple(changes), numbers=numbers)


def _promised(pod: PodState, request: Request, promise_ms: int | None, now_ms: int) -> Put | None:
    """Room that was nobody's is kept for the first who asks; nothing is told, since nothing more is removed."""
    mark = pod.spec.deletion
    if mark is None or promise_ms is None or "beneficiary" in mark.data:
        return None
    data = {**mark.data, **_promise(request, mark.grace_ms, promise_ms, now_ms)}
    return Put(pod.spec.marked(replace(mark, data=data)), pod.spec)


def _promise(request: Request, grace_ms: int, promise_ms: int, now_ms: int) -> dict[str, Any]:
    return {"beneficiary": request.beneficiary, "promised_until_ms": now_ms + grace_ms + promise_ms}


def _marked(pod: PodState, request: Request, promise_ms: int | None, *, override: bool, now_ms: int) -> Spec:
    parsed = pod.spec.pod()
    grace_ms = parsed.grace_ms if request.grace_ms is None else request.grace_ms
    data: dict[str, Any] = {
        **request.numbers, "node": pod.node, "kind": request.kind, "workload": workload_of(pod.spec)
    }  # fmt: skip
    optional = {
        "landing_node": request.landing_node,
        "landing_reservation": request.landing_reservation,
        "override": override or None,
    }
    data |= {key: value for key, value in optional.items() if value is not None}
    if promise_ms is not None:
        data |= _promise(request, grace_ms, promise_ms, now_ms)
    mark = Mark(
        at_ms=now_ms,
        grace_ms=grace_ms,
        reason=request.reason,
        message=request.message,
        requested_by=request.requested_by,
        requeue=parsed.requeue,
        command_id=request.id,
        kind=request.kind,
        data=data,
    )
    also = (("emergency.used",) if override else ()) + (("pod.preempted",) if request.kind == "preempt" else ())
    return pod.spec.marked(mark, "pod.evicted", *also)


def _refused(request: Request, refusals: Mapping[str, Refusal], overall: Refusal | None = None) -> Decision:
    main = overall or next(refusals[victim.uid] for victim in request.victims if victim.uid in refusals)
    others = replace(main, message=f"all or none: {main.message}") if len(request.victims) > 1 else main
    verdicts = tuple(Verdict(victim, refusals.get(victim.uid, others)) for victim in request.victims)
    return Decision(False, main.message, verdicts, main, numbers=main.numbers)
