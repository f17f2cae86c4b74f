"""The scheduler service: keeps the engine in step with the buckets, and carries its decisions out."""

import asyncio
from contextlib import suppress
from typing import Any, Final, TypeVar

from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError, Entry, Subscription
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, LEASES, PODSCHED, is_bookkeeping
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.commands import ExplainReply, ExplainRequest, WhyNotReply, WhyNotRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding, PodSchedRecord, PodStatusRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.contracts.subjects import NODE_USAGE, SCHEDULER_EXPLAIN, SCHEDULER_WHY_NOT
from cotenant_common.model.ids import object_key
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import wait_for_snapshots
from cotenant_common.runtime.service import ServiceContext
from cotenant_scheduler.adapters import answers
from cotenant_scheduler.adapters.binder import Bind, Binder, DeposedError, Unbind
from cotenant_scheduler.adapters.configuration import ConfigurationError, load_aware_arguments
from cotenant_scheduler.adapters.facts import binding_of
from cotenant_scheduler.adapters.records import Records, unschedulable_events
from cotenant_scheduler.adapters.state import ClusterState, Listeners, Rejection
from cotenant_scheduler.adapters.stories import Stories
from cotenant_scheduler.config import SchedulerSettings
from cotenant_scheduler.core.engine import Decision, Engine, Placement
from cotenant_scheduler.core.estimate import LoadPolicy
from cotenant_scheduler.core.plugins.registry import default_plugins

M = TypeVar("M", bound=Message)

_SLICE_S: Final = 0.008
_SLICE_DECISIONS: Final = 256
_IDLE_S: Final = 20.0
_RETRY_S: Final = 0.5
_MOST_BACK_OFF_S: Final = 300
_DEPOSED: Final = "this scheduler has just lost its lease; ask again"


class SchedulerService:
    """Every replica keeps the mirrors; only the one that holds the lease has an engine and decides."""

    def __init__(self, context: ServiceContext, settings: SchedulerSettings) -> None:
        self._context = context
        self._settings = settings
        windows_ms = (1000 * settings.usage_window_s, 1000 * settings.percentile_window_s)
        self._state = ClusterState(self._make_engine, settings.load_aware_scheduling.policy(), windows_ms)
        self._stories = Stories()
        self._work = asyncio.Event()
        self._deposed = asyncio.Event()
        self._rejections: dict[tuple[str, int], Rejection] = {}
        self._rejected = asyncio.Event()
        self._wanted_policy: LoadPolicy | None = None
        self._leading = False
        self._repaired = 0
        self._measure(context)

    def _measure(self, context: ServiceContext) -> None:
        metrics = context.metrics
        self._decision_seconds = metrics.histogram("cotenant_scheduler_decision_seconds", "One attempt of one pod")
        self._bind_seconds = metrics.histogram("cotenant_scheduler_bind_seconds", "Pod created to binding stored")
        self._bound_total = metrics.counter("cotenant_scheduler_bindings_total", "Bindings stored")
        self._refused_total = metrics.counter("cotenant_scheduler_refusals_total", "Attempts that ended in a refusal")
        self._repaired_total = metrics.counter("cotenant_scheduler_repairs_total", "Charges an audit corrected")
        self._waiting = metrics.gauge("cotenant_scheduler_waiting_pods", "Pods without a node")

    def _make_engine(self, policy: LoadPolicy) -> Engine:
        return Engine(default_plugins(), policy, seed=self._settings.seed)

    async def run(self) -> None:
        context, bus = self._context, self._context.bus
        await self._state.open(bus)
        self._bindings, podsched = await bus.bucket(BINDINGS), await bus.bucket(PODSCHED)
        discovery = await bus.bucket(LEASES)
        self._lease = Lease(
            self._bindings, "scheduler", context.instance, context.clock, self._settings.lease_ttl_s, discovery
        )
        self._announcer = Announcer(bus, self._bindings, "scheduler", context.clock)
        self._reasons = Announcer(bus, podsched, "scheduler", context.clock)
        self._records = Records(podsched, self._reasons, context.clock, context.instance, context.log)
        self._binder = self._make_binder(self._bindings)
        self._state.listeners = Listeners(
            self._work.set,
            self._on_rejection,
            self._on_orphan,
            self._on_forgotten,
            self._on_started,
            self._on_configured,
        )
        usage = await requests.subscribe(bus, NODE_USAGE, self._on_usage)
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._state.mirrors():
                    group.create_task(mirror.run(), name="scheduler mirror")
                group.create_task(self._lead(), name="scheduler leads")
        finally:
            await usage.stop()
            await self._announcer.close()
            await self._reasons.close()

    def _make_binder(self, bucket: Bucket) -> Binder:
        return Binder(bucket, self._lease, self._context.log, self._settings.bind_batch, self._on_bound, self._on_lost)

    def debug_state(self) -> dict[str, Any]:
        engine = self._state.engine
        if engine is None:
            return {"leading": False}
        return {
            "leading": self._leading,
            "epoch": self._lease.epoch,
            "nodes": len(engine.cluster.rows),
            "placed": len(engine.ledger.charges()),
            "waiting": engine.waiting_count(),
            "in_flight": len(self._state.in_flight),
            "bind_backlog": self._binder.backlog,
            "repaired": self._repaired,
            "quotas": {name: engine.quotas.used(name) for name in engine.quotas.quotas()},
        }

    async def _lead(self) -> None:
        await self._wait_for_snapshots()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run(on_lost=self._deposed.set), name="scheduler lease")
            while True:
                await self._lease.wait_held()
                if await self._take_over():
                    await self._reign()
                else:
                    await asyncio.sleep(_RETRY_S)

    async def _wait_for_snapshots(self) -> None:
        """Half a cluster looks like a cluster with half of its pods gone."""
        context = self._context
        await wait_for_snapshots(self._state.mirrors(), context.health, context.log, self._settings.snapshot_timeout_s)
        context.health.set_ready(True, "standby")

    async def _take_over(self) -> bool:
        """Read all that the last leader wrote, build the engine from it, tell what it may not have told."""
        state = self._state
        self._deposed.clear()
        self._wanted_policy = None
        try:
            last = await self._bindings.last_revision()
            if not await state.bindings.wait_revision(last):
                self._context.log.warning("take_over_waits", applied=state.bindings.revision, wanted=last)
                return False
            self._records.load(state.records.items)
            engine = state.rebuild(self._read_policy())
            told = await self._announcer.catch_up(self._bound_again)
            told += await self._reasons.catch_up(self._unschedulable_again)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("take_over_waits", error=str(error))
            return False
        self._forget_settled(engine)
        self._restore_lost_bindings()
        self._context.log.info(
            "leading",
            epoch=self._lease.epoch,
            nodes=len(engine.cluster.rows),
            placed=len(engine.ledger.charges()),
            waiting=engine.waiting_count(),
            events_repeated=told,
        )
        return True

    def _forget_settled(self, engine: Engine) -> None:
        for uid in self._records.uids():
            if engine.waiting(uid) is None and self._state.rejection(uid) is None:
                self._records.forget(uid)

    def _restore_lost_bindings(self) -> None:
        """A store that was made anew lost them, their pods run on: the next start must find where."""
        for _, binding in sorted(self._state.bindings.orphans.items()):
            if self._state.record(binding.uid) is not None:
                self._binder.put(Bind(binding))

    async def _reign(self) -> None:
        """Decide until deposed; the tasks below share the engine and end together."""
        serving = await self._serve()
        self._leading = True
        self._work.set()
        self._context.health.set_ready(True, "leading")
        loops = (self._decide(), self._bind(), self._records.run(), self._record_rejections(), self._audit())
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(loop, name="scheduler reigns") for loop in loops]
        deposed: asyncio.Task[Any] = asyncio.create_task(self._deposed.wait(), name="scheduler deposed")
        try:
            await asyncio.wait([deposed, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            self._leading = False
            for task in (*tasks, deposed):
                task.cancel()
            await asyncio.wait([deposed, *tasks])
            for each in serving:
                with suppress(BusError):
                    await each.stop()
            self._binder.clear()
            self._rejections.clear()
            self._state.stand_by()
            self._context.health.forget("decide")

    async def _serve(self) -> list[Subscription]:
        bus = self._context.bus
        return [
            await requests.serve(bus, SCHEDULER_EXPLAIN, self._on_explain, queue="scheduler"),
            await requests.serve(bus, SCHEDULER_WHY_NOT, self._on_why_not, queue="scheduler"),
        ]

    async def _decide(self) -> None:
        while self._lease.held:
            self._context.health.beat("decide")
            engine = self._engine_to_ask()
            try:
                busy = engine is not None and self._slice(engine)
            except Exception:
                # The pod at fault left the queue when its turn came: it waits for a change, the others go on.
                self._context.log.exception("decision_failed")
                busy = True
            if busy:
                await asyncio.sleep(0)
            else:
                await self._rest()
        self._deposed.set()

    def _engine_to_ask(self) -> Engine | None:
        """None while the bus lags, and while a policy is about to change: what is on its way is written first."""
        if self._wanted_policy is not None and not self._state.in_flight:
            self._state.rebuild(self._wanted_policy)
            self._wanted_policy = None
        lags = self._binder.backlog >= self._settings.bind_backlog
        return None if lags or self._wanted_policy is not None else self._state.engine

    def _slice(self, engine: Engine) -> bool:
        """A few milliseconds of decisions, so that leases, mirrors and answers get their turn; False: all is said."""
        clock, began = self._context.clock, self._context.clock.monotonic()
        before = began
        for _ in range(_SLICE_DECISIONS):
            decision = engine.decide(clock.now_ms())
            if decision is None:
                return False
            after = clock.monotonic()
            self._decision_seconds.record(after - before)
            self._carry_out(decision)
            before = after
            if after - began >= _SLICE_S or self._binder.backlog >= self._settings.bind_backlog:
                break
        return True

    async def _rest(self) -> None:
        """Until something happens, or until the engine has something to say about time having passed."""
        engine = self._state.engine
        due_ms = engine.next_wake_ms() if engine is not None else None
        self._waiting.set(engine.waiting_count() if engine is not None else 0)
        delay_s = _IDLE_S if due_ms is None else max(0.001, (due_ms - self._context.clock.now_ms()) / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(delay_s, _IDLE_S)):
                await self._work.wait()
        self._work.clear()

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Placement):
            self._place(decision)
            return
        verdict = decision.verdict
        self._refused_total.add(1, {"reason": verdict.reason.value})
        self._records.refused(decision.pods, verdict)
        now_ms = self._context.clock.now_ms()
        for pod in decision.pods:
            codes = sorted(code.value for code in verdict.codes)
            self._stories.tell(pod.uid, now_ms, "refused", reason=verdict.reason.value, codes=codes)

    def _place(self, placement: Placement) -> None:
        uid, state = placement.pod.uid, self._state
        earlier = state.binding(uid)
        attempt = 1 if earlier is None else earlier.attempt + 1
        story = self._stories.of(uid)
        story.scores, story.feasible = dict(placement.scores), placement.feasible
        state.in_flight[uid] = None
        self._binder.put(Bind(binding_of(placement, attempt, self._lease.epoch), state.binding_key(uid)))

    async def _bind(self) -> None:
        try:
            await self._binder.run()
        except DeposedError as error:
            self._context.log.warning("deposed", error=str(error))
            self._deposed.set()

    async def _on_bound(self, bind: Bind, revision: int) -> None:
        binding = bind.binding
        now_ms = self._context.clock.now_ms()
        self._bound_total.add(1)
        if binding.queued_ms is not None:
            self._bind_seconds.record(max(0, now_ms - binding.queued_ms) / 1000)
        self._records.forget(binding.uid)
        self._stories.tell(binding.uid, now_ms, "bound", node=binding.node, attempt=binding.attempt)
        self._context.log.info(
            "pod_bound",
            pod=f"{binding.namespace}/{binding.name}",
            uid=binding.uid,
            node=binding.node,
            attempt=binding.attempt,
            score=binding.score,
        )
        await self._announcer.announce(bound_event(binding, bind.key, revision, self._context.instance))
        self._work.set()

    async def _on_lost(self, bind: Bind) -> None:
        """Another binding of this pod exists: believe the bucket, not the assumption."""
        with suppress(BusError):
            await self._state.bindings.wait_revision(await self._bindings.last_revision())
        self._state.in_flight.pop(bind.binding.uid, None)
        self._state.refresh_pod(bind.binding.uid)

    def _bound_again(self, entry: Entry) -> list[Event]:
        binding = _read(Binding, entry)
        return [] if binding is None else [bound_event(binding, entry.key, entry.revision, self._context.instance)]

    def _unschedulable_again(self, entry: Entry) -> list[Event]:
        record = _read(PodSchedRecord, entry)
        return unschedulable_events(record, entry.key, entry.revision, self._context.instance)

    def _on_orphan(self, key: str, revision: int | None) -> None:
        self._binder.put(Unbind(key, revision))

    def _on_forgotten(self, uid: str) -> None:
        if self._leading:
            self._records.forget(uid)

    def _on_rejection(self, rejection: Rejection) -> None:
        self._rejections.setdefault((rejection.binding.uid, rejection.binding.attempt), rejection)
        self._rejected.set()

    async def _record_rejections(self) -> None:
        """A refused bind is tried again only after the refusal is on record."""
        while True:
            while not self._rejections:
                self._rejected.clear()
                await self._rejected.wait()
            batch, self._rejections = self._rejections, {}
            for rejection in batch.values():
                self._record_rejection(rejection)
            for rejection in batch.values():
                await self._records.flushed(rejection.binding.uid)
                attempt = rejection.binding.attempt
                back_off_s = min(_MOST_BACK_OFF_S, self._settings.rejected_back_off_s << min(attempt - 1, 10))
                self._state.requeue(rejection, self._context.clock.now_ms() + 1000 * back_off_s)

    def _record_rejection(self, rejection: Rejection) -> None:
        """Once per attempt, though a restart finds the same refusal again."""
        binding = rejection.binding
        pod = self._state.request(binding.uid)
        if pod is None or self._records.knows_rejection(binding.uid, binding.node, rejection.reason):
            return
        self._records.rejected(pod, binding.node, rejection.reason, rejection.message)
        now_ms = self._context.clock.now_ms()
        self._stories.tell(binding.uid, now_ms, "rejected", node=binding.node, reason=rejection.reason)
        self._context.log.warning(
            "bind_rejected", pod=pod.key, uid=pod.uid, node=binding.node, reason=rejection.reason, why=rejection.message
        )

    async def _on_usage(self, sample: NodeUsage) -> None:
        self._state.add_usage(sample)

    def _read_policy(self) -> LoadPolicy:
        """The ConfigMap's arguments where there is one, the settings' otherwise; a bad one changes nothing."""
        try:
            arguments = load_aware_arguments(self._state.all_specs())
        except ConfigurationError as error:
            self._context.log.warning("configuration_ignored", error=str(error))
            return self._state.policy
        return (arguments or self._settings.load_aware_scheduling).policy()

    def _on_configured(self) -> None:
        policy = self._read_policy()
        if policy != self._state.policy:
            self._context.log.info("policy_changed", load_aware=repr(policy))
            self._wanted_policy = policy
            self._work.set()

    def _on_started(self, status: PodStatusRecord) -> None:
        self._stories.tell(status.uid, status.started_ms or 0, "started", node=status.node)

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(self._settings.audit_interval_s)
            self._restore_lost_bindings()
            drifts = self._state.audit()
            for drift in drifts:
                self._context.log.warning("ledger_repaired", uid=drift.uid, drift=drift.message)
            if drifts:
                self._repaired += len(drifts)
                self._repaired_total.add(len(drifts))
                await self._announcer.announce(self._repair_event([drift.message for drift in drifts]))

    def _repair_event(self, messages: list[str]) -> Event:
        """No write is behind a repair, so its id names the leader and its count of repairs."""
        now_ms = self._context.clock.now_ms()
        return Event(
            id=f"ledger/scheduler/{self._lease.epoch}/{self._repaired}",
            type="ledger.repaired",
            at_ms=now_ms,
            source=self._context.instance,
            object=object_key("Service", None, "scheduler"),
            message=f"{len(messages)} charges differed from their bindings: {messages[0]}",
            data={"repairs": messages[:100], "total": self._repaired},
        )

    async def _on_explain(self, request: ExplainRequest) -> ExplainReply:
        engine = self._state.engine
        if engine is None:
            return ExplainReply(found=False, state="Unknown", message=_DEPOSED)
        now_ms = self._context.clock.now_ms()
        return answers.explain(self._state, engine, self._records, self._stories, request, now_ms)

    async def _on_why_not(self, request: WhyNotRequest) -> WhyNotReply:
        engine = self._state.engine
        if engine is None:
            return WhyNotReply(fits=False, message=_DEPOSED)
        return answers.why_not(self._state, engine, request, self._context.clock.now_ms())


def _read(model: type[M], entry: Entry) -> M | None:
    """None for a deletion, and for bytes that the mirror has counted and logged already."""
    if entry.value is None or is_bookkeeping(entry.key):
        return None
    try:
        return codec.decode(model, entry.value)
    except codec.DecodeError:
        return None


def bound_event(binding: Binding, key: str, revision: int, source: str) -> Event:
    return Event(
        id=event_id(BINDINGS, key, revision),
        type="pod.bound",
        at_ms=binding.bound_ms,
        source=source,
        object=object_key("Pod", binding.namespace, binding.name),
        uid=binding.uid,
        message=f"bound to {binding.node}",
        data={
            "node": binding.node,
            "attempt": binding.attempt,
            "score": binding.score,
            "quota": binding.quota,
            "requests": binding.requests,
        },
    )
