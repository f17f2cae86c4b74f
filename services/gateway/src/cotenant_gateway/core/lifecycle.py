"""From a deletion mark to the end of a pod, or to its successor: one write each, decided from what is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotenant_common.model.ids import pod_uid
from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core.records import (
    MAX_EVICTIONS_KEPT,
    Change,
    Mark,
    PastEviction,
    PodState,
    Put,
    Remove,
    Spec,
)

GATEWAY: Final = "gateway"
LOST: Final = "lost"
"""Kind of the removals that nobody decided: the node went, or let go of the pod."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished pods are kept to be looked at."""

    max_age_ms: int = 3_600_000
    max_count: int = 1_000


def decide(pod: PodState, *, lost_reason: str | None, owner_exists: bool, now_ms: int, seed: str) -> Change | None:
    """``lost_reason`` says why the pod's node is gone, None while it is not."""
    if pod.leaving:
        wanted = pod.spec.owner is None or owner_exists
        return _end(pod, lost=lost_reason is not None, wanted=wanted, now_ms=now_ms, seed=seed)
    if pod.spec.owner is not None and not owner_exists:
        return stop(pod, f"{pod.spec.owner} is gone", GATEWAY, now_ms)
    if pod.spec.terminal_ms is not None:
        return None
    if pod.seen is not None and pod.seen.terminal:
        return _note_end(pod, now_ms, seed)
    if lost_reason is not None:
        return _lose(pod, lost_reason, now_ms, seed)
    return None


def stop(
    pod: PodState,
    message: str,
    requested_by: str,
    now_ms: int,
    *,
    grace_ms: int | None = None,
    force: bool = False,
) -> Change | None:
    """A delete that nobody comes back from. None when the pod is leaving already, and for good."""
    never_bound = pod.bound_node is None and (pod.seen is None or pod.seen.rejected)
    if force or pod.finished or never_bound:
        return Remove(pod.spec, reason=ReasonCode.DELETED, message=message)
    mark = pod.spec.deletion
    if mark is not None and not mark.requeue and grace_ms is None:
        return None
    if mark is not None:
        # A user's delete outranks an eviction under way: the pod still leaves, but nothing follows it.
        shorter = mark.grace_ms if grace_ms is None else min(mark.grace_ms, grace_ms)
        return Put(pod.spec.marked(replace(mark, requeue=False, grace_ms=shorter)), pod.spec)
    grace = pod.spec.pod().grace_ms if grace_ms is None else grace_ms
    return Put(pod.spec.marked(Mark(now_ms, grace, ReasonCode.DELETED, message, requested_by)), pod.spec)


def _end(pod: PodState, *, lost: bool, wanted: bool, now_ms: int, seed: str) -> Change | None:
    """A marked pod: gone for good, gone and succeeded by itself, or still stopping. ``wanted``: by its owner."""
    mark = pod.spec.deletion
    if mark is None or not (lost or _stopped(pod)):
        return None
    if mark.requeue and wanted and not _completed_before(pod, mark):
        past = PastEviction(
            mark.at_ms, pod.spec.uid, pod.node, mark.reason, mark.message, mark.requested_by, _kept_data(mark)
        )
        return Put(successor(pod.spec, mark.reason, now_ms, seed, past=past), pod.spec)
    return Remove(pod.spec, reason=mark.reason, message=mark.message)


def _stopped(pod: PodState) -> bool:
    if pod.seen is not None and not pod.seen.rejected:
        return pod.seen.terminal
    return pod.bound_node is None


def _completed_before(pod: PodState, mark: Mark) -> bool:
    """The work ended by itself before anyone stopped it; running it again would waste it."""
    seen = pod.seen
    return (
        seen is not None
        and seen.phase == "Succeeded"
        and seen.finished_ms is not None
        and seen.finished_ms <= mark.at_ms
    )


def _kept_data(mark: Mark) -> dict[str, object]:
    return {**mark.data, "kind": mark.kind, "command_id": mark.command_id}


def _note_end(pod: PodState, now_ms: int, seed: str) -> Change:
    seen = pod.seen
    if seen is not None and seen.phase == "Deleted":
        # The node let go of a pod that still is wanted: its binding vanished, or the agent had to remove it.
        reason = seen.reason or ReasonCode.NODE_LOST
        # The agent's own report of an emergency may come after its status, or never.
        alone = ("emergency.used",) if reason == ReasonCode.NODE_PRESSURE else ()
        return _lose(pod, reason, now_ms, seed, message=seen.message, tells=("pod.evicted", *alone))
    return Put(replace(pod.spec, terminal_ms=now_ms, tells=()), pod.spec)


def _lose(
    pod: PodState,
    reason: str,
    now_ms: int,
    seed: str,
    *,
    message: str | None = None,
    tells: tuple[str, ...] = ("pod.evicted",),
) -> Change:
    spec = pod.spec
    text = message or f"node {pod.node} is gone"
    # Counted as what it was, so that the pause between two emergencies of a node holds whichever report came first.
    kind = "emergency" if "emergency.used" in tells else LOST
    if not spec.pod().requeue:
        # The mark tells of the eviction; a removal could not tell again after a crash, when its value is gone.
        mark = Mark(now_ms, 0, reason, text, GATEWAY, kind=kind, data={"node": pod.node})
        return Put(spec.marked(mark, *tells), spec)
    past = PastEviction(now_ms, spec.uid, pod.node, reason, text, GATEWAY, {"kind": kind})
    return Put(successor(spec, reason, now_ms, seed, past=past, tells=(*tells, "pod.queued")), spec)


def successor(
    spec: Spec,
    reason: str,
    now_ms: int,
    seed: str,
    *,
    past: PastEviction | None = None,
    tells: tuple[str, ...] = ("pod.queued",),
) -> Spec:
    """The same pod as a new identity; the one write that ends the old incarnation begins the new one."""
    incarnation = spec.incarnation + 1
    manifest = spec.manifest
    if "nodeName" in spec.body:
        # Only a pod that outlived its store is held to a node: where its processes are. A successor has none.
        manifest = {**manifest, "spec": {key: value for key, value in spec.body.items() if key != "nodeName"}}
    kept = (*spec.evicted, past) if past is not None else spec.evicted
    return replace(
        spec,
        manifest=manifest,
        uid=str(pod_uid(spec.namespace or "-", spec.name, incarnation, seed)),
        incarnation=incarnation,
        generation=1,
        created_ms=now_ms,
        deletion=None,
        terminal_ms=None,
        requeued_from=spec.uid,
        requeue_reason=str(reason),
        evicted=kept[-MAX_EVICTIONS_KEPT:],
        tells=tells,
    )


def owned_by(spec: Spec, owner: Spec) -> Spec:
    """A pod of an earlier owner of this name, given to the present one."""
    references = [
        {**reference, "uid": owner.uid} if reference.get("controller") else reference
        for reference in spec.metadata.get("ownerReferences") or ()
    ]
    return replace(spec, manifest={**spec.manifest, "metadata": {**spec.metadata, "ownerReferences": references}})


def expired(pods: Sequence[PodState], now_ms: int, retention: Retention = Retention()) -> list[Remove]:
    """Finished pods past their time, oldest first. Pods of a Deployment are replaced, not kept."""
    finished = sorted(
        (pod.spec for pod in pods if pod.spec.terminal_ms is not None and not pod.leaving),
        key=lambda spec: (spec.terminal_ms or 0, spec.key),
    )
    surplus = len(finished) - retention.max_count
    return [
        Remove(spec, reason=ReasonCode.COMPLETED, message="kept long enough")
        for at, spec in enumerate(finished)
        if at < surplus or now_ms - (spec.terminal_ms or 0) >= retention.max_age_ms
    ]
