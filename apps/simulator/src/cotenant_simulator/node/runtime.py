"""Containers of a simulated machine: they start after a second, run as long as the manifest says, and leave in time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Final

from cotenant_agent.adapters.manifests import Confinement, PodPlan, read_plan
from cotenant_agent.core.isolation import group_of
from cotenant_agent.runtime import (
    ContainerPhase,
    ContainerProbes,
    ContainerState,
    LaunchError,
    PodLaunch,
    ProbeResult,
    RestartPolicy,
    StopResult,
)
from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_common.model import labels
from cotenant_simulator.core import annotations
from cotenant_simulator.core.annotations import AnnotationError
from cotenant_simulator.core.kernel import OomKill
from cotenant_simulator.node.demands import own_demand
from cotenant_simulator.node.machine import Machine, Tenancy

START_MS: Final = 1_000
STOP_MS: Final = 1_000
_SIGTERM: Final = 143
_SIGKILL: Final = 9


class SimulatedRuntime:
    """Survives its agent: what runs goes on running while nobody looks, and is adopted by the next one."""

    def __init__(self, machine: Machine, now_ms: Callable[[], int]) -> None:
        self._machine = machine
        self._now_ms = now_ms
        self._states: dict[tuple[str, str], ContainerState] = {}
        self._plans: dict[str, PodPlan] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._ended: asyncio.Queue[ContainerState] = asyncio.Queue()
        self._pids = 1_000
        machine.on_oom = self._killed

    def read_plan(self, record: SpecRecord, node: str) -> PodPlan:
        """As a real node reads it, but nothing answers probes here, and a pod with a duration ends for good."""
        plan = read_plan(record, node)
        plan = replace(plan, probes=dict.fromkeys(plan.probes, ContainerProbes()), warnings=())
        try:
            annotations.check(plan.pod.annotations)
        except AnnotationError as problem:
            raise LaunchError("annotations", str(problem)) from problem
        self._plans[plan.pod.uid] = plan
        lasting = labels.SIM_DURATION in plan.pod.annotations
        return replace(plan, restart=RestartPolicy.NEVER) if lasting else plan

    def containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        return tuple(state for key, state in self._states.items() if uid is None or key[0] == uid)

    def check(self, launch: PodLaunch) -> None:
        """Everything can be simulated."""

    async def start(self, launch: PodLaunch) -> tuple[ContainerState, ...]:
        await asyncio.sleep(START_MS / 1_000)
        for container in launch.containers:
            self._run(launch, container.name, 0)
        return self.containers(launch.uid)

    def resume(self, plan: PodPlan, started_ms: int | None) -> None:
        """It ran before anybody looked, and is there to be adopted."""
        self._plans[plan.pod.uid] = plan
        for container in plan.containers:
            self._run(plan.launch(Confinement()), container.name, 0, started_ms)

    async def restart(self, launch: PodLaunch, container: str) -> ContainerState:
        return self._run(launch, container, self._states[launch.uid, container].attempt + 1)

    def _run(self, launch: PodLaunch, container: str, attempt: int, started_ms: int | None = None) -> ContainerState:
        self._pids += 1
        key = (launch.uid, container)
        self._states[key] = ContainerState(
            uid=launch.uid,
            namespace=launch.namespace,
            pod=launch.name,
            container=container,
            phase=ContainerPhase.RUNNING,
            attempt=attempt,
            boot_id="simulated",
            shim_pid=self._pids,
            shim_start_ticks=1,
            run_as="simulated",
            log_max_bytes=0,
            log_files=0,
            pid=self._pids,
            started_at_ms=self._now_ms() if started_ms is None else started_ms,
        )
        plan = self._plans[launch.uid]
        lasts_ms = annotations.read_duration_ms(plan.pod.annotations, labels.SIM_DURATION)
        if lasts_ms is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(lasts_ms / 1_000, self._finished, key)
        self._enter(plan)
        return self._states[key]

    def _enter(self, plan: PodPlan) -> None:
        pod = plan.pod
        if pod.uid not in self._machine.tenants:
            group = f"{self._machine.node}/{group_of(pod.qos)}/pod{pod.uid}"
            self._machine.enter(Tenancy(pod.uid, pod.key, group, own_demand(pod)))
            # The agent still has to learn that it runs before it can learn that it was killed.
            asyncio.get_running_loop().call_soon(self._machine.settle_memory)

    def _finished(self, key: tuple[str, str]) -> None:
        self._ended.put_nowait(self._end(key, exit_code=0))

    def _killed(self, kill: OomKill) -> None:
        for key, state in list(self._states.items()):
            if key[0] == kill.name and state.running:
                self._ended.put_nowait(self._end(key, signal=_SIGKILL, oom_killed=True, reason=kill.message))

    def _end(
        self,
        key: tuple[str, str],
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        oom_killed: bool = False,
        reason: str = "",
    ) -> ContainerState:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        state = replace(
            self._states[key],
            phase=ContainerPhase.EXITED,
            exit_code=exit_code,
            signal=signal,
            finished_at_ms=self._now_ms(),
            oom_killed=oom_killed,
            reason=reason,
        )
        self._states[key] = state
        if not any(other.running for other in self.containers(key[0])):
            self._machine.leave(key[0])
        return state

    async def stop(
        self,
        uid: str,
        grace_ms: int,  # noqa: ARG002 - the scenario says how long it takes
        *,
        pids: Callable[[], Iterable[int]] | None = None,  # noqa: ARG002 - no processes here
        kill_all: Callable[[], int] | None = None,
        containers: Iterable[str] | None = None,
    ) -> StopResult:
        chosen = None if containers is None else list(containers)
        if any(state.running for state in self.containers(uid)):
            takes_ms = annotations.read_duration_ms(self._plans[uid].pod.annotations, labels.SIM_GRACE)
            await asyncio.sleep((STOP_MS if takes_ms is None else takes_ms) / 1_000)
        for state in self.containers(uid):
            if state.running and (chosen is None or state.container in chosen):
                self._ended.put_nowait(self._end((uid, state.container), exit_code=_SIGTERM))
        if kill_all is not None:
            kill_all()
        return StopResult(self.containers(uid), killed=False, left=0)

    async def adopt(self) -> tuple[ContainerState, ...]:
        """What ended before is in the states; telling it again would end a restarted container."""
        while not self._ended.empty():
            self._ended.get_nowait()
        return self.containers()

    async def watch(self) -> AsyncIterator[ContainerState]:
        while True:
            yield await self._ended.get()

    async def exec(self, launch: PodLaunch, container: str, command: tuple[str, ...], timeout_ms: int) -> ProbeResult:  # noqa: ARG002
        return ProbeResult(ok=True, message="simulated")

    async def remove(self, uid: str) -> None:
        for key in [key for key in self._states if key[0] == uid]:
            del self._states[key]
        self._plans.pop(uid, None)

    def power_off(self) -> None:
        """The machine ends, and with it everything that would have happened on it."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def close(self) -> None:
        """The agent ends; what it ran does not."""
