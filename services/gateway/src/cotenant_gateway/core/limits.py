"""How much may go at a time: budgets and caps for all, migration limits and cool-down for moves, a pace for drains."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core.budgets import migration_limit
from cotenant_gateway.core.records import PodState
from cotenant_gateway.core.removal import (
    Caps,
    GateSettings,
    Ledger,
    MoveLimits,
    Refusal,
    Removal,
    workload_of,
)

_SOON_MS = 1_000
"""Pods on their way out are gone in seconds; what they block is worth asking for again."""


def over_limit(
    kind: str, victims: Sequence[PodState], ledger: Ledger, settings: GateSettings, now_ms: int
) -> Refusal | None:
    """The first limit that these victims together would break."""
    checks = [_over_budget(victims, ledger), _over_caps(victims, ledger, settings.caps, now_ms)]
    if kind == "move":
        checks.append(_over_moves(victims, ledger, settings.moves, now_ms))
    if kind == "drain":
        checks.append(_over_drains(victims, ledger, settings.drains_per_node))
    return next((refusal for refusal in checks if refusal is not None), None)


def recent(ledger: Ledger, since_ms: int) -> list[Removal]:
    """Forced removals since then: what marks and successors hold, and what is known of pods that are gone."""
    found = [removal for pod in ledger.pods.values() for removal in removals_of(pod)]
    held = {removal.uid for removal in found}
    found += [removal for removal in ledger.past if removal.uid not in held]
    return [removal for removal in found if removal.at_ms > since_ms]


def removals_of(pod: PodState) -> list[Removal]:
    """Of this pod and of the incarnations before it, as its spec holds them."""
    spec = pod.spec
    entries = [(past.uid, past.at_ms, past.node, past.data) for past in spec.evicted]
    mark = spec.deletion
    if mark is not None and mark.kind is not None:
        data = {**mark.data, "kind": mark.kind, "command_id": mark.command_id}
        entries.append((spec.uid, mark.at_ms, pod.node or str(data.get("node") or ""), data))
    namespace, workload = spec.namespace or "", workload_of(spec)
    return [
        Removal(uid, data.get("command_id"), str(data.get("kind")), node or "", namespace, workload, at_ms)
        for uid, at_ms, node, data in entries
    ]


def _over_budget(victims: Sequence[PodState], ledger: Ledger) -> Refusal | None:
    for budget in ledger.budgets:
        hit = [pod for pod in victims if budget.covers(pod)]
        if not hit:
            continue
        covered = [pod for pod in ledger.pods.values() if budget.covers(pod) and not pod.finished]
        short = budget.shortfall(covered, hit, _expected(covered, ledger))
        if short is not None:
            # Fewer victims than allowed when nobody is missing: waiting alone cannot help.
            hopeless = short.expected - short.wanted < short.going
            return Refusal(ReasonCode.BUDGET_EXCEEDED, str(short), short.numbers, None if hopeless else _SOON_MS)
    return None


def _expected(covered: Sequence[PodState], ledger: Ledger) -> int:
    """Pods that ought to be there: the controllers' replicas, and each bare pod."""
    owners = {pod.spec.owner for pod in covered if pod.spec.owner in ledger.workloads}
    bare = sum(pod.spec.owner not in ledger.workloads for pod in covered)
    return bare + sum(ledger.workloads[owner].replicas for owner in owners if owner is not None)


def _over_caps(victims: Sequence[PodState], ledger: Ledger, caps: Caps, now_ms: int) -> Refusal | None:
    within = recent(ledger, now_ms - caps.window_ms)
    scopes: tuple[tuple[str, int | None, list[str], list[str]], ...] = (
        ("node", caps.per_node, [r.node for r in within], [pod.node or "" for pod in victims]),
        ("namespace", caps.per_namespace, [r.namespace for r in within], _namespaces(victims)),
        ("workload", caps.per_workload, [r.workload for r in within], [workload_of(p.spec) for p in victims]),
        ("total", caps.total, [""] * len(within), [""] * len(victims)),
    )
    for scope, cap, so_far, asked in scopes:
        if cap is None:
            continue
        for name, count in sorted(Counter(asked).items()):
            ages = sorted(r.at_ms for r, where in zip(within, so_far, strict=True) if where == name)
            if len(ages) + count > cap:
                return _cap_reached(f"{scope} {name}".strip(), cap, ages, count, caps.window_ms, now_ms)
    return None


def _cap_reached(where: str, cap: int, ages: Sequence[int], count: int, window_ms: int, now_ms: int) -> Refusal:
    too_many = len(ages) + count - cap
    # Enough of the old ones must leave the window; more victims than the cap never fit.
    retry_ms = ages[too_many - 1] + window_ms - now_ms if count <= cap else None
    return Refusal(
        ReasonCode.BUDGET_EXCEEDED,
        f"the cap of {where} is {cap} removals in {window_ms // 1000} s; "
        f"{len(ages)} happened and {count} more are asked for",
        {"scope": where, "cap": cap, "window_ms": window_ms, "happened": len(ages), "victims": count},
        retry_ms,
    )


def _namespaces(pods: Sequence[PodState]) -> list[str]:
    return [pod.spec.namespace or "" for pod in pods]


def _over_moves(victims: Sequence[PodState], ledger: Ledger, limits: MoveLimits, now_ms: int) -> Refusal | None:
    groups: dict[str, list[PodState]] = {}
    for pod in victims:
        groups.setdefault(workload_of(pod.spec), []).append(pod)
    moves = [r for r in recent(ledger, now_ms - limits.cool_down_ms) if r.kind == "move"]
    for workload, group in groups.items():
        last = max((r.at_ms for r in moves if r.workload == workload), default=None)
        if last is not None:
            return _cooling(workload, last, limits.cool_down_ms, now_ms)
        refusal = _over_workload(workload, group, ledger, limits)
        if refusal is not None:
            return refusal
    return _over_concurrent_moves(victims, ledger, limits)


def _cooling(workload: str, last_ms: int, cool_down_ms: int, now_ms: int) -> Refusal:
    left_ms = last_ms + cool_down_ms - now_ms
    return Refusal(
        ReasonCode.COOL_DOWN,
        f"{workload} was moved {(now_ms - last_ms) // 1000} s ago; {left_ms // 1000} s to go",
        {"workload": workload, "cool_down_ms": cool_down_ms, "last_move_ms": last_ms},
        left_ms,
    )


def _over_workload(workload: str, group: Sequence[PodState], ledger: Ledger, limits: MoveLimits) -> Refusal | None:
    """Koordinator's arbitration: what migrates already, and what is away whatever the reason."""
    known = ledger.workloads.get(workload)
    if known is None:
        return None
    may_migrate = migration_limit(known.replicas, limits.max_migrating)
    may_miss = migration_limit(known.replicas, limits.max_unavailable)
    if limits.expected_replicas and known.replicas in (1, may_migrate, may_miss):
        return Refusal(
            ReasonCode.BUDGET_EXCEEDED,
            f"{workload} has {known.replicas} replicas and moving one could take them all; never moved",
            {"workload": workload, "replicas": known.replicas},
        )
    members = [pod for pod in ledger.pods.values() if pod.spec.owner == workload and not pod.finished]
    chosen = [pod.spec.uid for pod in group]
    others = [pod for pod in members if pod.spec.uid not in chosen]
    migrating = sum(_migrating(pod) for pod in others)
    numbers = {"workload": workload, "replicas": known.replicas, "victims": len(group)}
    if migrating and migrating + len(group) > may_migrate:
        return Refusal(
            ReasonCode.BUDGET_EXCEEDED,
            f"{migrating} pods of {workload} are migrating; {may_migrate} may at a time",
            numbers | {"migrating": migrating, "limit": may_migrate},
            _SOON_MS,
        )
    away = sum(not pod.ready or pod.leaving for pod in others) + max(0, known.replicas - len(members))
    if away + len(group) > may_miss:
        return Refusal(
            ReasonCode.BUDGET_EXCEEDED,
            f"{away} pods of {workload} are unavailable and {len(group)} would be; {may_miss} may be",
            numbers | {"unavailable": away, "limit": may_miss},
            _SOON_MS,
        )
    return None


def _migrating(pod: PodState) -> bool:
    mark = pod.spec.deletion
    if mark is not None:
        return mark.kind == "move"
    moved = bool(pod.spec.evicted) and pod.spec.evicted[-1].data.get("kind") == "move"
    return moved and not pod.ready


def _over_concurrent_moves(victims: Sequence[PodState], ledger: Ledger, limits: MoveLimits) -> Refusal | None:
    leaving = _leaving(ledger, "move")
    moving = [pod for pod in ledger.pods.values() if _migrating(pod)]
    scopes = (
        ("from node", limits.per_node, [p.node or "" for p in leaving], [p.node or "" for p in victims]),
        ("in namespace", limits.per_namespace, _namespaces(moving), _namespaces(victims)),
        ("in total", limits.total, [""] * len(moving), [""] * len(victims)),
    )
    for scope, limit, under_way, asked in scopes:
        refusal = _over_pace(scope, "moved", limit, Counter(under_way), Counter(asked))
        if refusal is not None:
            return refusal
    return None


def _over_drains(victims: Sequence[PodState], ledger: Ledger, limit: int) -> Refusal | None:
    under_way = Counter(pod.node or "" for pod in _leaving(ledger, "drain"))
    return _over_pace("from node", "drained", limit, under_way, Counter(pod.node or "" for pod in victims))


def _leaving(ledger: Ledger, kind: str) -> list[PodState]:
    return [pod for pod in ledger.pods.values() if pod.spec.deletion is not None and pod.spec.deletion.kind == kind]


def _over_pace(
    scope: str, doing: str, limit: int | None, under_way: Mapping[str, int], asked: Mapping[str, int]
) -> Refusal | None:
    if limit is None:
        return None
    for name, count in sorted(asked.items()):
        now = under_way.get(name, 0)
        if now + count > limit:
            numbers: dict[str, Any] = {"scope": f"{scope} {name}".strip(), "under_way": now, "limit": limit}
            return Refusal(
                ReasonCode.BUDGET_EXCEEDED,
                f"{now} pods are being {doing} {numbers['scope']} and {count} more would; {limit} may at a time, "
                "ask again",
                numbers | {"victims": count},
                _SOON_MS if count <= limit else None,
            )
    return None


def emergency(
    limit: Refusal, victims: Sequence[PodState], ledger: Ledger, pause_ms: int, now_ms: int
) -> Refusal | None:
    """The node itself is in danger: one budget may be overridden at a time, by name, and it is counted."""
    if len(victims) > 1:
        message = f"{limit.message}; in an emergency one pod at a time may go all the same"
        return Refusal(limit.reason, message, limit.numbers)
    node = victims[0].node
    overrides = [r for r in recent(ledger, now_ms - pause_ms) if r.kind == "emergency" and r.node == node]
    under_way = [pod for pod in _leaving(ledger, "emergency") if pod.node == node]
    if not overrides and not under_way:
        return None
    left_ms = max((r.at_ms + pause_ms - now_ms for r in overrides), default=_SOON_MS)
    message = f"{limit.message}; the last override on {node} is still under way"
    return Refusal(limit.reason, message, limit.numbers, left_ms)
