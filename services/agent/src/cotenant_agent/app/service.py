"""The agent of one node: says what the node has, runs what is bound to it, measures, and enforces."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cotenant_agent.adapters.ports import NodePorts
from cotenant_agent.app.emergencies import Emergencies
from cotenant_agent.app.enforce import Enforcer
from cotenant_agent.app.manager import PodManager
from cotenant_agent.app.placed import Placed
from cotenant_agent.app.pod_events import SOURCE
from cotenant_agent.app.telemetry import signal_message, usage_message
from cotenant_agent.app.ticks import Tick
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.cpuset import format_cpuset
from cotenant_agent.core.evict import Allowance, Victim
from cotenant_agent.core.policy import read_policy
from cotenant_agent.core.transitions import Change, Watched, observe
from cotenant_agent.core.usage import BE, NodeCounters, measure
from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.buckets import BucketSpec
from cotenant_common.contracts.messages.commands import LogsReply, LogsRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Heartbeat, NodeInventory, PolicyRecord
from cotenant_common.contracts.messages.telemetry import AppLatency, NodeUsage
from cotenant_common.model.ids import encode_token, object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.runtime.service import ServiceContext

T = TypeVar("T")

_RETRY_S = 0.5
_AUDIT_S = 30.0
_EMERGENCY_GRACE_MS = 1_000
_THROTTLED_RATIO = 0.05
_BEGIN_AFTER = 3
_END_AFTER = 10
_MAX_LOG_BYTES = 262_144
_MAX_UNTOLD = 1_000


class AgentService:
    """Enforcement never waits for the bus: it runs in a loop of its own, on what is known."""

    def __init__(self, context: ServiceContext, settings: AgentSettings, ports: NodePorts) -> None:
        self._context = context
        self._settings = settings
        self._ports = ports
        self._enforcer = Enforcer(ports, settings)
        self._allocatable = {
            **ports.facts.capacity,
            CPU: ports.facts.capacity[CPU] - settings.reserved_cpu_milli,
            MEMORY: ports.facts.capacity[MEMORY] - settings.reserved_memory_bytes,
        }
        self._pods = PodManager(context, settings, self._enforcer, self._allocatable)
        self._started_ms = context.clock.now_ms()
        self._agent_id = f"{settings.node}-{self._started_ms}"
        self._announcer: Announcer | None = None
        self._events = 0
        self._suppressed = Watched()
        self._interfered = Watched()
        self._measured_us = 0
        self._adopted = False
        self._registered = False
        self._policies: BucketMirror[PolicyRecord] | None = None
        self._last_usage: Tick | None = None
        self._last_message: NodeUsage | None = None
        self._watches = asyncio.Event()
        """Set while a pod with a target is here."""
        self._emergencies = Emergencies(
            context.bus,
            context.clock,
            context.log,
            settings.node,
            self._agent_id,
            Allowance(settings.emergency_allowance, settings.emergency_allowance, settings.emergency_cool_down_ms),
            self._remove_now,
        )
        metrics = context.metrics
        self._capped = metrics.counter("cotenant_agent_be_capped_ticks_total", "Ticks in which BE was capped")
        self._knobs = metrics.gauge("cotenant_agent_knob_results", "Knob writes so far, by outcome")
        self._cost = metrics.gauge("cotenant_agent_cpu_milli", "Cpu that measuring takes")

    async def run(self) -> None:
        self._context.health.set_ready(False, "reading the buckets")
        self._enforcer.prepare(self._context.clock.now_ms())
        await self._ports.runtime.adopt()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._enforce(), name="enforce")
                await self._open()
                self._group.create_task(self._pods.run(self._on_synced), name="pods")
                self._group.create_task(self._present(), name="present")
                self._group.create_task(self._signals(), name="signals")
                self._group.create_task(self._audit(), name="audit")
        finally:
            # Pods, groups and limits stay as they are: the next agent takes them over.
            if self._announcer is not None:
                await self._announcer.close(1.0)
            self._ports.runtime.close()
            self._ports.sampler.close()

    def debug_state(self) -> dict[str, Any]:
        return {
            "node": self._settings.node,
            "pods": {uid: worker.view.phase for uid, worker in self._pods.workers.items()},
            "synced": self._pods.synced,
            "idle_class": self._enforcer.idle_class,
            "policy": str(self._enforcer.policy),
            "frozen": self._enforcer.frozen,
            "guard": str(self._enforcer.guard_state),
            "knobs": dict(self._enforcer.knob_counts()),
            "emergencies": {"used": self._emergencies.used, "left": self._emergencies.allowance.left},
        }

    async def _open(self) -> None:
        node = self._settings.node
        specs = (buckets.SPECS, buckets.BINDINGS, buckets.PODSTATUS, buckets.NODES, buckets.HEARTBEATS)
        opened = {spec.name: await self._bucket(spec) for spec in specs}
        self._nodes = opened[buckets.NODES.name]
        own = BucketMirror(self._nodes, NodeInventory, encode_token(node), on_reset=self._on_inventory_lost)
        self._group.create_task(own.run(), name="own inventory")
        self._heartbeats = opened[buckets.HEARTBEATS.name]
        status = opened[buckets.PODSTATUS.name]
        self._announcer = Announcer(self._context.bus, status, f"{SOURCE}-{encode_token(node)}", self._context.clock)
        self._policies = BucketMirror(
            await self._bucket(buckets.POLICIES), PolicyRecord, encode_token(node), self._on_policy
        )
        self._group.create_task(self._policies.run(), name="policies")
        self._pods.open(opened, self._announcer)
        bus = self._context.bus
        await self._opened("logs", lambda: requests.serve(bus, subjects.AGENT_LOGS, self._on_logs, node=node))
        await self._opened("latencies", lambda: requests.subscribe(bus, subjects.APP_LATENCY, self._on_latency))

    async def _bucket(self, spec: BucketSpec) -> Bucket:
        return await self._opened(f"bucket {spec.bucket}", lambda: self._context.bus.bucket(spec))

    async def _opened(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """However long it takes: giving up would end enforcement too."""
        while True:
            try:
                return await attempt()
            except BusClosedError:
                raise
            except BusError as error:
                self._context.health.set_ready(False, f"{what} cannot be opened: {error}")
                await asyncio.sleep(_RETRY_S)

    def _on_inventory_lost(self) -> None:
        """The bucket was made anew without us."""
        self._registered = False

    def _on_synced(self) -> None:
        self._adopted = True
        self._context.health.set_ready(True)

    async def _present(self) -> None:
        """Say what the node has, once for each store; and that it lives, for ever."""
        heartbeat_s = self._settings.heartbeat_interval_ms / 1_000
        while True:
            try:
                if not self._registered:
                    await self._register()
                    self._registered = True
                await self._beat()
                await self._emergencies.report()
            except BusClosedError:
                return
            except BusError as error:
                self._context.log.warning("node_not_told", error=str(error))
            await asyncio.sleep(heartbeat_s if self._registered else _RETRY_S)

    async def _register(self) -> None:
        facts, settings = self._ports.facts, self._settings
        inventory = NodeInventory(
            node=settings.node,
            boot_id=facts.boot_id,
            agent_id=self._agent_id,
            started_ms=self._started_ms,
            capacity=dict(facts.capacity),
            allocatable=dict(self._allocatable),
            labels={**facts.labels, **settings.labels},
            cpus=format_cpuset(cpu.cpu for cpu in facts.cpus),
            cpu_model=facts.cpu_model,
            kernel=facts.kernel,
            runtime=facts.runtime,
            idle_class=self._enforcer.idle_class,
            capabilities=dict(facts.capabilities),
        )
        key = encode_token(settings.node)
        revision = await self._nodes.put(key, codec.encode(inventory))
        identifier = event_id(buckets.NODES, key, revision)
        message = f"{self._allocatable[CPU]}m of cpu, {self._allocatable[MEMORY]} bytes of memory"
        await self._announce("node.registered", None, message, {"idle_class": inventory.idle_class}, identifier)

    async def _beat(self) -> None:
        beat = Heartbeat(node=self._settings.node, agent_id=self._agent_id, at_ms=self._context.clock.now_ms())
        await self._heartbeats.put(
            encode_token(self._settings.node), codec.encode(beat), ttl_s=self._settings.heartbeat_ttl_s
        )

    def _on_policy(self, _key: str, _old: PolicyRecord | None, new: PolicyRecord | None, _revision: int) -> None:
        """A policy that disappears leaves the last one in force; a new world is no order to let go."""
        if new is None:
            return
        policy = read_policy(
            new.slo,
            idle_class=self._enforcer.idle_class,
            observe=new.observe,
            frozen=new.frozen,
            observe_namespaces=new.observe_namespaces,
        )
        now_ms = self._context.clock.now_ms()
        self._enforcer.set_policy(policy, now_ms)
        if self._ports.freeze is not None:
            self._ports.freeze.remember(new.frozen, now_ms)

    async def _enforce(self) -> None:
        interval_s = self._settings.usage_interval_ms / 1_000
        due = self._context.clock.monotonic() + interval_s
        while True:
            await asyncio.sleep(max(0.0, due - self._context.clock.monotonic()))
            # A late tick is not made up for: two ticks in a row would measure next to nothing.
            due = max(due + interval_s, self._context.clock.monotonic())
            self._context.health.beat("enforce", within_s=30 + 3 * interval_s)
            try:
                await self._tick()
            except BusClosedError:
                return
            except Exception:
                self._context.log.exception("tick_failed")

    async def _tick(self) -> None:
        now_ms = self._context.clock.now_ms()
        if self._adopted and self._policies is not None and self._policies.ready:
            self._enforcer.take_over()
        self._look_for_freeze()
        tick = self._enforcer.tick(now_ms)
        repeated, self._last_usage = tick is self._last_usage, tick
        self._count(tick, repeated=repeated)
        if self._targets():
            self._watches.set()
        victim = self._emergencies.due(tick.memory, now_ms)
        if victim is not None and tick.memory is not None:
            frozen = self._enforcer.frozen is not None
            asking = self._emergencies.evict(self._enforcer.pods[victim.uid], victim, tick.memory, frozen=frozen)
            self._group.create_task(asking, name="emergency")
        await self._tell_transitions(tick)
        cost_us = self._ports.sampler.cost_us
        spent_us, self._measured_us = cost_us - self._measured_us, cost_us
        interval_ms = tick.usage.interval_ms
        agent_milli = spent_us // interval_ms if interval_ms > 0 else None
        if repeated and self._last_message is not None:
            message = self._last_message.model_copy(update={"at_ms": now_ms, "agent_cpu_milli": agent_milli})
        else:
            message = usage_message(self._settings.node, now_ms, tick, self._enforcer.pods, agent_milli)
        self._last_message = message
        try:
            await requests.publish(self._context.bus, subjects.NODE_USAGE, message, node=self._settings.node)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("usage_not_published", error=str(error))

    def _look_for_freeze(self) -> None:
        """By hand on this node; or, until the policy can be read, what the cluster said to the agent before us."""
        store = self._ports.freeze
        if store is None:
            return
        unread = self._policies is None or not self._policies.ready
        self._enforcer.freeze_locally(store.local() or (store.cluster() if unread else None))

    def _count(self, tick: Tick, *, repeated: bool) -> None:
        source = tick.limit.source
        if tick.be_limit_milli is not None and source is not None:
            self._capped.add(1, {"source": source.value})
        if not repeated:
            for outcome, count in self._enforcer.knob_counts().items():
                self._knobs.set(count, {"outcome": outcome})
        self._cost.set(self._ports.sampler.cost_us / 1_000)

    async def _tell_transitions(self, tick: Tick) -> None:
        be = tick.usage.groups.get(BE)
        ratio = None if be is None else be.throttled_ratio
        throttled = self._suppressed.on if ratio is None else ratio >= _THROTTLED_RATIO
        self._suppressed, change = observe(self._suppressed, throttled, _BEGIN_AFTER, _END_AFTER)
        if change is not Change.NONE:
            began = change is Change.BEGAN
            reason = tick.limit.reason if began else ReasonCode.RELEASED
            message = tick.limit.message if began else "BE is no longer throttled"
            data = {"limit_milli": tick.be_limit_milli, "usage_milli": None if be is None else be.cpu_milli}
            await self._announce("node.suppressed" if began else "node.released", reason, message, data)
        guard = tick.guard
        self._interfered, change = observe(self._interfered, guard.cap_milli is not None, 1, 1)
        if change is Change.BEGAN:
            evidence = {"cap_milli": guard.cap_milli, "pod": guard.pod}
            await self._announce("interference.detected", ReasonCode.LATENCY_GUARD, guard.message, evidence)
        elif change is Change.ENDED:
            await self._announce("interference.cleared", ReasonCode.RELEASED, "the guard holds nothing back", {})

    async def _announce(
        self,
        kind: str,
        reason: ReasonCode | None,
        message: str,
        data: dict[str, Any],
        identifier: str | None = None,
    ) -> None:
        # A full queue makes its callers wait, and enforcement must not wait for the bus.
        if self._announcer is None or self._announcer.pending > _MAX_UNTOLD:
            return
        self._events += 1
        await self._announcer.announce(
            Event(
                id=identifier or f"{self._agent_id}/{self._events}",
                type=kind,
                at_ms=self._context.clock.now_ms(),
                source=SOURCE,
                object=object_key("Node", None, self._settings.node),
                reason=None if reason is None else reason.value,
                message=message,
                data=data,
            )
        )

    def _remove_now(self, placed: Placed, victim: Victim) -> None:
        self._pods.stop_now(placed.uid, _EMERGENCY_GRACE_MS, victim.message)
        self._group.create_task(
            self._announce("emergency.used", victim.reason, victim.message, {"pod": placed.plan.pod.key}),
            name="emergency event",
        )

    async def _signals(self) -> None:
        interval_s = self._settings.signal_interval_ms / 1_000
        before: NodeCounters | None = None
        while True:
            # Most nodes run no pod with a target, and would wake five times a second for nothing.
            await self._watches.wait()
            await asyncio.sleep(interval_s)
            try:
                before = await self._signal(before)
            except BusClosedError:
                return
            except BusError:
                self._context.log.debug("signal_not_published")
            except Exception:
                self._context.log.exception("signal_failed")

    async def _signal(self, before: NodeCounters | None) -> NodeCounters | None:
        """The sample that the next signal is measured against; None while nobody has a target."""
        watched = self._watched()
        if not watched:
            self._watches.clear()
            return None
        now = self._ports.sampler.sample_pods(watched)
        if before is not None:
            usage, node = measure(before, now), self._settings.node
            now_ms = self._context.clock.now_ms()
            message = signal_message(node, now_ms, usage.interval_ms, usage.pods, self._enforcer.pods)
            await requests.publish(self._context.bus, subjects.NODE_SIGNAL, message, node=node)
        return now

    def _watched(self) -> list[str]:
        """Pods with a target, and the busiest best-effort pods beside them."""
        pods = self._enforcer.pods
        targets = self._targets()
        if not targets or self._last_usage is None:
            return targets
        used = self._last_usage.usage.pods
        suspects = sorted(
            (uid for uid, placed in pods.items() if placed.best_effort and uid in used),
            key=lambda uid: -(used[uid].cpu_milli or 0),
        )
        return [*targets, *suspects[: self._settings.suspects]]

    def _targets(self) -> list[str]:
        return [uid for uid, placed in self._enforcer.pods.items() if placed.plan.target is not None]

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(_AUDIT_S)
            try:
                self._pods.audit()
            except Exception:
                self._context.log.exception("audit_failed")

    async def _on_latency(self, message: AppLatency) -> None:
        now_ms = self._context.clock.now_ms()
        self._enforcer.take_latency(message.namespace, message.pod, message.p50_ms, message.p99_ms, now_ms)

    async def _on_logs(self, request: LogsRequest) -> LogsReply:
        states = self._ports.runtime.containers(request.uid)
        names = [state.container for state in states]
        container = request.container or next(iter(names), "")
        if not names:
            return LogsReply(found=False, message="no container of this pod was started here, so there is no log")
        if container not in names:
            return LogsReply(found=False, message=f"no container {container!r}; the pod has {', '.join(names)}")
        page = self._ports.logs.read(
            request.uid,
            container,
            after=request.after,
            tail_lines=request.tail_lines,
            limit_bytes=min(request.limit_bytes, _MAX_LOG_BYTES),
        )
        running = any(state.running for state in states if state.container == container)
        if page is None:
            return LogsReply(found=True, running=running, message="nothing was written yet")
        return LogsReply(found=True, text=page.text, cursor=page.cursor, running=running)
