"""A node in memory: a runtime and a sampler that do as they are told, and remember it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cotenant_agent.adapters.manifests import read_plan
from cotenant_agent.adapters.ports import LogPage, NodeFacts, NodePorts
from cotenant_agent.app.enforce import Enforcer
from cotenant_agent.app.placed import Placed
from cotenant_agent.app.ticks import Tick
from cotenant_agent.cgroup.fake import FakeCgroupTree
from cotenant_agent.cgroup.files import Knob, KnobValue
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.writer import KnobWriter
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.cpuset import format_cpuset
from cotenant_agent.core.suppress import Cpu
from cotenant_agent.core.usage import GroupCounters, NodeCounters
from cotenant_agent.runtime import ContainerPhase, ContainerState, LaunchError, PodLaunch, ProbeResult, StopResult
from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_common.testing.builders import pod_manifest, spec_record


@dataclass(slots=True)
class FakeRuntime:
    """Containers that run until `finish`, `crash` or a stop; nothing is started."""

    now_ms: Callable[[], int]
    refuses: dict[str, str] = field(default_factory=dict)
    """Pod name to the reason for which its start is refused."""
    stop_takes_s: float = 0.0
    unkillable: int = 0
    """Processes that no stop can end, until this is 0."""
    launches: list[PodLaunch] = field(default_factory=list)
    stops: list[tuple[str, int]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    _states: dict[tuple[str, str], ContainerState] = field(default_factory=dict)
    _ended: "asyncio.Queue[ContainerState]" = field(default_factory=asyncio.Queue)

    def containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        return tuple(state for key, state in self._states.items() if uid is None or key[0] == uid)

    def check(self, launch: PodLaunch) -> None:
        if launch.name in self.refuses:
            raise LaunchError("command", self.refuses[launch.name])

    async def start(self, launch: PodLaunch) -> tuple[ContainerState, ...]:
        self.check(launch)
        self.launches.append(launch)
        for container in launch.containers:
            if (launch.uid, container.name) not in self._states:
                self._run(launch, container.name, 0)
        return self.containers(launch.uid)

    async def restart(self, launch: PodLaunch, container: str) -> ContainerState:
        self.check(launch)
        return self._run(launch, container, self._states[launch.uid, container].attempt + 1)

    def _run(self, launch: PodLaunch, container: str, attempt: int) -> ContainerState:
        state = ContainerState(
            uid=launch.uid,
            namespace=launch.namespace,
            pod=launch.name,
            container=container,
            phase=ContainerPhase.RUNNING,
            attempt=attempt,
            boot_id="boot",
            shim_pid=1,
            shim_start_ticks=1,
            run_as="tester",
            log_max_bytes=1,
            log_files=1,
            pid=1_000 + len(self._states),
            started_at_ms=self.now_ms(),
        )
        self._states[launch.uid, container] = state
        return state

    def lose(self, uid: str, container: str) -> None:
        """As if the agent had died before it started this one."""
        del self._states[uid, container]

    def tell_end(self, state: ContainerState) -> None:
        self._ended.put_nowait(state)

    def finish(self, uid: str, container: str = "main", code: int = 0, *, oom_killed: bool = False) -> None:
        state = self._end(uid, container, code, oom_killed=oom_killed)
        self._ended.put_nowait(state)

    def _end(self, uid: str, container: str, code: int, *, oom_killed: bool = False) -> ContainerState:
        state = replace(
            self._states[uid, container],
            phase=ContainerPhase.EXITED,
            exit_code=code,
            finished_at_ms=self.now_ms(),
            oom_killed=oom_killed,
        )
        self._states[uid, container] = state
        return state

    async def stop(
        self,
        uid: str,
        grace_ms: int,
        *,
        pids: Callable[[], Iterable[int]] | None = None,  # noqa: ARG002 - the protocol's
        kill_all: Callable[[], int] | None = None,
        containers: Iterable[str] | None = None,
    ) -> StopResult:
        self.stops.append((uid, grace_ms))
        await asyncio.sleep(self.stop_takes_s)
        chosen = None if containers is None else list(containers)
        for state in self.containers(uid):
            if state.running and (chosen is None or state.container in chosen):
                self._ended.put_nowait(self._end(uid, state.container, 143))
        if kill_all is not None:
            kill_all()
        return StopResult(self.containers(uid), killed=False, left=self.unkillable)

    async def adopt(self) -> tuple[ContainerState, ...]:
        while not self._ended.empty():
            self._ended.get_nowait()
        return self.containers()

    async def watch(self) -> AsyncIterator[ContainerState]:
        while True:
            yield await self._ended.get()

    async def exec(self, launch: PodLaunch, container: str, command: tuple[str, ...], timeout_ms: int) -> ProbeResult:  # noqa: ARG002
        return ProbeResult(ok=True, message="said yes")

    async def remove(self, uid: str) -> None:
        self.removed.append(uid)
        for key in [key for key in self._states if key[0] == uid]:
            del self._states[key]

    def close(self) -> None:
        """Nothing is held open."""


@dataclass(slots=True)
class FakeSampler:
    """Totals that grow by the rates it was given, in the time of `now_ms`. A pod without a rate is not measured."""

    now_ms: Callable[[], int]
    rates: dict[str, int] = field(default_factory=dict)
    """Milli-cores by pod uid, by group name, and for `node`."""
    memory: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    """Milliseconds per scheduling, by pod uid; a hundred schedulings a second."""
    pods: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    cost_us: int = 0
    _totals: dict[str, float] = field(default_factory=dict)
    _at_ms: int | None = None

    def track_group(self, name: str, group: str) -> None:
        self.groups[name] = group

    def track_pod(self, uid: str, group: str, *, latency_sensitive: bool) -> None:  # noqa: ARG002 - the protocol's
        self.pods[uid] = group

    def untrack_pod(self, uid: str) -> None:
        self.pods.pop(uid, None)

    def sample(self) -> NodeCounters:
        self._advance()
        return NodeCounters(
            at_us=self.now_ms() * 1_000,
            cpu_us=self._total("node"),
            memory_bytes=self.memory.get("node"),
            pods={uid: self._counters(uid) for uid in self.pods},
            groups={name: self._counters(name) for name in self.groups},
        )

    def sample_pods(self, uids: Collection[str]) -> NodeCounters:
        self._advance()
        return NodeCounters(at_us=self.now_ms() * 1_000, pods={uid: self._counters(uid) for uid in uids})

    def _advance(self) -> None:
        now_ms = self.now_ms()
        elapsed_s = 0.0 if self._at_ms is None else (now_ms - self._at_ms) / 1_000
        self._at_ms = now_ms
        for name, milli in self.rates.items():
            self._totals[name] = self._totals.get(name, 0.0) + milli * 1_000 * elapsed_s
        for name, wait_ms in self.waits.items():
            self._totals[f"{name} slices"] = self._totals.get(f"{name} slices", 0.0) + 100 * elapsed_s
            self._totals[f"{name} wait"] = self._totals.get(f"{name} wait", 0.0) + 100_000 * wait_ms * elapsed_s

    def _total(self, name: str) -> int | None:
        found = self._totals.get(name)
        return None if found is None else int(found)

    def _counters(self, name: str) -> GroupCounters:
        return GroupCounters(
            cpu_us=self._total(name),
            memory_bytes=self.memory.get(name),
            wait_us=self._total(f"{name} wait"),
            slices=self._total(f"{name} slices"),
        )

    def close(self) -> None:
        """Nothing is held open."""


@dataclass(slots=True)
class FakeLogs:
    pages: dict[tuple[str, str], str] = field(default_factory=dict)

    def read(
        self, uid: str, container: str, *, after: str | None, tail_lines: int | None, limit_bytes: int
    ) -> LogPage | None:
        text = self.pages.get((uid, container))
        if text is None:
            return None
        start = int(after or 0)
        if after is None and tail_lines is not None:
            start = len(text) - len("".join(text.splitlines(keepends=True)[-tail_lines:]))
        part = text[start : start + limit_bytes]
        return LogPage(part, str(start + len(part)))


@dataclass(slots=True)
class FakeNode:
    """The parts of a node, each with its own type, and `ports` for the service."""

    tree: FakeCgroupTree
    writer: KnobWriter
    sampler: FakeSampler
    runtime: FakeRuntime
    logs: FakeLogs
    ports: NodePorts


def fake_node(
    now_ms: Callable[[], int],
    *,
    cpus: int = 4,
    memory_bytes: int = 8 << 30,
    tree: FakeCgroupTree | None = None,
    labels: Mapping[str, str] | None = None,
) -> FakeNode:
    topology = tuple(Cpu(cpu, cpu // 2, 0, 0) for cpu in range(cpus))
    groups = tree or FakeCgroupTree(cpus=format_cpuset(range(cpus)))
    writer = KnobWriter(groups, KnobJournal())
    sampler, runtime, logs = FakeSampler(now_ms), FakeRuntime(now_ms), FakeLogs()
    facts = NodeFacts(
        capacity={CPU: 1_000 * cpus, MEMORY: memory_bytes, PODS: 110},
        cpus=topology,
        whole_machine=True,
        boot_id="boot",
        runtime="simulated",
        labels=dict(labels or {}),
    )
    return FakeNode(groups, writer, sampler, runtime, logs, NodePorts(facts, groups, writer, sampler, runtime, logs))


class Rig:
    """An enforcer on a node in memory, and the seconds that pass on it."""

    def __init__(
        self, tree: FakeCgroupTree | None = None, cpus: int = 4, slice_cpus: int | None = None, **settings: Any
    ) -> None:
        self.ms = 0
        self.node = fake_node(lambda: self.ms, cpus=cpus, tree=tree)
        if slice_cpus is not None:
            facts = replace(self.node.ports.facts, cpus=self.node.ports.facts.cpus[:slice_cpus], whole_machine=False)
            self.node.ports = replace(self.node.ports, facts=facts)
        self.enforcer = Enforcer(self.node.ports, AgentSettings(node="n1", **settings))
        self.enforcer.prepare(0)

    def seconds(self, count: int) -> Tick:
        """The last of ``count`` ticks."""
        for _ in range(count):
            self.ms += 1_000
            tick = self.enforcer.tick(self.ms)
        return tick

    def place(self, name: str, cpuset: str | None = None, **fields: Any) -> Placed:
        plan = read_plan(spec_record(pod_manifest(name, **fields)), "n1")
        return self.enforcer.place(plan, cpuset, self.ms)

    def read(self, group: str, knob: Knob) -> KnobValue | None:
        return self.node.tree.read(group, knob)

    @property
    def quota(self) -> KnobValue | None:
        return self.read("n1/be", Knob.CPU_QUOTA)
