"""What the agent asks the process runtime to start, and the one way in which it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024


class LaunchError(Exception):
    """A launch that cannot be honoured as written; nothing of it runs.

    `field` is the manifest's own word (`command`, `runAsUser`, `workingDir`, …), or `runtime` when the
    fault is not the manifest's.
    """

    def __init__(self, field_name: str, reason: str) -> None:
        super().__init__(f"{field_name}: {reason}")
        self.field = field_name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EnvVar:
    """A value, or the downward-API path (`metadata.name`, …) it is taken from."""

    name: str
    value: str = ""
    field_path: str | None = None


@dataclass(frozen=True, slots=True)
class Rlimit:
    """`name` as in setrlimit(2) without the prefix (`nofile`, `core`, …); -1 is unlimited."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class LogLimits:
    """At most `max_bytes` × `files` of output are kept per container."""

    max_bytes: int = 10 * MIB
    files: int = 2


@dataclass(frozen=True, slots=True)
class ContainerLaunch:
    """One container; field by field as in its Kubernetes manifest, unset being None.

    `cgroup_procs` are the files the process writes itself into before exec: one per v1 hierarchy, one on v2.
    `nice`, `sched_idle` and `cpus` are the means left on a machine that gives us no cgroups.
    """

    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    working_dir: str | None = None
    run_as_user: int | str | None = None
    run_as_group: int | str | None = None
    supplemental_groups: tuple[int, ...] = ()
    run_as_non_root: bool = False
    cgroup_procs: tuple[str, ...] = ()
    log: LogLimits = field(default_factory=LogLimits)
    oom_score_adj: int | None = None
    nice: int | None = None
    sched_idle: bool = False
    cpus: tuple[int, ...] = ()
    rlimits: tuple[Rlimit, ...] = ()
    umask: int = 0o022


@dataclass(frozen=True, slots=True)
class PodLaunch:
    uid: str
    namespace: str
    name: str
    node: str
    containers: tuple[ContainerLaunch, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    gives_way: bool = False
    """Its shims, too, run at the lowest weight: starting batch must not cost a service a slice."""

    def container(self, name: str) -> ContainerLaunch:
        for container in self.containers:
            if container.name == name:
                return container
        known = ", ".join(c.name for c in self.containers)
        raise LaunchError("containers", f"pod {self.namespace}/{self.name} has no container {name!r}; it has {known}")
