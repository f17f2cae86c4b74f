"""What the service needs of its machine. The real ones are made in `node.py`; a simulated node brings its own."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cotenant_agent.adapters.manifests import PodPlan, read_plan
from cotenant_agent.cgroup.tree import CgroupTree
from cotenant_agent.cgroup.writer import KnobWriter
from cotenant_agent.collect.sampler import Sampler
from cotenant_agent.core.suppress import Cpu
from cotenant_agent.runtime import ContainerState, PodLaunch, ProbeResult, StopResult
from cotenant_common.contracts.messages.state import SpecRecord


class Runtime(Protocol):
    """Starts and ends containers; `runtime.PodRuntime` is the one for processes."""

    def containers(self, uid: str | None = None) -> tuple[ContainerState, ...]: ...

    def check(self, launch: PodLaunch) -> None: ...

    async def start(self, launch: PodLaunch) -> tuple[ContainerState, ...]: ...

    async def restart(self, launch: PodLaunch, container: str) -> ContainerState: ...

    async def stop(
        self,
        uid: str,
        grace_ms: int,
        *,
        pids: Callable[[], Iterable[int]] | None = None,
        kill_all: Callable[[], int] | None = None,
        containers: Iterable[str] | None = None,
    ) -> StopResult: ...

    async def adopt(self) -> tuple[ContainerState, ...]: ...

    def watch(self) -> AsyncIterator[ContainerState]: ...

    async def exec(
        self, launch: PodLaunch, container: str, command: tuple[str, ...], timeout_ms: int
    ) -> ProbeResult: ...

    async def remove(self, uid: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LogPage:
    text: str
    cursor: str | None


class LogSource(Protocol):
    def read(
        self, uid: str, container: str, *, after: str | None, tail_lines: int | None, limit_bytes: int
    ) -> LogPage | None:
        """None when there is no log; `after` is the cursor of an earlier page."""


class FreezeStore(Protocol):
    """Freezes that outlive the agent; neither call waits or raises."""

    def local(self) -> str | None:
        """Why somebody froze this node on the node itself; None while nobody did."""
        ...

    def cluster(self) -> str | None:
        """What the cluster said last."""
        ...

    def remember(self, reason: str | None, now_ms: int) -> None:
        """What the cluster says now."""
        ...


class SpecStore(Protocol):
    """What each pod was started from; no call waits or raises."""

    def keep(self, record: SpecRecord) -> None: ...

    def read(self, uid: str) -> SpecRecord | None: ...

    def forget(self, uid: str) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What does not change while the agent runs. `capacity` is the slice's, by resource name."""

    capacity: Mapping[str, int]
    cpus: tuple[Cpu, ...]
    whole_machine: bool
    boot_id: str
    kernel: str | None = None
    cpu_model: str | None = None
    runtime: str = "process"
    labels: Mapping[str, str] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodePorts:
    """`tree` is None where this user has no rights to groups."""

    facts: NodeFacts
    tree: CgroupTree | None
    writer: KnobWriter | None
    sampler: Sampler
    runtime: Runtime
    logs: LogSource
    read_plan: Callable[[SpecRecord, str], PodPlan] = read_plan
    """A simulated node probes nothing and lets a pod end when its manifest says so."""
    specs: SpecStore | None = None
    freeze: FreezeStore | None = None
    """Both None where there is no disk: a simulated node forgets with its agent."""
