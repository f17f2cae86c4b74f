"""A pod's manifest as the process runtime takes it; what the runtime cannot honour is refused by field."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant_agent.runtime import (
    ContainerLaunch,
    ContainerProbes,
    EnvVar,
    ExecAction,
    HttpGetAction,
    LaunchError,
    PodLaunch,
    Probe,
    RestartPolicy,
    TcpSocketAction,
)
from cotenant_agent.runtime.probe_core import ProbeAction
from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_common.model import labels
from cotenant_common.model.pod import Pod, parse_pod
from cotenant_common.model.qos import QosClass

Manifest = Mapping[str, Any]

_BE_OOM_SCORE = 1_000


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    percentile: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Confinement:
    """How a container is held: the group files it writes itself into, or scheduling means where there are no groups."""

    procs_files: tuple[str, ...] = ()
    nice: int | None = None
    sched_idle: bool = False
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Everything that running a pod needs from its spec."""

    pod: Pod
    node: str
    restart: RestartPolicy
    grace_ms: int
    containers: tuple[ContainerLaunch, ...]
    probes: Mapping[str, ContainerProbes] = field(default_factory=dict)
    target: LatencyTarget | None = None
    warnings: tuple[str, ...] = ()

    def launch(self, how: Confinement) -> PodLaunch:
        oom = _BE_OOM_SCORE if self.pod.qos is QosClass.BE else None
        return PodLaunch(
            uid=self.pod.uid,
            namespace=self.pod.namespace,
            name=self.pod.name,
            node=self.node,
            containers=tuple(_confined(container, how, oom) for container in self.containers),
            labels=self.pod.labels,
            annotations=self.pod.annotations,
            gives_way=self.pod.qos is QosClass.BE,
        )


def _confined(container: ContainerLaunch, how: Confinement, oom_score_adj: int | None) -> ContainerLaunch:
    return ContainerLaunch(
        name=container.name,
        command=container.command,
        args=container.args,
        env=container.env,
        working_dir=container.working_dir,
        run_as_user=container.run_as_user,
        run_as_group=container.run_as_group,
        supplemental_groups=container.supplemental_groups,
        run_as_non_root=container.run_as_non_root,
        cgroup_procs=how.procs_files,
        oom_score_adj=oom_score_adj,
        nice=how.nice,
        sched_idle=how.sched_idle,
        cpus=how.cpus,
    )


def read_plan(record: SpecRecord, node: str) -> PodPlan:
    """Raise LaunchError naming the field that this runtime cannot honour."""
    try:
        return _read_plan(record, node)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Validated long before; but one unreadable pod must never stop the node that holds the others.
        raise LaunchError("", f"this is no pod that can be read: {type(error).__name__}: {error}") from error


def _read_plan(record: SpecRecord, node: str) -> PodPlan:
    pod = parse_pod(
        record.manifest,
        uid=record.uid,
        created_ms=record.created_ms,
        incarnation=record.incarnation,
        deleting=record.deletion is not None,
    )
    if pod.spec.get("initContainers"):
        raise LaunchError("initContainers", "the process runtime runs no init containers; start them as a Job")
    if not pod.containers:
        raise LaunchError("containers", "a pod needs at least one container")
    context: Manifest = pod.spec.get("securityContext") or {}
    warnings = tuple(
        f"spec.containers[{index}].image {container['image']!r} is ignored: this node runs processes"
        for index, container in enumerate(pod.containers)
        if container.get("image") not in (None, "", "none")
    )
    return PodPlan(
        pod=pod,
        node=node,
        restart=_restart_policy(pod.spec.get("restartPolicy")),
        grace_ms=pod.grace_ms,
        containers=tuple(_container(container, context) for container in pod.containers),
        probes={str(container["name"]): read_probes(container) for container in pod.containers},
        target=read_target(pod.annotations),
        warnings=warnings,
    )


def _restart_policy(value: object) -> RestartPolicy:
    try:
        return RestartPolicy(str(value or "Always"))
    except ValueError:
        raise LaunchError("restartPolicy", f"expected Always, OnFailure or Never, got {value!r}") from None


def _container(container: Manifest, pod_context: Manifest) -> ContainerLaunch:
    context = {**pod_context, **(container.get("securityContext") or {})}
    return ContainerLaunch(
        name=str(container["name"]),
        command=_strings(container.get("command")),
        args=_strings(container.get("args")),
        env=tuple(_env(entry) for entry in container.get("env") or ()),
        working_dir=container.get("workingDir"),
        run_as_user=context.get("runAsUser"),
        run_as_group=context.get("runAsGroup"),
        supplemental_groups=tuple(int(group) for group in pod_context.get("supplementalGroups") or ()),
        run_as_non_root=bool(context.get("runAsNonRoot")),
    )


def _strings(values: Sequence[object] | None) -> tuple[str, ...]:
    return tuple(str(value) for value in values or ())


def _env(entry: Manifest) -> EnvVar:
    source: Manifest = entry.get("valueFrom") or {}
    if not source:
        value = entry.get("value")
        return EnvVar(str(entry["name"]), "" if value is None else str(value))
    path = (source.get("fieldRef") or {}).get("fieldPath")
    if path is None:
        raise LaunchError("env", f"{entry['name']}: valueFrom takes a fieldRef here, got {', '.join(source)}")
    return EnvVar(str(entry["name"]), field_path=str(path))


def read_probes(container: Manifest) -> ContainerProbes:
    return ContainerProbes(
        readiness=_probe(container, "readinessProbe"),
        liveness=_probe(container, "livenessProbe"),
        startup=_probe(container, "startupProbe"),
    )


def _probe(container: Manifest, name: str) -> Probe | None:
    section: Manifest | None = container.get(name)
    if not section:
        return None
    grace_s = section.get("terminationGracePeriodSeconds")
    return Probe(
        action=_action(container, section, name),
        initial_delay_ms=1_000 * int(section.get("initialDelaySeconds") or 0),
        period_ms=1_000 * max(1, int(section.get("periodSeconds") or 10)),
        timeout_ms=1_000 * max(1, int(section.get("timeoutSeconds") or 1)),
        success_threshold=int(section.get("successThreshold") or 1),
        failure_threshold=int(section.get("failureThreshold") or 3),
        grace_ms=None if grace_s is None else 1_000 * int(grace_s),
    )


def _action(container: Manifest, section: Manifest, name: str) -> ProbeAction:
    if "exec" in section:
        return ExecAction(_strings(section["exec"].get("command")))
    if "httpGet" in section:
        http: Manifest = section["httpGet"]
        return HttpGetAction(
            port=_port(container, http.get("port"), name),
            path=str(http.get("path") or "/"),
            host=str(http.get("host") or "127.0.0.1"),
            scheme=str(http.get("scheme") or "HTTP"),
            headers=tuple((str(h["name"]), str(h.get("value", ""))) for h in http.get("httpHeaders") or ()),
        )
    if "tcpSocket" in section:
        socket: Manifest = section["tcpSocket"]
        return TcpSocketAction(_port(container, socket.get("port"), name), str(socket.get("host") or "127.0.0.1"))
    raise LaunchError(name, f"expected exec, httpGet or tcpSocket, got {', '.join(section) or 'nothing'}")


def _port(container: Manifest, value: object, probe: str) -> int:
    """A number, or the name of one of the container's ports."""
    named = (port.get("containerPort") for port in container.get("ports") or () if port.get("name") == value)
    found = value if isinstance(value, int) or str(value).isdecimal() else next(named, None)
    if found is not None and 0 < int(str(found)) < 65_536:
        return int(str(found))
    raise LaunchError(probe, f"port {value!r} is neither 1 to 65535 nor a named port of the container")


def read_target(annotations: Mapping[str, str]) -> LatencyTarget | None:
    """None as well for what is no target: the gateway has said so when it took the pod."""
    text = annotations.get(labels.LATENCY_SLO)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return LatencyTarget(float(found.get("percentile", 99)), float(found["milliseconds"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
