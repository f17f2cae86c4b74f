"""The scheduler service: keeps the engine in step with the buckets, and carries its decisions out."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError, BusUnavailableError, Entry, Subscription
from cotenant_common.contracts.buckets import BINDINGS, LEASES, PODSCHED
from cotenant_common.contracts.messages.commands import ExplainReply, ExplainRequest, WhyNotReply, WhyNotRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import PodSchedRecord, PodStatusRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.contracts.subjects import NODE_USAGE, SCHEDULER_EXPLAIN, SCHEDULER_WHY_NOT
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import wait_for_snapshots
from cotenant_common.runtime.service import ServiceContext
from cotenant_scheduler.adapters import answers
from cotenant_scheduler.adapters.records import Records, unschedulable_events
from cotenant_scheduler.adapters.state import ClusterState, Listeners
from cotenant_scheduler.adapters.stories import Stories
from cotenant_scheduler.app.auditing import Auditing
from cotenant_scheduler.app.binding import BindingDesk
from cotenant_scheduler.app.deciding import Deciding
from cotenant_scheduler.app.entries import read
from cotenant_scheduler.app.leader import Leader
from cotenant_scheduler.app.preempting import Preempting
from cotenant_scheduler.app.profiles import Profiles
from cotenant_scheduler.app.rejections import Rejections
from cotenant_scheduler.config import SchedulerSettings
from cotenant_scheduler.core.engine import Engine

_RETRY_S: Final = 0.5
_DEPOSED: Final = "this scheduler has just lost its lease; ask again"


class SchedulerService:
    """Every replica keeps the mirrors; only the one that holds the lease has an engine and decides."""

    def __init__(self, context: ServiceContext, settings: SchedulerSettings) -> None:
        self._context = context
        self._settings = settings
        self._profiles = Profiles(settings, context.log)
        windows_ms = (1000 * settings.usage_window_s, 1000 * settings.percentile_window_s)
        self._state = ClusterState(self._profiles.make_engine, self._profiles.of_settings(), windows_ms)
        self._stories = Stories()
        self._work = asyncio.Event()
        self._leading = False

    async def run(self) -> None:
        podsched, discovery, usage = await self._open()
        leader = self._leader = self._make_leader(podsched, discovery)
        self._desk = BindingDesk(leader)
        self._rejections = Rejections(leader)
        self._preempting = Preempting(leader)
        self._deciding = Deciding(leader, self._desk, self._preempting, self._profiles)
        self._auditing = Auditing(leader, self._desk)
        self._state.listeners = self._listeners()
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._state.mirrors():
                    group.create_task(mirror.run(), name="scheduler mirror")
                group.create_task(self._lead(), name="scheduler leads")
        finally:
            await usage.stop()
            await leader.announcer.close()
            await leader.reasons.close()

    async def _open(self) -> tuple[Bucket, Bucket, Subscription]:
        """A bus that is away when the service starts is waited for, like one that goes away later."""
        bus = self._context.bus
        while True:
            try:
                await self._state.open(bus)
                self._bindings = await bus.bucket(BINDINGS)
                podsched, discovery = await bus.bucket(PODSCHED), await bus.bucket(LEASES)
                return podsched, discovery, await requests.subscribe(bus, NODE_USAGE, self._on_usage)
            except BusClosedError:
                raise
            except BusUnavailableError as error:
                self._context.log.warning("bus_awaited", error=str(error))
                await asyncio.sleep(_RETRY_S)

    def _make_leader(self, podsched: Bucket, discovery: Bucket) -> Leader:
        context, ttl_s = self._context, self._settings.lease_ttl_s
        reasons = Announcer(context.bus, podsched, "scheduler", context.clock)
        return Leader(
            context,
            self._settings,
            self._state,
            self._stories,
            self._bindings,
            Lease(self._bindings, "scheduler", context.instance, context.clock, ttl_s, discovery),
            Announcer(context.bus, self._bindings, "scheduler", context.clock),
            reasons,
            Records(podsched, reasons, context.clock, context.instance, context.log),
            self._work,
        )

    def _listeners(self) -> Listeners:
        return Listeners(
            self._work.set,
            self._rejections.add,
            self._desk.unbind,
            self._on_forgotten,
            self._on_started,
            self._on_configured,
        )

    def debug_state(self) -> dict[str, Any]:
        engine = self._state.engine
        if engine is None:
            return {"leading": False}
        return {
            "leading": self._leading,
            "epoch": self._leader.lease.epoch,
            "nodes": len(engine.cluster.rows),
            "placed": len(engine.ledger.charges()) - len(engine.room.holds),
            "waiting": engine.waiting_count(),
            "in_flight": len(self._state.in_flight),
            "bind_backlog": self._desk.backlog,
            "repaired": self._auditing.repaired,
            "nominated": len(engine.room.nominations),
            "quotas": engine.used_by_pods(),
        }

    async def _lead(self) -> None:
        await self._wait_for_snapshots()
        leader = self._leader
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.lease.run(on_lost=leader.deposed.set), name="scheduler lease")
            while True:
                await leader.lease.wait_held()
                if await self._take_over():
                    await self._reign()
                else:
                    await asyncio.sleep(_RETRY_S)

    async def _wait_for_snapshots(self) -> None:
        """Half a cluster looks like a cluster with half of its pods gone."""
        context = self._context
        await wait_for_snapshots(self._state.mirrors(), context.health, context.log, self._settings.snapshot_timeout_s)
        self._profiles.choose_kernel(len(self._state.nodes.items))
        context.health.set_ready(True, "standby")

    async def _take_over(self) -> bool:
        """Read all that the last leader wrote, build the engine from it, tell what it may not have told."""
        state, leader = self._state, self._leader
        leader.deposed.clear()
        self._profiles.wanted = None
        try:
            await state.read_ahead(self._profiles.read(state))
            last = await self._bindings.last_revision()
            if not await state.bindings.wait_revision(last):
                self._context.log.warning("take_over_waits", applied=state.bindings.revision, wanted=last)
                return False
            leader.records.load(state.records.items)
            engine = state.rebuild(self._profiles.read(state))
            told = await leader.announcer.catch_up(self._desk.bound_again)
            told += await leader.reasons.catch_up(self._unschedulable_again)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("take_over_waits", error=str(error))
            return False
        self._forget_settled(engine)
        self._desk.restore_lost()
        self._context.log.info(
            "leading",
            epoch=leader.lease.epoch,
            nodes=len(engine.cluster.rows),
            placed=len(engine.ledger.charges()),
            waiting=engine.waiting_count(),
            events_repeated=told,
        )
        return True

    def _forget_settled(self, engine: Engine) -> None:
        records = self._leader.records
        for uid in records.uids():
            if engine.waiting(uid) is None and self._state.rejection(uid) is None:
                records.forget(uid)

    async def _reign(self) -> None:
        """Decide until deposed; the tasks below share the engine and end together."""
        serving = await self._serve()
        leader = self._leader
        self._leading = True
        self._work.set()
        self._context.health.set_ready(True, "leading")
        loops = (
            self._deciding.run(),
            self._desk.run(),
            leader.records.run(),
            self._rejections.run(),
            self._preempting.run(),
            self._auditing.run(),
        )
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(loop, name="scheduler reigns") for loop in loops]
        deposed: asyncio.Task[Any] = asyncio.create_task(leader.deposed.wait(), name="scheduler deposed")
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
            self._desk.clear()
            self._rejections.clear()
            self._preempting.clear()
            self._state.stand_by()
            self._context.health.forget("decide")

    async def _serve(self) -> list[Subscription]:
        bus = self._context.bus
        return [
            await requests.serve(bus, SCHEDULER_EXPLAIN, self._on_explain, queue="scheduler"),
            await requests.serve(bus, SCHEDULER_WHY_NOT, self._on_why_not, queue="scheduler"),
        ]

    def _unschedulable_again(self, entry: Entry) -> list[Event]:
        return unschedulable_events(read(PodSchedRecord, entry), entry.key, entry.revision, self._context.instance)

    def _on_forgotten(self, uid: str) -> None:
        if self._leading:
            self._leader.records.forget(uid)

    async def _on_usage(self, sample: NodeUsage) -> None:
        self._state.add_usage(sample)

    def _on_configured(self) -> None:
        if self._profiles.look_again(self._state):
            self._work.set()

    def _on_started(self, status: PodStatusRecord) -> None:
        self._stories.tell(status.uid, status.started_ms or 0, "started", node=status.node)

    async def _on_explain(self, request: ExplainRequest) -> ExplainReply:
        engine = self._state.engine
        if engine is None:
            return ExplainReply(found=False, state="Unknown", message=_DEPOSED)
        now_ms = self._context.clock.now_ms()
        return answers.explain(self._state, engine, self._leader.records, self._stories, request, now_ms)

    async def _on_why_not(self, request: WhyNotRequest) -> WhyNotReply:
        engine = self._state.engine
        if engine is None:
            return WhyNotReply(fits=False, message=_DEPOSED)
        return answers.why_not(self._state, engine, request, self._context.clock.now_ms())
