"""Pods, from their specs and bindings."""

from collections.abc import Callable, Mapping
from typing import Final

from cotenant_common.contracts.messages.state import Binding, SpecRecord
from cotenant_common.model import labels
from cotenant_common.model.pod import Pod, parse_pod
from cotenant_quota.core.pods import Gang, PodFacts

_SYSTEM_CRITICAL: Final = 2_000_000_000
_NEVER_EVICT: Final = str(2**31 - 1)
_HANGS_AFTER_MS: Final = 30_000
"""A pod that has not gone so long after its grace counts as staying, so that one that hangs blocks nobody for ever."""
_WHOLE_GANG: Final = 2**31


def read_pod(spec: SpecRecord) -> Pod:
    """Raise QuantityError for a manifest that validation should have refused."""
    return parse_pod(spec.manifest, uid=spec.uid)


def pod_facts(
    spec: SpecRecord | None,
    binding: Binding | None,
    pod_groups: Mapping[str, SpecRecord],
    read: Callable[[SpecRecord], Pod] = read_pod,
) -> PodFacts | None:
    """None when the pod has ended or is gone, even while its binding lingers: the spec goes after the last process.

    What a bound pod is charged is in its binding, as the scheduler wrote it. One that is held by scheduling gates asks
    for nothing: a share kept for it would be idle until somebody else lifts the gates. Raise what ``read`` raises.
    """
    if spec is None or spec.terminal_ms is not None:
        return None
    pod = read(spec)
    mark = spec.deletion
    return PodFacts(
        uid=spec.uid,
        namespace=pod.namespace,
        quota_label=pod.quota_label,
        request=binding.requests if binding is not None else {} if pod.scheduling_gates else pod.requests,
        assigned=binding is not None,
        preemptible=pod.preemptible,
        name=pod.name,
        node=binding.node if binding is not None else None,
        priority=pod.priority_value,
        sub_priority=pod.sub_priority,
        since_ms=binding.bound_ms if binding is not None else spec.created_ms,
        evictable=_evictable(pod),
        gang=_gang_of(pod, pod_groups),
        leaving_until_ms=None if mark is None else mark.at_ms + mark.grace_ms + _HANGS_AFTER_MS,
    )


def _evictable(pod: Pod) -> bool:
    """False for what the eviction gate refuses whoever asks."""
    return (pod.priority or 0) < _SYSTEM_CRITICAL and pod.annotations.get(labels.EVICTION_COST) != _NEVER_EVICT


def _gang_of(pod: Pod, pod_groups: Mapping[str, SpecRecord]) -> Gang | None:
    name = pod.labels.get(labels.POD_GROUP) or pod.annotations.get(labels.GANG_NAME)
    if not name:
        return None
    group = pod_groups.get(f"{pod.namespace}/{name}")
    wanted = (group.manifest.get("spec") or {}).get("minMember") if group is not None else None
    text = str(wanted if wanted is not None else pod.annotations.get(labels.GANG_MIN_AVAILABLE, ""))
    # Of a gang that does not say how many it needs, nobody is surplus.
    return Gang(name, int(text) if text.isdecimal() else _WHOLE_GANG)
