"""What a waiting pod asks of a node, read once from its manifest.

Everything that decides where a pod may go is its *shape*; pods of one shape share the work of looking at the nodes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[int, int, int, str, str]:
        """Priority, then sub-priority, then first come first served; the name makes it total."""
        return -self.priority, -self.sub_priority, self.created_ms, self.key, self.uid


def read_request(pod: Pod, policy: LoadPolicy, spec_revision: int) -> PodRequest:
    """Raise ValueError or KeyError for a manifest that validation should have refused."""
    return PodRequest(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        shape=read_shape(pod, policy),
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
    )


def read_shape(pod: Pod, policy: LoadPolicy) -> Shape:
    affinity = pod.affinity
    node_affinity: Mapping[str, Any] = affinity.get("nodeAffinity") or {}
    required: Mapping[str, Any] | None = node_affinity.get(_REQUIRED)
    around = _Around.read(pod)
    return Shape(
        requests=tuple(sorted({**pod.requests, PODS: 1}.items())),
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
    )


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
    return Estimate(estimate_pod(pod.requests, pod.limits, pod.band, factors), scheduled, initialized)


def _json_numbers(text: str | None) -> dict[str, int]:
    """Malformed advice is no advice: the defaults hold."""
    try:
        value = json.loads(text or "{}")
        return {str(key): int(each) for key, each in value.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _seconds(text: str | None, default_ms: int | None) -> int | None:
    try:
        return 1000 * int(text) if text is not None else default_ms
    except ValueError:
        return default_ms
