"""Every kind the gateway accepts: its API version, scope and shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant_common.model.quota.spec import LARGEST
from cotenant_gateway.core.validate.meta import (
    ANNOTATIONS,
    DNS_LABEL,
    LABEL_KEY,
    LABEL_SELECTOR,
    LABEL_VALUE,
    LABELS,
    METADATA,
    TEMPLATE_METADATA,
)
from cotenant_gateway.core.validate.podspec import POD_SPEC
from cotenant_gateway.core.validate.schema import (
    Anything,
    Count,
    Field,
    Flag,
    Integer,
    Listing,
    OneOf,
    Only,
    ResourceList,
    Shape,
    Text,
    Words,
    ignored,
    kept,
    refused,
    used,
)

_WRITTEN_BY_US: Final = "computed here"
_STATUS: Final = ignored("status", _WRITTEN_BY_US)


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    api_versions: tuple[str, ...]
    namespaced: bool
    fields: tuple[Field, ...]
    plural: str = ""

    @property
    def shape(self) -> Shape:
        head = (used("apiVersion", Text(), required=True), used("kind", Text(), required=True))
        return Shape((*head, used("metadata", METADATA, required=True), *self.fields), self.name)


_TEMPLATE: Final = Shape(
    (used("metadata", TEMPLATE_METADATA), used("spec", POD_SPEC, required=True)),
    "pod template",
)
_DEPLOYMENT: Final = Shape(
    (
        used("replicas", Integer(0, 10_000)),
        used("selector", LABEL_SELECTOR, required=True),
        used("template", _TEMPLATE, required=True),
        used("paused", Flag()),
        used(
            "strategy",
            Shape(
                (
                    used("type", OneOf(("RollingUpdate", "Recreate"))),
                    *ignored("rollingUpdate", "a rolling update replaces one pod at a time"),
                )
            ),
        ),
        *ignored("minReadySeconds progressDeadlineSeconds revisionHistoryLimit", "a pod counts as soon as it is ready"),
    ),
    "Deployment spec",
)
_JOB: Final = Shape(
    (
        used("template", _TEMPLATE, required=True),
        used("completions", Integer(0, 100_000)),
        used("parallelism", Integer(0, 10_000)),
        used("backoffLimit", Integer()),
        used("ttlSecondsAfterFinished", Integer()),
        used("activeDeadlineSeconds", Integer(1)),
        used("completionMode", OneOf(("NonIndexed", "Indexed"))),
        *ignored("manualSelector selector", "pods belong to the Job that made them"),
        *refused("suspend", "delete the Job, or set parallelism 0"),
        *refused("podFailurePolicy successPolicy backoffLimitPerIndex maxFailedIndexes", "use backoffLimit"),
        *refused("podReplacementPolicy managedBy", "not built"),
    ),
    "Job spec",
)
_TAINT: Final = Shape(
    (
        used("key", LABEL_KEY, required=True),
        used("value", LABEL_VALUE),
        used("effect", OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute")), required=True),
        *ignored("timeAdded", _WRITTEN_BY_US),
    ),
    "taint",
)
_NODE_SPEC: Final = Shape(
    (
        used("unschedulable", Flag()),
        used("taints", Listing(_TAINT)),
        *ignored("podCIDR podCIDRs providerID configSource externalID", "the node is this machine"),
    ),
    "Node spec",
)
_NODE_STATUS: Final = Shape(
    (
        used("capacity", ResourceList(), why="taken by simulated nodes; a real agent measures"),
        used("allocatable", ResourceList(), why="taken by simulated nodes; a real agent measures"),
        *ignored(
            "conditions addresses nodeInfo images daemonEndpoints volumesInUse volumesAttached config phase "
            "runtimeHandlers features declaredFeatures",
            "measured here",
        ),
    ),
    "Node status",
)
_BUDGET: Final = Shape(
    (
        used("minAvailable", Count()),
        used("maxUnavailable", Count()),
        used("selector", LABEL_SELECTOR),
        used("unhealthyPodEvictionPolicy", OneOf(("IfHealthyBudget", "AlwaysAllow"))),
    ),
    "PodDisruptionBudget spec",
)
_QUOTA: Final = Shape((used("min", ResourceList(LARGEST)), used("max", ResourceList(LARGEST))), "ElasticQuota spec")
_QUOTA_PROFILE: Final = Shape(
    (
        used("quotaName", Text(max_length=253), required=True, why="the quota that stands for the nodes"),
        used("quotaLabels", LABELS),
        used("nodeSelector", LABELS, why="every label has to match; empty selects every node"),
        used("resourceRatio", Text(max_length=16), why='part of the nodes, above 0 and at most 1, such as "0.9"'),
    ),
    "ElasticQuotaProfile spec",
)
_PROFILE: Final = Shape(
    (
        used("namespaceSelector", LABEL_SELECTOR),
        used("selector", LABEL_SELECTOR),
        used("probability", Count()),
        used("labels", LABELS),
        used("annotations", ANNOTATIONS),
        used("labelKeysMapping", Words(LABEL_KEY, LABEL_KEY)),
        used("annotationKeysMapping", Words(LABEL_KEY, LABEL_KEY)),
        used("labelSuffixes", Words(LABEL_KEY, Text())),
        used("schedulerName", Text()),
        used("qosClass", OneOf(("LSE", "LSR", "LS", "BE", "SYSTEM"))),
        used("priorityClassName", Text()),
        used("koordinatorPriority", Integer(-(2**31))),
        used("patch", Anything("part of a Pod")),
    ),
    "ClusterColocationProfile spec",
)


def _spec(shape: Shape) -> Field:
    return used("spec", shape, required=True)


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("Pod", ("v1",), True, (_spec(POD_SPEC), *_STATUS)),
        Kind("Deployment", ("apps/v1",), True, (_spec(_DEPLOYMENT), *_STATUS)),
        Kind("Job", ("batch/v1",), True, (_spec(_JOB), *_STATUS)),
        Kind("Node", ("v1",), False, (used("spec", _NODE_SPEC), used("status", _NODE_STATUS))),
        Kind("Namespace", ("v1",), False, (*ignored("spec", "namespaces need no setting up"), *_STATUS)),
        Kind("PodDisruptionBudget", ("policy/v1",), True, (_spec(_BUDGET), *_STATUS)),
        Kind(
            "PriorityClass",
            ("scheduling.k8s.io/v1",),
            False,
            (
                used("value", Integer(-(2**31), 1_000_000_000), required=True),
                used("globalDefault", Flag()),
                used("preemptionPolicy", OneOf(("PreemptLowerPriority", "Never"))),
                kept("description", Text()),
            ),
            "PriorityClasses",
        ),
        Kind(
            "ConfigMap",
            ("v1",),
            True,
            (
                used("data", Words(Text(max_length=253), Text(max_length=900_000))),
                used("immutable", Only((False,), "configuration is read again on every change")),
                *refused("binaryData", "use data"),
            ),
        ),
        Kind("ElasticQuota", ("scheduling.sigs.k8s.io/v1alpha1",), True, (_spec(_QUOTA), *_STATUS)),
        Kind("ElasticQuotaProfile", ("quota.koordinator.sh/v1alpha1",), True, (_spec(_QUOTA_PROFILE), *_STATUS)),
        Kind("ClusterColocationProfile", ("config.koordinator.sh/v1alpha1",), False, (_spec(_PROFILE), *_STATUS)),
    )
}
# Kinds of the reference system that nothing acts on yet: refusing them beats storing a promise.
NOT_YET: Final = (
    "PodGroup", "Reservation", "PodMigrationJob", "Device", "ClusterNetworkTopology", "NodeSLO",
    "NodeMetric", "NodeResourceTopology", "Recommendation",
)  # fmt: skip
NAMESPACE_NAME: Final = DNS_LABEL


def find_kind(name: str) -> Kind | None:
    """By name as written, or as people write it in a URL: ``pods``, ``pod``, ``priorityclasses``."""
    if name in KINDS:
        return KINDS[name]
    lowered = name.lower()
    for kind in KINDS.values():
        if lowered in (kind.name.lower(), (kind.plural or f"{kind.name}s").lower()):
            return kind
    return None
