"""The life of each pod on this node: one worker per pod, driven by its inbox, telling every change to its status."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cotenant_agent.adapters.manifests import PodPlan
from cotenant_agent.adapters.ports import Runtime
from cotenant_agent.app.enforce import Enforcer
from cotenant_agent.app.status import PodView, end_message, end_reason
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.core.admission import Refusal
from cotenant_agent.runtime import (
    ContainerProber,
    ContainerState,
    LaunchError,
    PodLaunch,
    ProbeState,
    RestartAt,
    Terminal,
    decide_restart,
)
from cotenant_common.contracts.messages.state import Binding, PodPhase, SpecRecord
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.clock import Clock
from cotenant_common.telemetry.logging import Logger

_FAILED_TO_START = 128
"""The status that stands for a container which could not be started, as the kubelet has it."""
_DEFAULT_GRACE_MS = 30_000
_GROUP_PAUSE_S = 0.05
_GROUP_ROUNDS = 100
_LEFT_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Stop:
    """`phase` is what the pod's status ends in: Deleted for a deletion or eviction, Failed for an emergency."""

    grace_ms: int
    reason: str
    message: str
    phase: PodPhase = "Deleted"


@dataclass(frozen=True, slots=True)
class Probed:
    container: str
    attempt: int
    state: ProbeState


Item = Stop | Probed | ContainerState


@dataclass(frozen=True, slots=True)
class Tools:
    """What every worker uses. `tell` takes each new view; `event` takes type, view, reason and message."""

    node: str
    runtime: Runtime
    enforcer: Enforcer
    clock: Clock
    log: Logger
    tell: Callable[[PodView], None]
    event: Callable[[str, PodView, str, str], None]


@dataclass(slots=True)
class PodWorker:
    """Starts, restarts and ends one pod. Everything that happens to it comes through `post`."""

    tools: Tools
    binding: Binding
    record: SpecRecord
    refusal: Refusal | None = None
    ordered: bool = False
    """An order to stop is on its way; there is no second one."""
    view: PodView = field(init=False)
    grace_ms: int = _DEFAULT_GRACE_MS
    """Of its manifest, once that was read."""
    _inbox: "asyncio.Queue[Item]" = field(default_factory=asyncio.Queue)
    _streaks: dict[str, int] = field(default_factory=dict)
    _due: dict[str, int] = field(default_factory=dict)
    _probers: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _ready: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.view = PodView(self.binding, "Pending")

    @property
    def uid(self) -> str:
        return self.binding.uid

    def post(self, item: Item) -> None:
        self._inbox.put_nowait(item)

    async def run(self) -> None:
        """Until the pod has ended for good. Cancelling leaves the pod running, to be adopted."""
        try:
            await self._live()
        finally:
            for task in self._probers.values():
                task.cancel()

    async def _live(self) -> None:
        if self.ordered and not self.tools.runtime.containers(self.uid):
            await self._end_unborn()
            return
        if self.refusal is not None:
            self._reject(self.refusal)
            return
        try:
            plan = self.tools.enforcer.ports.read_plan(self.record, self.tools.node)
        except LaunchError as error:
            where = f"spec.{error.field}" if error.field else "spec"
            self._reject(Refusal(ReasonCode.BIND_REJECTED, f"{where}: {error.reason}"))
            return
        self.grace_ms = plan.grace_ms
        if await self._begin(plan):
            launch = plan.launch(self.tools.enforcer.confinement(plan))
            while not self.view.terminal:
                await self._handle(plan, launch, await self._next())
        await self._clear_group()

    async def _end_unborn(self) -> None:
        """Deleted before it ran: the order is all there is to carry out."""
        item = await self._inbox.get()
        if isinstance(item, Stop):
            self._end(item.phase, item.reason, item.message)

    def _reject(self, refusal: Refusal) -> None:
        self._tell(phase="Pending", rejected=True, reason=refusal.reason.value, message=refusal.message)
        self.tools.event("pod.rejected", self.view, refusal.reason.value, refusal.message)

    async def _begin(self, plan: PodPlan) -> bool:
        """Group first, then processes in it. True when there is something to follow."""
        now_ms = self.tools.clock.now_ms()
        try:
            self.tools.enforcer.place(plan, self.binding.cpuset, now_ms)
        except CgroupError as error:
            self._reject(Refusal(ReasonCode.START_FAILED, str(error)))
            return False
        found = self.tools.runtime.containers(self.uid)
        if found:
            await self._adopt(plan, found)
            return True
        self._tell(phase="Starting", warnings=plan.warnings)
        await self._start(plan, plan.launch(self.tools.enforcer.confinement(plan)))
        return True

    async def _adopt(self, plan: PodPlan, found: tuple[ContainerState, ...]) -> None:
        started = min((s.started_at_ms for s in found if s.started_at_ms is not None), default=None)
        self._tell(
            phase="Running",
            containers=found,
            started_ms=started,
            warnings=plan.warnings,
            reason=ReasonCode.ADOPTED.value,
            message="taken over by a new agent",
        )
        launch = plan.launch(self.tools.enforcer.confinement(plan))
        for state in found:
            if state.running:
                self._watch_probes(plan, launch, state)
            else:
                self.post(state)
        if len(found) < len(launch.containers):
            # The agent before us died between two containers; the others are left alone.
            await self._start(plan, launch)
        self._tell_ready()

    async def _start(self, plan: PodPlan, launch: PodLaunch) -> None:
        try:
            states = await self.tools.runtime.start(launch)
        except LaunchError as error:
            self._start_failed(plan, error)
            return
        now_ms = self.tools.clock.now_ms()
        first = self.view.started_ms is None
        self._tell(
            phase="Running",
            containers=states,
            started_ms=self.view.started_ms or now_ms,
            reason=ReasonCode.STARTED.value,
            message=None,
        )
        if first:
            self.tools.event("pod.started", self.view, ReasonCode.STARTED.value, f"runs on {self.tools.node}")
        for state in states:
            if state.running and state.container not in self._ready:
                self._watch_probes(plan, launch, state)
        self._tell_ready()

    def _start_failed(self, plan: PodPlan, error: LaunchError) -> None:
        """A missing command may appear; try again as often as the restart policy allows."""
        now_ms = self.tools.clock.now_ms()
        message = f"{error.field}: {error.reason}"
        streak = self._streaks.get("", 0)
        decision = decide_restart(plan.restart, _FAILED_TO_START, streak=streak, ran_ms=None, finished_at_ms=now_ms)
        if isinstance(decision, Terminal):
            self._end("Failed", ReasonCode.START_FAILED.value, message)
            return
        self._streaks[""] = decision.streak
        self._due[""] = decision.at_ms
        again = f"{message}; next attempt in {decision.delay_ms} ms"
        self._tell(phase="Starting", reason=ReasonCode.START_FAILED.value, message=again)

    async def _next(self) -> Item | None:
        """The next thing that happened, or None when a restart is due."""
        if not self._due:
            return await self._inbox.get()
        left_s = (min(self._due.values()) - self.tools.clock.now_ms()) / 1_000
        if left_s <= 0 and self._inbox.empty():
            return None
        try:
            async with asyncio.timeout(max(left_s, 0)):
                return await self._inbox.get()
        except TimeoutError:
            return None

    async def _handle(self, plan: PodPlan, launch: PodLaunch, item: Item | None) -> None:
        if item is None:
            await self._restart_due(plan, launch)
        elif isinstance(item, Stop):
            await self._stop(item)
        elif isinstance(item, Probed):
            await self._probed(plan, item)
        else:
            self._ended(plan, item)

    async def _restart_due(self, plan: PodPlan, launch: PodLaunch) -> None:
        now_ms = self.tools.clock.now_ms()
        for name in [name for name, at_ms in self._due.items() if at_ms <= now_ms]:
            del self._due[name]
            if not name:
                await self._start(plan, launch)
                continue
            try:
                state = await self.tools.runtime.restart(launch, name)
            except LaunchError as error:
                self._start_failed(plan, error)
                continue
            self._watch_probes(plan, launch, state)
            waiting = {key: why for key, why in self.view.waiting.items() if key != name}
            self._tell(phase="Running", containers=self._states(), waiting=waiting, reason=None, message=None)
            self.tools.event("pod.restarted", self.view, ReasonCode.STARTED.value, f"container {name} runs again")
            self._tell_ready()

    def _ended(self, plan: PodPlan, state: ContainerState) -> None:
        states = self._states()
        if not any(found.container == state.container and found.attempt == state.attempt for found in states):
            return  # an attempt that was undone, because the pod did not start whole
        self._forget_probes(state.container)
        code = state.status_code
        finished = state.finished_at_ms or self.tools.clock.now_ms()
        decision = decide_restart(
            plan.restart,
            code,
            streak=self._streaks.get(state.container, state.attempt),
            ran_ms=state.ran_ms,
            finished_at_ms=finished,
        )
        if isinstance(decision, RestartAt):
            self._streaks[state.container] = decision.streak
            self._due[state.container] = decision.at_ms
            waiting = {**self.view.waiting, state.container: decision.reason}
            self._tell(
                containers=states,
                waiting=waiting,
                ready=False,
                reason=ReasonCode.CRASH_LOOP_BACK_OFF.value if code != 0 else end_reason(state).value,
                message=f"container {state.container} {decision.reason}",
            )
            return
        self._tell(containers=states)
        if not self._due and not any(found.running for found in states):
            self._end_by_containers(states)

    def _end_by_containers(self, states: tuple[ContainerState, ...]) -> None:
        failed = next((state for state in states if state.status_code != 0), None)
        reason = ReasonCode.COMPLETED if failed is None else end_reason(failed)
        code = states[0].status_code if failed is None else failed.status_code
        self._end("Succeeded" if failed is None else "Failed", reason.value, end_message(states), code)

    async def _stop(self, stop: Stop) -> None:
        self._due.clear()
        for name in list(self._probers):
            self._forget_probes(name)
        self._tell(ready=False, reason=stop.reason, message=f"stopping: {stop.message}")
        left = await self._stop_all(stop.grace_ms)
        while left:
            # Its room is not free and its files are not quiet before the last process is gone.
            self._tell(message=f"stopping: {stop.message}; {left} of its processes do not end, in the kernel as a rule")
            await asyncio.sleep(_LEFT_PAUSE_S)
            left = await self._stop_all(0)
        self._end(stop.phase, stop.reason, stop.message)

    async def _stop_all(self, grace_ms: int) -> int:
        """How many processes are left."""
        placed = self.tools.enforcer.pods.get(self.uid)
        tree = self.tools.enforcer.ports.tree
        if placed is None or tree is None:
            return (await self.tools.runtime.stop(self.uid, grace_ms)).left
        placed.leaving = True
        group = placed.group
        stopped = await self.tools.runtime.stop(
            self.uid, grace_ms, pids=lambda: tree.pids(group), kill_all=lambda: tree.kill(group)
        )
        return stopped.left

    async def _probed(self, plan: PodPlan, item: Probed) -> None:
        state = next((s for s in self._states() if s.container == item.container), None)
        if state is None or state.attempt != item.attempt or not state.running:
            return
        self._ready[item.container] = item.state.ready
        if item.state.restart is not None:
            self.tools.log.info("probe_ends_container", pod=self.view.binding.name, reason=item.state.restart)
            own_ms = plan.probes[item.container].restart_grace_ms(started=item.state.started)
            grace_ms = plan.grace_ms if own_ms is None else own_ms
            await self.tools.runtime.stop(self.uid, grace_ms, containers=[item.container])
        self._tell_ready()

    def _watch_probes(self, plan: PodPlan, launch: PodLaunch, state: ContainerState) -> None:
        self._forget_probes(state.container)
        probes = plan.probes[state.container]
        runtime = self.tools.runtime

        async def run_exec(command: tuple[str, ...], timeout_ms: int) -> Any:
            return await runtime.exec(launch, state.container, command, timeout_ms)

        prober = ContainerProber(
            probes,
            state.started_at_ms or self.tools.clock.now_ms(),
            run_exec=run_exec,
            now_ms=self.tools.clock.now_ms,
            on_change=lambda found: self.post(Probed(state.container, state.attempt, found)),
        )
        self._ready[state.container] = prober.state.ready
        if probes.readiness or probes.liveness or probes.startup:
            name = f"probes of {self.uid}/{state.container}"
            self._probers[state.container] = asyncio.create_task(prober.run(), name=name)

    def _forget_probes(self, container: str) -> None:
        self._ready.pop(container, None)
        task = self._probers.pop(container, None)
        if task is not None:
            task.cancel()

    def _tell_ready(self) -> None:
        states = self._states()
        ready = bool(states) and all(s.running and self._ready.get(s.container, False) for s in states)
        if ready is self.view.ready:
            return
        self._tell(ready=ready)
        if ready:
            self.tools.event("pod.ready", self.view, ReasonCode.STARTED.value, "every container is ready")

    def _states(self) -> tuple[ContainerState, ...]:
        return self.tools.runtime.containers(self.uid)

    def _end(self, phase: PodPhase, reason: str, message: str, exit_code: int | None = None) -> None:
        now_ms = self.tools.clock.now_ms()
        self._tell(
            phase=phase,
            ready=False,
            reason=reason,
            message=message,
            containers=self._states(),
            waiting={},
            finished_ms=now_ms,
            exit_code=exit_code,
        )
        self.tools.event("pod.finished", self.view, reason, message)

    def _tell(self, **fields: Any) -> None:
        before = self.view
        self.view = before.changed(**fields)
        if self.view != before:
            self.tools.tell(self.view)

    async def _clear_group(self) -> None:
        """An exiting process holds its group for a moment; a group that stays is found by the next audit."""
        for _ in range(_GROUP_ROUNDS):
            if self.tools.enforcer.remove(self.uid):
                return
            await asyncio.sleep(_GROUP_PAUSE_S)
        self.tools.log.warning("group_not_removed", uid=self.uid)
