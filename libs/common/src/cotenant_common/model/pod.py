"""A pod as the deciding code sees it: every field read once from the manifest, quantities already integers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.model import labels as names
from cotenant_common.model import qos, resources
from cotenant_common.model.qos import KubernetesQos, PriorityBand, QosClass

DEFAULT_GRACE_SECONDS: Final = 30

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """``requests`` follow Kubernetes: the larger of the init containers and the sum of containers, plus overhead."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requests: Mapping[str, int]
    limits: Mapping[str, int]
    kubernetes_qos: KubernetesQos
    priority: int | None
    spec: Manifest = field(repr=False)
    owner_kind: str | None = None
    owner_name: str | None = None
    created_ms: int = 0
    incarnation: int = 0
    deleting: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def labelled_qos(self) -> QosClass:
        return qos.labelled_qos(self.labels)

    @property
    def qos(self) -> QosClass:
        return qos.effective_qos(self.labels, self.kubernetes_qos)

    @property
    def band(self) -> PriorityBand:
        return qos.effective_band(self.labels, self.priority, self.kubernetes_qos)

    @property
    def priority_value(self) -> int:
        return qos.priority_value(self.band, self.priority)

    @property
    def sub_priority(self) -> int:
        return qos.sub_priority(self.labels)

    @property
    def is_prod(self) -> bool:
        return self.band is PriorityBand.PROD

    @property
    def is_reclaimable(self) -> bool:
        """Batch and free pods live on what others promised and do not use."""
        return self.band in (PriorityBand.BATCH, PriorityBand.FREE)

    @property
    def preemptible(self) -> bool:
        return self.labels.get(names.QUOTA_PREEMPTIBLE) != "false"

    @property
    def quota_label(self) -> str | None:
        return self.labels.get(names.QUOTA_NAME) or None

    @property
    def requeue(self) -> bool:
        return self.annotations.get(names.REQUEUE, self.labels.get(names.REQUEUE)) != "false"

    @property
    def node_selector(self) -> Mapping[str, str]:
        return self.spec.get("nodeSelector") or {}

    @property
    def tolerations(self) -> Sequence[Manifest]:
        return self.spec.get("tolerations") or ()

    @property
    def affinity(self) -> Manifest:
        return self.spec.get("affinity") or {}

    @property
    def containers(self) -> Sequence[Manifest]:
        return self.spec.get("containers") or ()

    @property
    def grace_ms(self) -> int:
        seconds = self.spec.get("terminationGracePeriodSeconds")
        return 1000 * (DEFAULT_GRACE_SECONDS if seconds is None else int(seconds))

    @property
    def host_ports(self) -> tuple[tuple[str, int], ...]:
        """(protocol, port) pairs that the pod claims on its node."""
        return tuple(
            (str(port.get("protocol") or "TCP"), int(port["hostPort"]))
            for container in self.containers
            for port in container.get("ports") or ()
            if port.get("hostPort")
        )

    @property
    def scheduling_gates(self) -> tuple[str, ...]:
        return tuple(str(gate["name"]) for gate in self.spec.get("schedulingGates") or ())


def parse_pod(
    manifest: Manifest, *, uid: str, created_ms: int = 0, incarnation: int = 0, deleting: bool = False
) -> Pod:
    """Read a validated Pod manifest. Raise QuantityError for a quantity that validation should have refused."""
    metadata: Manifest = manifest.get("metadata") or {}
    spec: Manifest = manifest.get("spec") or {}
    owner = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), None)
    return Pod(
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata["name"]),
        uid=uid,
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        requests=pod_requests(spec),
        limits=pod_limits(spec),
        kubernetes_qos=qos.kubernetes_qos(
            [container_resources(c) for c in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]]
        ),
        priority=spec.get("priority"),
        spec=spec,
        owner_kind=owner and owner.get("kind"),
        owner_name=owner and owner.get("name"),
        created_ms=created_ms,
        incarnation=incarnation,
        deleting=deleting,
    )


def container_resources(container: Manifest) -> tuple[dict[str, int], dict[str, int]]:
    """(requests, limits); a limit without a request is the request too, as the API server defaults it."""
    section: Manifest = container.get("resources") or {}
    limits = _parse_list(section.get("limits"))
    return limits | _parse_list(section.get("requests")), limits


def pod_requests(spec: Manifest) -> dict[str, int]:
    """Kubernetes' effective request: sidecars (restartPolicy Always) run beside what comes after them."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        request, _ = container_resources(container)
        if container.get("restartPolicy") == "Always":
            running = resources.add(running, request)
            peak = resources.maximum(peak, running)
        else:
            peak = resources.maximum(peak, resources.add(running, request))
    for container in spec.get("containers") or ():
        running = resources.add(running, container_resources(container)[0])
    return resources.add(resources.maximum(peak, running), _parse_list(spec.get("overhead")))


def pod_limits(spec: Manifest) -> dict[str, int]:
    """Sum of the limits by name; a name that any container leaves unlimited is unset for the pod."""
    containers = spec.get("containers") or ()
    per_container = [container_resources(container)[1] for container in containers]
    total: dict[str, int] = {}
    for limits in per_container:
        total = resources.add(total, limits)
    return {name: value for name, value in total.items() if all(name in limits for limits in per_container)}


def _parse_list(section: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: resources.parse(name, value) for name, value in (section or {}).items()}
