"""All pods of the node: bindings and specs in, a worker for each, their statuses and events out."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from cotenant_agent.app.bindings import BindingFollower
from cotenant_agent.app.enforce import Enforcer
from cotenant_agent.app.pod_events import events_of, pod_event, status_key
from cotenant_agent.app.pods import PodWorker, Stop, Tools
from cotenant_agent.app.status import PodView, record_of
from cotenant_agent.app.survivors import Survivors
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.admission import Refusal, refuse_capacity, refuse_digest
from cotenant_agent.runtime import ContainerState, LaunchError
from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError, Entry
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding, PodStatusRecord, SpecRecord
from cotenant_common.model.digest import spec_digest
from cotenant_common.model.ids import encode_token, spec_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.mirror import BucketMirror, MirrorNotReadyError
from cotenant_common.runtime.service import ServiceContext

_RETRY_S = 0.5
_RESTART_WORKER_S = 5.0
_ORPHAN_GRACE_MS = 30_000


class PodManager:
    """Knows what should run and what does. Before everything has been read it starts nothing and ends nothing."""

    def __init__(
        self, context: ServiceContext, settings: AgentSettings, enforcer: Enforcer, allocatable: Mapping[str, int]
    ) -> None:
        self.workers: dict[str, PodWorker] = {}
        self.synced = False
        self._context = context
        self._settings = settings
        self._enforcer = enforcer
        self._runtime = enforcer.ports.runtime
        self._allocatable = allocatable
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._settled: dict[str, int] = {}
        """Binding attempts that ended or were refused, by uid: never started again."""
        self._ended_unborn: set[str] = set()
        """Refused pods whose deletion was answered."""
        self._dirty: dict[str, PodView | None] = {}
        """What to write, by uid: the newest view, or None for a status that goes. One writer keeps the order."""
        self._untold: dict[str, list[tuple[str, str, str]]] = {}
        self._changed = asyncio.Event()
        self._survivors = Survivors(settings.node, enforcer.ports.specs)
        self._tools = Tools(
            settings.node,
            self._runtime,
            enforcer,
            context.clock,
            context.log,
            self._tell,
            self._tell_event,
        )

    def open(self, bucket_of: Mapping[str, Bucket], announcer: Announcer) -> None:
        node, token = self._settings.node, encode_token(self._settings.node)
        self._announcer = announcer
        self._bucket = bucket_of[buckets.PODSTATUS.name]
        self.specs = BucketMirror(
            bucket_of[buckets.SPECS.name], SpecRecord, "Pod.>", self._on_spec, on_reset=self._tell_all
        )
        self.statuses = BucketMirror(self._bucket, PodStatusRecord, f"{token}.*", on_reset=self._tell_all)
        self.bindings = BindingFollower(
            self._context.bus,
            bucket_of[buckets.BINDINGS.name],
            node,
            self.reconcile,
            self._settings.snapshot_interval_ms,
            self._context.log,
        )

    async def run(self, on_synced: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as self._group:
            for loop in (self.specs.run(), self.statuses.run(), self.bindings.run(), self._flush()):
                self._group.create_task(loop, name="pods")
            self._group.create_task(self._watch_containers(), name="containers")
            await self._synchronize()
            on_synced()

    async def _synchronize(self) -> None:
        """A full rebuild, then a comparison with what runs."""
        for mirror in (self.specs, self.statuses):
            await self._complete(mirror)
        await self.bindings.ready.wait()
        for key, status in self.statuses.items.items():
            if status.terminal or status.rejected:
                self._settled[key.partition(".")[2]] = status.attempt
        await self._catch_up()
        self.synced = True
        for uid in list(self.bindings.items):
            self.reconcile(uid)
        held = sorted({state.uid for state in self._runtime.containers()})
        told = [key.partition(".")[2] for key in self.statuses.items]
        for uid in dict.fromkeys([*held, *told]):
            if uid not in self.bindings.items:
                # Side by side: each may use up its grace period.
                self._group.create_task(self._settle_orphan(uid), name=f"orphan {uid}")
        await asyncio.sleep(0)  # every pod that was taken over is in its place now

    async def _catch_up(self) -> None:
        while True:
            try:
                await self._announcer.catch_up(self._untold_events, f"{encode_token(self._settings.node)}.*")
            except BusClosedError:
                raise
            except BusError as error:
                self._context.log.warning("events_not_caught_up", error=str(error))
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _complete(self, mirror: BucketMirror[Any]) -> None:
        """Waits as long as it takes: ending would end enforcement too."""
        while not mirror.ready:
            try:
                await mirror.wait_ready()
            except MirrorNotReadyError as error:
                self._context.health.set_ready(False, str(error))

    def audit(self) -> None:
        """Groups that outlived their pods: kernel memory that nobody would give back otherwise."""
        if not self.synced:
            return
        for uid in [uid for uid in self._enforcer.pods if uid not in self._tasks]:
            self._enforcer.remove(uid)
        for group in self._enforcer.stray_groups():
            self._context.log.info("stray_group_removed", group=group)
            self._enforcer.remove_group(group)

    async def _settle_orphan(self, uid: str) -> None:
        """It runs here and nothing binds it here. A store that never heard of it is a new world, not a deletion."""
        if not self._runtime.containers(uid):
            await self._forget(uid)
            return
        told = self.statuses.items.get(status_key(self._settings.node, uid))
        if told is None or told.survivor is not None:
            await self._tell_survivor(uid)
        else:
            await self._remove_orphan(uid)

    async def _tell_survivor(self, uid: str) -> None:
        status = self._survivors.found(uid)
        self._context.log.warning("pod_of_another_store", uid=uid, action="left running", known=status is not None)
        if status is None:
            return
        key = spec_key("Pod", status.namespace, status.name)
        unwanted = status.survivor is not None and status.survivor.deletion is not None
        if unwanted or self._survivors.superseded(key, self.specs.items.get(key)) is not None:
            await self._remove_orphan(uid)
            return
        while uid not in self.bindings.items:
            try:
                await self._bucket.put(status_key(self._settings.node, uid), codec.encode(status))
            except BusClosedError:
                return
            except BusError as error:
                self._context.log.warning("survivor_not_told", uid=uid, error=str(error))
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _remove_orphan(self, uid: str) -> None:
        self._context.log.warning("orphan_removed", uid=uid)
        group = self._enforcer.group_holding(uid)
        tree = self._enforcer.ports.tree
        if tree is not None and group is not None:
            await self._runtime.stop(
                uid, _ORPHAN_GRACE_MS, pids=lambda: tree.pids(group), kill_all=lambda: tree.kill(group)
            )
        else:
            await self._runtime.stop(uid, _ORPHAN_GRACE_MS)
        await self._forget(uid)

    def record_of(self, binding: Binding) -> SpecRecord | None:
        """The bound incarnation; None when the name belongs to another by now, or to nobody."""
        record = self.specs.items.get(spec_key("Pod", binding.namespace, binding.name))
        return record if record is not None and record.uid == binding.uid else None

    def reconcile(self, uid: str) -> None:
        """Compare what should be with what is, and take the one next step."""
        if not self.synced:
            return
        binding = self.bindings.items.get(uid)
        worker = self.workers.get(uid)
        if worker is not None and uid in self._tasks:
            self._steer(worker, binding)
        elif binding is None:
            self._group.create_task(self._forget(uid), name=f"forget {uid}")
        elif self._settled.get(uid, -1) < binding.attempt:
            self._begin(binding)
        else:
            self._answer_deletion(binding)

    def _answer_deletion(self, binding: Binding) -> None:
        """A refused pod that is deleted still owes its terminal status: the gateway waits for it."""
        record = self.record_of(binding)
        if record is None or record.deletion is None or self._has_ended(binding.uid):
            return
        deletion = record.deletion
        view = PodView(binding, "Deleted", reason=deletion.reason, message=deletion.message)
        self._ended_unborn.add(binding.uid)
        self._tell(view)
        self._tell_event("pod.finished", view, deletion.reason, deletion.message)

    def _has_ended(self, uid: str) -> bool:
        """By our own account first: the bucket's copy of it comes back later."""
        worker = self.workers.get(uid)
        status = self.statuses.items.get(status_key(self._settings.node, uid))
        told = uid in self._ended_unborn or (worker is not None and worker.view.terminal)
        return told or (status is not None and status.terminal)

    def _steer(self, worker: PodWorker, binding: Binding | None) -> None:
        """A pod in hand: only an order to stop can change its course; a second one can only hurry it."""
        record = None if binding is None else self.record_of(binding)
        if record is not None and record.deletion is None:
            return
        if worker.ordered:
            if record is not None and record.deletion is not None and record.deletion.grace_ms == 0:
                self._enforcer.kill(worker.uid)
            return
        worker.ordered = True
        worker.post(_order(worker, binding, record))

    def _begin(self, binding: Binding) -> None:
        record = self.record_of(binding)
        if record is None:
            return  # its spec has not reached us yet; the mirror calls again when it does
        self._survivors.bound(record.uid)
        self._survivors.keep(record)
        worker = PodWorker(self._tools, binding, record, self._refusal(binding, record))
        self.workers[binding.uid] = worker
        if record.deletion is not None:
            worker.ordered = True
            worker.post(_order(worker, binding, record))
        self._tasks[binding.uid] = self._group.create_task(self._work(worker), name=f"pod {binding.uid}")

    def _refusal(self, binding: Binding, record: SpecRecord) -> Refusal | None:
        """What already runs is never refused: its room is taken, and stopping it is not the node's to decide."""
        if self._runtime.containers(binding.uid):
            return None
        digest = refuse_digest(binding.spec_digest, spec_digest(record.manifest.get("spec") or {}))
        if digest is not None:
            return digest
        others = [
            worker.binding.requests
            for uid, worker in self.workers.items()
            if uid != binding.uid and uid in self._tasks and not worker.view.rejected and not worker.view.terminal
        ]
        return refuse_capacity(binding.requests, others, self._allocatable)

    async def _work(self, worker: PodWorker) -> None:
        uid = worker.uid
        try:
            await worker.run()
            self._settled[uid] = worker.binding.attempt
        except Exception:
            self._context.log.exception("pod_worker_failed", uid=uid)
            await asyncio.sleep(_RESTART_WORKER_S)
        finally:
            del self._tasks[uid]
        self._after(uid)

    def _after(self, uid: str) -> None:
        """The worker is done; what changed while it finished is looked at now."""
        binding = self.bindings.items.get(uid)
        if binding is None:
            self._group.create_task(self._forget(uid), name=f"forget {uid}")
        elif self._settled.get(uid, -1) < binding.attempt:
            self._begin(binding)
        elif self.record_of(binding) is None:
            self._group.create_task(self._forget(uid), name=f"forget {uid}")
        else:
            self._answer_deletion(binding)

    async def _forget(self, uid: str) -> None:
        """Nothing binds or wants it any more: its logs, its status and our memory of it go."""
        if uid in self._tasks:
            return
        try:
            await self._runtime.remove(uid)
        except LaunchError as error:
            # Still alive: not forgotten, and judged again by the next agent.
            self._context.log.warning("pod_not_removed", uid=uid, error=str(error))
            return
        if uid in self._tasks:
            return  # bound again meanwhile
        self.workers.pop(uid, None)
        self._untold.pop(uid, None)
        self._ended_unborn.discard(uid)
        self._survivors.forget(uid)
        if uid not in self.bindings.items:
            self._settled.pop(uid, None)
        self._dirty[uid] = None
        self._changed.set()

    def _on_spec(self, key: str, old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        """A name may pass from one incarnation to the next in one write, so both are looked at."""
        if (uid := self._survivors.superseded(key, new)) is not None and self.synced:
            self._survivors.bound(uid)
            self._group.create_task(self._remove_orphan(uid), name=f"orphan {uid}")
        for uid in dict.fromkeys(record.uid for record in (old, new) if record is not None):
            if uid not in self.bindings.items or not self.synced:
                continue
            if new is None and uid not in self._tasks:
                self._group.create_task(self._forget(uid), name=f"forget {uid}")
            else:
                self.reconcile(uid)

    async def _watch_containers(self) -> None:
        async for state in self._runtime.watch():
            self._container_ended(state)

    def _container_ended(self, state: ContainerState) -> None:
        worker = self.workers.get(state.uid)
        if worker is not None and state.uid in self._tasks:
            worker.post(state)

    def stop_now(self, uid: str, grace_ms: int, message: str) -> None:
        """An emergency: the pod fails, and the gate hears of it as soon as it listens."""
        worker = self.workers.get(uid)
        if worker is not None and not worker.ordered:
            worker.ordered = True
            worker.post(Stop(grace_ms, ReasonCode.NODE_PRESSURE.value, message, phase="Failed"))

    def _untold_events(self, entry: Entry) -> list[Event]:
        return events_of(entry, self._settings.node, self._context.clock.now_ms())

    def _tell(self, view: PodView) -> None:
        self._dirty[view.binding.uid] = view
        self._changed.set()

    def _tell_all(self) -> None:
        """The bucket was made anew, and what it no longer holds is still so."""
        for worker in self.workers.values():
            self._tell(worker.view)

    def _tell_event(self, kind: str, view: PodView, reason: str, message: str) -> None:
        self._untold.setdefault(view.binding.uid, []).append((kind, reason, message))
        if self._dirty.get(view.binding.uid) is None:
            self._dirty[view.binding.uid] = view
        self._changed.set()

    async def _flush(self) -> None:
        """The newest status of each pod, once it can be written; its events follow and carry the revision."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._dirty:
                uid, view = next(iter(self._dirty.items()))
                # What happens during the write belongs to the view that follows, not to this revision.
                told = list(self._untold.get(uid, ()))
                try:
                    revision = await self._write(uid, view)
                except BusClosedError:
                    return
                except BusError as error:
                    self._context.log.warning("status_not_written", uid=uid, error=str(error))
                    await asyncio.sleep(_RETRY_S)
                    continue
                if self._dirty[uid] is view:
                    del self._dirty[uid]
                if view is not None:
                    await self._announce(view, revision, told)

    async def _write(self, uid: str, view: PodView | None) -> int:
        key = status_key(self._settings.node, uid)
        if view is not None:
            lost = self.specs.orphans.get(spec_key("Pod", view.binding.namespace, view.binding.name))
            survivor = lost if lost is not None and lost.uid == uid and not view.terminal else None
            record = record_of(view).model_copy(update={"survivor": survivor})
            return await self._bucket.put(key, codec.encode(record))
        await self._bucket.delete(key)
        return 0

    async def _announce(self, view: PodView, revision: int, told: list[tuple[str, str, str]]) -> None:
        uid = view.binding.uid
        for kind, reason, message in told:
            at_ms = self._context.clock.now_ms()
            await self._announcer.announce(pod_event(kind, record_of(view), revision, at_ms, reason, message))
        left = self._untold.get(uid, [])[len(told) :]
        if left:
            self._untold[uid] = left
        else:
            self._untold.pop(uid, None)


def _order(worker: PodWorker, binding: Binding | None, record: SpecRecord | None) -> Stop:
    if record is not None and record.deletion is not None:
        deletion = record.deletion
        return Stop(deletion.grace_ms, deletion.reason, deletion.message)
    gone = "its binding was removed" if binding is None else "its spec was removed"
    return Stop(worker.grace_ms, ReasonCode.DELETED.value, gone)
