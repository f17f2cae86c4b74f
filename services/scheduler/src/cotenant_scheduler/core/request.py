"""What a waiting pod asks of a node, read once from its manifest.

Everything that decides where a pod may go is its *shape*; pods of one shape share the work of looking at the nodes.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cotenant_common.model import labels as names
from cotenant_common.model.digest import spec_digest
from cotenant_common.model.pod import Pod
from cotenant_common.model.resources import PODS
from cotenant_scheduler.core.estimate import Estimate, LoadPolicy, estimate_pod
from cotenant_scheduler.core.selectors import (
    LabelSelector,
    NodeTerm,
    Requirement,
    parse_label_selector,
    parse_node_term,
)
from cotenant_scheduler.core.taints import Toleration, parse_tolerations

Port = tuple[str, int]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PodTerm:
    """One (anti-)affinity term. ``namespaces`` None means every namespace."""

    selector: LabelSelector | None
    topology_key: str
    namespaces: tuple[str, ...] | None
    weight: int = 0

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.selector is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return self.selector.matches(labels)

    def __str__(self) -> str:
        return f"{self.selector} by {self.topology_key}"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    required: bool
    min_domains: int = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Hashable on purpose: it is the key under which verdicts on nodes are kept."""

    requests: tuple[tuple[str, int], ...]
    estimate: Estimate
    is_prod: bool
    is_daemon: bool = False
    node_name: str | None = None
    selector: tuple[Requirement, ...] = ()
    required_terms: tuple[NodeTerm, ...] | None = None
    preferred_terms: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    only_nodes: tuple[str, ...] | None = None
    preferred_nodes: tuple[str, ...] = ()
    extras: tuple[tuple[str, str], ...] = ()
    """Annotations that plugins from outside the package asked for."""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Looked up several times per attempt, and a hash over all this costs more than the rest of the look-up."""
        values = tuple(getattr(self, each.name) for each in fields(self) if each.compare)
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash

    @property
    def looks_around(self) -> bool:
        """Whether other pods' labels decide: such a verdict holds for one instant only."""
        return bool(self.affinity or self.anti_affinity or self.preferred_affinity or self.spread)

    @property
    def request(self) -> dict[str, int]:
        return dict(self.requests)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod in the queue. ``spec_revision`` is the revision of the bucket ``specs`` that brought it."""

    uid: str
    namespace: str
    name: str
    shape: Shape
    priority: int
    sub_priority: int
    created_ms: int
    spec_revision: int
    digest: str
    quota_label: str | None = None
    preemptible: bool = True
    gates: tuple[str, ...] = ()
    qos: str = ""
    band: str = ""
    labels: Labels = ()
    preempts: bool = True
    """False: waits for room, and has nobody evicted for it."""
    evictable: bool = True
    """False: no pod, however important, may have this one evicted."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[int, int, int, str, str]:
        """Priority, then sub-priority, then first come first served; the name makes it total."""
        return -self.priority, -self.sub_priority, self.created_ms, self.key, self.uid


def read_request(pod: Pod, policy: LoadPolicy, spec_revision: int, extras: Collection[str] = ()) -> PodRequest:
    """Raise ValueError or KeyError for a manifest that validation should have refused."""
    return PodRequest(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        shape=read_shape(pod, policy, extras),
        priority=pod.priority_value,
        sub_priority=pod.sub_priority,
        created_ms=pod.created_ms,
        spec_revision=spec_revision,
        digest=spec_digest(pod.spec),
        quota_label=pod.quota_label,
        preemptible=pod.preemptible,
        gates=pod.scheduling_gates,
        qos=pod.qos.value,
        band=pod.band.short,
        labels=_pairs(pod.labels),
        preempts=_preempts(pod),
        evictable=_evictable(pod),
    )


def _preempts(pod: Pod) -> bool:
    """The label outranks the field, as it does with Koordinator."""
    policy = pod.labels.get(names.PREEMPTION_POLICY) or pod.spec.get("preemptionPolicy")
    return bool(policy != "Never")


def _evictable(pod: Pod) -> bool:
    """What the gate never lets go need not be looked at."""
    protected = pod.labels.get(names.DISABLE_PREEMPTIBLE) == "true" or not pod.preemptible
    dear = pod.annotations.get(names.EVICTION_COST) == _NEVER_EVICT
    return not (protected or dear or pod.priority_value >= _SYSTEM_CRITICAL)


def read_shape(pod: Pod, policy: LoadPolicy, extras: Collection[str] = ()) -> Shape:
    """``extras``: annotations that plugins from outside the package want to see."""
    affinity = pod.affinity
    node_affinity: Mapping[str, Any] = affinity.get("nodeAffinity") or {}
    required: Mapping[str, Any] | None = node_affinity.get(_REQUIRED)
    around = _Around.read(pod)
    hint = _Hint.read(pod.annotations)
    return Shape(
        requests=tuple(sorted((name, min(amount, _MOST)) for name, amount in {**pod.requests, PODS: 1}.items())),
        estimate=_read_estimate(pod, policy),
        is_prod=pod.is_prod,
        is_daemon=pod.owner_kind == "DaemonSet",
        node_name=pod.spec.get("nodeName") or None,
        selector=tuple(Requirement(key, "In", (str(value),)) for key, value in sorted(pod.node_selector.items())),
        required_terms=None if required is None else _node_terms(required.get("nodeSelectorTerms")),
        preferred_terms=tuple(
            (int(each["weight"]), parse_node_term(each["preference"])) for each in node_affinity.get(_PREFERRED) or ()
        ),
        tolerations=parse_tolerations(pod.tolerations),
        ports=tuple(sorted(pod.host_ports)),
        affinity=around.affinity,
        anti_affinity=around.anti_affinity,
        preferred_affinity=around.preferred,
        spread=around.spread,
        only_nodes=hint.only,
        preferred_nodes=hint.preferred,
        extras=tuple(sorted((key, str(value)) for key, value in pod.annotations.items() if key in extras)),
    )


_MOST: Final = 1 << 52
"""No node has more of anything; larger requests wait like this one, and sums stay within 64 bits."""
_HIGHEST_FACTOR: Final = 10_000
_NEVER_EVICT: Final = str((1 << 31) - 1)
_SYSTEM_CRITICAL: Final = 2_000_000_000
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _pairs(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((str(key), str(value)) for key, value in labels.items()))


def _node_terms(section: Sequence[Mapping[str, Any]] | None) -> tuple[NodeTerm, ...]:
    return tuple(parse_node_term(each) for each in section or ())


@dataclass(frozen=True, slots=True)
class _Around:
    """The parts of a spec that look at other pods."""

    affinity: tuple[PodTerm, ...]
    anti_affinity: tuple[PodTerm, ...]
    preferred: tuple[PodTerm, ...]
    spread: tuple[SpreadConstraint, ...]

    @classmethod
    def read(cls, pod: Pod) -> "_Around":
        near: Mapping[str, Any] = pod.affinity.get("podAffinity") or {}
        far: Mapping[str, Any] = pod.affinity.get("podAntiAffinity") or {}
        wished = [(+1, each) for each in near.get(_PREFERRED) or ()] + [
            (-1, each) for each in far.get(_PREFERRED) or ()
        ]
        return cls(
            tuple(_pod_term(each, pod.namespace) for each in near.get(_REQUIRED) or ()),
            tuple(_pod_term(each, pod.namespace) for each in far.get(_REQUIRED) or ()),
            tuple(_pod_term(e["podAffinityTerm"], pod.namespace, sign * int(e["weight"])) for sign, e in wished),
            tuple(_spread(each) for each in pod.spec.get("topologySpreadConstraints") or ()),
        )


def _pod_term(section: Mapping[str, Any], namespace: str, weight: int = 0) -> PodTerm:
    named = tuple(sorted(str(each) for each in section.get("namespaces") or ()))
    everywhere = section.get("namespaceSelector") == {}
    return PodTerm(
        parse_label_selector(section.get("labelSelector")),
        str(section["topologyKey"]),
        None if everywhere else named or (namespace,),
        weight,
    )


def _spread(section: Mapping[str, Any]) -> SpreadConstraint:
    return SpreadConstraint(
        str(section["topologyKey"]),
        int(section["maxSkew"]),
        parse_label_selector(section.get("labelSelector")),
        section.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        int(section.get("minDomains") or 1),
    )


def _read_estimate(pod: Pod, policy: LoadPolicy) -> Estimate:
    factors = policy.scaling_factors
    scheduled, initialized = policy.after_scheduled_ms, policy.after_initialized_ms
    if policy.allow_customize:
        factors = {**factors, **_json_numbers(pod.annotations.get(names.LOAD_ESTIMATED_SCALING_FACTORS))}
        scheduled = _seconds(pod.annotations.get(names.LOAD_ESTIMATED_SECONDS_AFTER_SCHEDULED), scheduled)
        initialized = _seconds(pod.annotations.get(names.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED), initialized)
    cpu, memory = estimate_pod(pod.requests, pod.limits, pod.band, factors)
    return Estimate((min(cpu, _MOST), min(memory, _MOST)), scheduled, initialized)


def _json_object(text: str | None) -> dict[str, Any] | None:
    """None for what is no JSON object; nesting deep enough to exhaust the parser is not one either."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _json_numbers(text: str | None) -> dict[str, int]:
    """Malformed advice is no advice: the defaults hold. So do they for a number that is no percentage."""
    value = _json_object(text) or {}
    try:
        numbers = {key: int(each) for key, each in value.items()}
    except (ValueError, TypeError, OverflowError):
        return {}
    return numbers if all(0 <= each <= _HIGHEST_FACTOR for each in numbers.values()) else {}


@dataclass(frozen=True, slots=True)
class _Hint:
    """The annotation ``scheduling-hint``: nodes the pod may go to, None for all, and nodes to try first."""

    only: tuple[str, ...] | None = None
    preferred: tuple[str, ...] = ()

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> "_Hint":
        value = _json_object(annotations.get(names.SCHEDULING_HINT) or annotations.get(names.SCHEDULING_HINT_OLD))
        only, preferred = (_texts((value or {}).get(key)) for key in ("nodeNames", "preferredNodeNames"))
        return cls(tuple(sorted(set(only))) or None, preferred)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _seconds(text: str | None, default_ms: int | None) -> int | None:
    try:
        return 1000 * int(text) if text is not None else default_ms
    except ValueError:
        return default_ms
