"""The one place that decides forced removals. All victims of a request or none; a dry run is the same decision."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.model import labels
from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core.budgets import Budget, migration_limit
from cotenant_gateway.core.names import NEVER_EVICT_COST, SYSTEM_CRITICAL
from cotenant_gateway.core.records import Mark, PodState, Put, Spec

NEEDS_BENEFICIARY: Final = ("preempt", "reclaim")
MAX_VICTIMS: Final = 900
_AUTOMATIC: Final = ("move", "preempt", "reclaim")


@dataclass(frozen=True, slots=True)
class Caps:
    """Forced removals allowed within ``window_ms``; None is no cap."""

    per_node: int | None = None
    per_namespace: int | None = None
    per_workload: int | None = None
    total: int | None = None
    window_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Koordinator's migration limits; they bind moves only. ``expected_replicas`` protects the last replica."""

    cool_down_ms: int = 300_000
    per_node: int | None = 2
    max_migrating: int | str | None = None
    max_unavailable: int | str | None = None
    expected_replicas: bool = True


@dataclass(frozen=True, slots=True)
class GateSettings:
    caps: Caps = Caps()
    moves: MoveLimits = MoveLimits()
    emergency_pause_ms: int = 10_000
    """Overrides of a budget on one node come one at a time, and not faster than this."""
    drains_per_node: int = 10
    """Drained pods that may be on their way out of one node at a time."""


@dataclass(frozen=True, slots=True)
class Victim:
    uid: str
    namespace: str
    name: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    kind: str
    victims: tuple[Victim, ...]
    requested_by: str
    reason: str
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    beneficiary: str | None = None
    landing_node: str | None = None
    grace_ms: int | None = None
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller's wish; bare pods have none."""

    object: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the gate looks at. ``pods`` by uid, all current incarnations."""

    pods: Mapping[str, PodState]
    budgets: Sequence[Budget] = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    frozen: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: ReasonCode
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    victim: Victim
    refusal: Refusal | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """``changes`` are the deletion marks, one batch. ``replay`` marks an answer that was given before."""

    granted: bool
    message: str
    verdicts: tuple[Verdict, ...]
    reason: ReasonCode | None = None
    changes: tuple[Put, ...] = ()
    replay: bool = False


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
    victims = [pod for v in request.victims if not (pod := ledger.pods[v.uid]).leaving]
    override = False
    limit = _over_limit(request, victims, ledger, settings, now_ms) if victims else None
    if limit is not None and request.kind == "emergency":
        limit, override = _emergency(limit, victims, ledger, settings.emergency_pause_ms, now_ms), True
    if limit is not None:
        return _refused(request, {}, limit)
    return _granted(request, victims, override=override, now_ms=now_ms)


def workload_of(spec: Spec) -> str:
    """The controller, or the pod itself: what a cool-down belongs to."""
    return spec.owner or spec.object


def _answered_before(request: Request, ledger: Ledger) -> Decision | None:
    """A mark or a successor that holds the command's id was the answer; it is given again, and nothing else happens."""
    wanted = {victim.uid for victim in request.victims}
    if not any(uid in wanted for pod in ledger.pods.values() for uid in _removed_by(request.id, pod.spec)):
        return None
    verdicts = tuple(Verdict(victim, None, "was granted before") for victim in request.victims)
    return Decision(True, f"command {request.id} was granted before", verdicts, replay=True)


def _removed_by(command_id: str, spec: Spec) -> list[str]:
    """uids, of this pod and the incarnations before it, that the command removed."""
    earlier = [past.uid for past in spec.evicted if past.data.get("command_id") == command_id]
    return [*earlier, spec.uid] if spec.deletion and spec.deletion.command_id == command_id else earlier


def _wrong_request(request: Request, ledger: Ledger, now_ms: int) -> Refusal | None:
    if ledger.frozen is not None and request.kind != "drain":
        return Refusal(ReasonCode.FROZEN, f"automatic removals are frozen: {ledger.frozen}")
    if request.deadline_ms is not None and now_ms > request.deadline_ms:
        late = now_ms - request.deadline_ms
        return Refusal(ReasonCode.NOT_EVICTABLE, f"the command's deadline passed {late} ms ago; plan again")
    if not request.victims:
        return Refusal(ReasonCode.NOT_FOUND, "the request names no victim")
    if len(request.victims) > MAX_VICTIMS:
        return Refusal(
            ReasonCode.NOT_EVICTABLE, f"{len(request.victims)} victims in one request; {MAX_VICTIMS} go into one write"
        )
    if request.kind in NEEDS_BENEFICIARY and not request.beneficiary:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"a {request.kind} needs a beneficiary to whom the room is promised")
    if request.kind == "move" and not request.landing_node:
        return Refusal(ReasonCode.NO_LANDING_PLACE, "a move needs a node where a place is held; none was named")
    return None


def _wrong_victim(request: Request, victim: Victim, ledger: Ledger) -> Refusal | None:
    pod = ledger.pods.get(victim.uid)
    name = f"{victim.namespace}/{victim.name}"
    if pod is None:
        return Refusal(ReasonCode.NOT_FOUND, f"pod {name} ({victim.uid}) does not exist any more")
    if pod.leaving:
        return None
    if pod.finished:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} has finished")
    if pod.node is None:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} is on no node; delete it instead")
    if request.kind == "move" and request.landing_node == pod.node:
        return Refusal(ReasonCode.NO_LANDING_PLACE, f"the place held for {name} is on {pod.node}, where it runs")
    return _protected(request.kind, pod, name)


def _protected(kind: str, pod: PodState, name: str) -> Refusal | None:
    if kind not in _AUTOMATIC:
        return None
    parsed = pod.spec.pod()
    if (parsed.priority or 0) >= SYSTEM_CRITICAL:
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} is system-critical (priority {parsed.priority})")
    if kind != "move" and not parsed.preemptible:
        return Refusal(ReasonCode.NOT_EVICTABLE, f'pod {name} is labelled {labels.QUOTA_PREEMPTIBLE}: "false"')
    if pod.spec.annotations.get(labels.EVICTION_COST) == str(NEVER_EVICT_COST):
        return Refusal(ReasonCode.NOT_EVICTABLE, f"pod {name} has the highest {labels.EVICTION_COST}: never evict")
    return None


def _over_limit(
    request: Request, victims: Sequence[PodState], ledger: Ledger, settings: GateSettings, now_ms: int
) -> Refusal | None:
    checks = [_over_budget(victims, ledger), _over_caps(victims, ledger, settings.caps, now_ms)]
    if request.kind == "move":
        checks.append(_over_moves(victims, ledger, settings.moves, now_ms))
    if request.kind == "drain":
        checks.append(_over_drains(victims, ledger, settings.drains_per_node))
    return next((refusal for refusal in checks if refusal is not None), None)


def _over_budget(victims: Sequence[PodState], ledger: Ledger) -> Refusal | None:
    for budget in ledger.budgets:
        hit = [pod for pod in victims if budget.covers(pod)]
        if not hit:
            continue
        covered = [pod for pod in ledger.pods.values() if budget.covers(pod) and not pod.finished]
        message = budget.refusal(covered, hit, _expected(covered, ledger))
        if message is not None:
            return Refusal(ReasonCode.BUDGET_EXCEEDED, message)
    return None


def _expected(covered: Sequence[PodState], ledger: Ledger) -> int:
    """Pods that ought to be there: the controllers' replicas, and each bare pod."""
    owners = {pod.spec.owner for pod in covered if pod.spec.owner in ledger.workloads}
    bare = sum(pod.spec.owner not in ledger.workloads for pod in covered)
    return bare + sum(ledger.workloads[owner].replicas for owner in owners if owner is not None)


def _over_caps(victims: Sequence[PodState], ledger: Ledger, caps: Caps, now_ms: int) -> Refusal | None:
    recent = _recent(ledger.pods.values(), now_ms - caps.window_ms)
    scopes: tuple[tuple[str, int | None, Counter[str], list[str]], ...] = (
        ("node", caps.per_node, Counter(r.node for r in recent), [pod.node or "" for pod in victims]),
        ("namespace", caps.per_namespace, Counter(r.namespace for r in recent), _namespaces(victims)),
        ("workload", caps.per_workload, Counter(r.workload for r in recent), [workload_of(p.spec) for p in victims]),
        ("total", caps.total, Counter({"": len(recent)}), [""] * len(victims)),
    )
    for scope, cap, so_far, asked in scopes:
        if cap is None:
            continue
        for name, count in sorted(Counter(asked).items()):
            if so_far[name] + count > cap:
                where = f"{scope} {name}".strip()
                return Refusal(
                    ReasonCode.BUDGET_EXCEEDED,
                    f"the cap of {where} is {cap} removals in {caps.window_ms // 1000} s; "
                    f"{so_far[name]} happened and {count} more are asked for",
                )
    return None


def _namespaces(victims: Sequence[PodState]) -> list[str]:
    return [pod.spec.namespace or "" for pod in victims]


@dataclass(frozen=True, slots=True)
class _Removal:
    node: str
    namespace: str
    workload: str
    kind: str
    at_ms: int


def _recent(pods: Iterable[PodState], since_ms: int) -> list[_Removal]:
    """Forced removals since then, from the marks and from what successors remember: a restart forgets none of them."""
    found: list[_Removal] = []
    for pod in pods:
        spec = pod.spec
        mark = spec.deletion
        entries = [(past.at_ms, past.node, str(past.data.get("kind"))) for past in spec.evicted]
        if mark is not None and mark.kind is not None:
            entries.append((mark.at_ms, pod.node, mark.kind))
        found += [
            _Removal(node or "", spec.namespace or "", workload_of(spec), kind, at_ms)
            for at_ms, node, kind in entries
            if at_ms > since_ms
        ]
    return found


def _over_moves(victims: Sequence[PodState], ledger: Ledger, limits: MoveLimits, now_ms: int) -> Refusal | None:
    groups: dict[str, list[PodState]] = {}
    for pod in victims:
        groups.setdefault(workload_of(pod.spec), []).append(pod)
    recent = [r for r in _recent(ledger.pods.values(), now_ms - limits.cool_down_ms) if r.kind == "move"]
    for workload, group in groups.items():
        last = max((r.at_ms for r in recent if r.workload == workload), default=None)
        if last is not None:
            left = (last + limits.cool_down_ms - now_ms) // 1000
            return Refusal(
                ReasonCode.COOL_DOWN, f"{workload} was moved {(now_ms - last) // 1000} s ago; {left} s to go"
            )
        refusal = _over_workload(workload, group, ledger, limits)
        if refusal is not None:
            return refusal
    return _over_node_moves(victims, ledger, limits)


def _over_workload(workload: str, group: Sequence[PodState], ledger: Ledger, limits: MoveLimits) -> Refusal | None:
    known = ledger.workloads.get(workload)
    if known is None:
        return None
    migrating_limit = migration_limit(known.replicas, limits.max_migrating)
    unavailable_limit = migration_limit(known.replicas, limits.max_unavailable)
    if limits.expected_replicas and known.replicas in (1, migrating_limit, unavailable_limit):
        return Refusal(
            ReasonCode.BUDGET_EXCEEDED,
            f"{workload} has {known.replicas} replicas and moving one could take them all; never moved",
        )
    members = [pod for pod in ledger.pods.values() if pod.spec.owner == workload and not pod.finished]
    chosen = [pod.spec.uid for pod in group]
    others = [pod for pod in members if pod.spec.uid not in chosen]
    migrating = sum(_migrating(pod) for pod in others)
    if migrating and migrating + len(group) > migrating_limit:
        return Refusal(
            ReasonCode.BUDGET_EXCEEDED, f"{migrating} pods of {workload} are migrating; {migrating_limit} may at a time"
        )
    away = sum(not pod.ready or pod.leaving for pod in others) + max(0, known.replicas - len(members))
    if away + len(group) > unavailable_limit:
        return Refusal(
            ReasonCode.BUDGET_EXCEEDED,
            f"{away} pods of {workload} are unavailable and {len(group)} would be; {unavailable_limit} may be",
        )
    return None


def _migrating(pod: PodState) -> bool:
    mark = pod.spec.deletion
    if mark is not None:
        return mark.kind == "move"
    moved = bool(pod.spec.evicted) and pod.spec.evicted[-1].data.get("kind") == "move"
    return moved and not pod.ready


def _over_node_moves(victims: Sequence[PodState], ledger: Ledger, limits: MoveLimits) -> Refusal | None:
    if limits.per_node is None:
        return None
    leaving = Counter(
        pod.node for pod in ledger.pods.values() if pod.spec.deletion is not None and pod.spec.deletion.kind == "move"
    )
    for node, count in sorted(Counter(pod.node or "" for pod in victims).items()):
        if leaving[node] + count > limits.per_node:
            return Refusal(
                ReasonCode.BUDGET_EXCEEDED,
                f"{leaving[node]} pods are moving away from {node} and {count} more would; "
                f"{limits.per_node} may at a time",
            )
    return None


def _over_drains(victims: Sequence[PodState], ledger: Ledger, limit: int) -> Refusal | None:
    leaving = Counter(
        pod.node for pod in ledger.pods.values() if pod.spec.deletion is not None and pod.spec.deletion.kind == "drain"
    )
    for node, count in sorted(Counter(pod.node or "" for pod in victims).items()):
        if leaving[node] + count > limit:
            return Refusal(
                ReasonCode.BUDGET_EXCEEDED,
                f"{leaving[node]} pods are leaving {node} and {count} more would; {limit} may at a time, ask again",
            )
    return None


def _emergency(
    limit: Refusal, victims: Sequence[PodState], ledger: Ledger, pause_ms: int, now_ms: int
) -> Refusal | None:
    """The node itself is in danger: one budget may be overridden at a time, by name, and it is counted."""
    if len(victims) > 1:
        return Refusal(limit.reason, f"{limit.message}; in an emergency one pod at a time may go all the same")
    node = victims[0].node
    recent = [r for r in _recent(ledger.pods.values(), now_ms - pause_ms) if r.kind == "emergency" and r.node == node]
    under_way = [
        pod
        for pod in ledger.pods.values()
        if pod.node == node and pod.spec.deletion is not None and pod.spec.deletion.kind == "emergency"
    ]
    if not recent and not under_way:
        return None
    return Refusal(limit.reason, f"{limit.message}; the last override on {node} is still under way")


def _granted(request: Request, victims: Sequence[PodState], *, override: bool, now_ms: int) -> Decision:
    changes = tuple(Put(_marked(pod, request, override=override, now_ms=now_ms), pod.spec) for pod in victims)
    marked = [pod.spec.uid for pod in victims]
    verdicts = tuple(
        Verdict(victim, None, request.message if victim.uid in marked else "is leaving already")
        for victim in request.victims
    )
    count = len(request.victims)
    by_override = ", overriding a budget" if override else ""
    return Decision(True, f"{count} of {count} granted{by_override}", verdicts, None, changes)


def _marked(pod: PodState, request: Request, *, override: bool, now_ms: int) -> Spec:
    parsed = pod.spec.pod()
    data: dict[str, Any] = {**request.numbers, "node": pod.node, "kind": request.kind}
    optional = {"beneficiary": request.beneficiary, "landing_node": request.landing_node, "override": override or None}
    data |= {key: value for key, value in optional.items() if value is not None}
    mark = Mark(
        at_ms=now_ms,
        grace_ms=parsed.grace_ms if request.grace_ms is None else request.grace_ms,
        reason=request.reason,
        message=request.message,
        requested_by=request.requested_by,
        requeue=parsed.requeue,
        command_id=request.id,
        kind=request.kind,
        data=data,
    )
    return pod.spec.marked(mark, "pod.evicted", *(("emergency.used",) if override else ()))


def _refused(request: Request, refusals: Mapping[str, Refusal], overall: Refusal | None = None) -> Decision:
    main = overall or next(refusals[victim.uid] for victim in request.victims if victim.uid in refusals)
    others = Refusal(main.reason, f"all or none: {main.message}") if len(request.victims) > 1 else main
    verdicts = tuple(Verdict(victim, refusals.get(victim.uid, others)) for victim in request.victims)
    return Decision(False, main.message, verdicts, main.reason)


def reported(pod: PodState, request: Request, now_ms: int) -> Put | None:
    """A removal that an agent did alone under its allowance, whatever the budgets say. None when it is booked."""
    if pod.leaving or _removed_by(request.id, pod.spec):
        return None
    spec = _marked(pod, request, override=False, now_ms=now_ms)
    return Put(spec.marked(spec.deletion, "pod.evicted", "emergency.used"), pod.spec) if spec.deletion else None
