"""A node that is only its agent's messages: it registers, beats, reports, and answers bindings and deletions."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant.hollow.plan import FleetPlan
from cotenant.hollow.pod import HollowPod
from cotenant.hollow.report import signal_of, usage_of
from cotenant_agent.adapters.manifests import PodPlan, read_plan
from cotenant_agent.app.bindings import BindingFollower
from cotenant_agent.app.pod_events import SOURCE, status_key
from cotenant_agent.app.status import PodView, record_of
from cotenant_agent.core.admission import Refusal, refuse_capacity, refuse_digest
from cotenant_agent.runtime import LaunchError
from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding, Heartbeat, NodeInventory, PodStatusRecord, SpecRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.model import labels, resources
from cotenant_common.model.digest import spec_digest
from cotenant_common.model.ids import encode_token, object_key, spec_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.runtime.service import ServiceContext
from cotenant_simulator.core import annotations
from cotenant_simulator.core.annotations import AnnotationError

_RETRY_S: Final = 0.5
_HEARTBEAT_TTL_S: Final = 10


@dataclass(slots=True)
class Shared:
    """What the nodes of one process have together: a connection, the buckets, and one copy of the specs."""

    context: ServiceContext
    plan: FleetPlan
    nodes: Bucket
    heartbeats: Bucket
    statuses: Bucket
    bindings: Bucket
    specs: BucketMirror[SpecRecord]
    announcer: Announcer
    settled: dict[str, PodStatusRecord] = field(default_factory=dict)
    """What ended or was refused before this process began, by uid: not started again."""
    places: dict[str, "HollowNode"] = field(default_factory=dict)
    """Where a pod is bound, by uid: news of its spec concern that node alone."""

    @property
    def now_ms(self) -> int:
        return self.context.clock.now_ms()

    def record_of(self, binding: Binding) -> SpecRecord | None:
        record = self.specs.items.get(spec_key("Pod", binding.namespace, binding.name))
        return record if record is not None and record.uid == binding.uid else None


class HollowNode:
    def __init__(self, name: str, zone: str, shared: Shared) -> None:
        plan = shared.plan
        self.name = name
        self.pods: dict[str, HollowPod] = {}
        self.registered = False
        self._token = encode_token(name)
        self._zone = zone
        self._shared = shared
        self._allocatable = {
            resources.CPU: plan.cpu_milli,
            resources.MEMORY: plan.memory_bytes,
            resources.PODS: plan.pods_per_node,
        }
        self._agent_id = f"{name}-{shared.now_ms}"
        self._dirty: dict[str, PodView | None] = {}
        self._events: dict[str, list[str]] = {}
        self._changed = asyncio.Event()
        self._usage: NodeUsage | None = None
        """The last message, until something changes."""
        context = shared.context
        self._follower = BindingFollower(
            context.bus, shared.bindings, name, self.reconcile, plan.snapshot_interval_ms, context.log
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in (self._follower.run(), self._present(), self._report(), self._write_statuses()):
                group.create_task(loop, name=self.name)

    def held(self) -> list[str]:
        """Keys of the statuses that stand in the bucket, or may."""
        return [status_key(self.name, uid) for uid in {**self.pods, **self._dirty}]

    def close(self) -> None:
        for pod in self.pods.values():
            pod.close()

    # What it says of itself

    async def _present(self) -> None:
        while True:
            try:
                if not self.registered:
                    await self._register()
                    self.registered = True
                await self._beat()
            except BusClosedError:
                return
            except BusError as error:
                self._shared.context.log.warning("node_not_told", node=self.name, error=str(error))
            await asyncio.sleep(self._shared.plan.heartbeat_interval_ms / 1_000 if self.registered else _RETRY_S)

    async def _register(self) -> None:
        now_ms = self._shared.now_ms
        inventory = NodeInventory(
            node=self.name,
            boot_id="hollow",
            agent_id=self._agent_id,
            started_ms=now_ms,
            capacity=dict(self._allocatable),
            allocatable=dict(self._allocatable),
            labels={
                labels.HOSTNAME: self.name,
                labels.OS: "linux",
                labels.TOPOLOGY_ZONE: self._zone,
                labels.HOLLOW: "true",
            },
            kernel="hollow",
            runtime="hollow",
            capabilities={"level": "hollow"},
        )
        revision = await self._shared.nodes.put(self._token, codec.encode(inventory))
        await self._shared.announcer.announce(
            Event(
                id=event_id(buckets.NODES, self._token, revision),
                type="node.registered",
                at_ms=now_ms,
                source=SOURCE,
                object=object_key("Node", None, self.name),
                message=f"{self._allocatable[resources.CPU]}m of cpu, hollow",
            )
        )

    async def _beat(self) -> None:
        beat = Heartbeat(node=self.name, agent_id=self._agent_id, at_ms=self._shared.now_ms)
        await self._shared.heartbeats.put(self._token, codec.encode(beat), ttl_s=_HEARTBEAT_TTL_S)

    async def _report(self) -> None:
        shared, bus = self._shared, self._shared.context.bus
        while True:
            await asyncio.sleep(shared.plan.usage_interval_ms / 1_000)
            now_ms, pods = shared.now_ms, list(self.pods.values())
            if self._usage is None:
                self._usage = usage_of(self.name, now_ms, shared.plan, pods)
            else:
                self._usage = self._usage.model_copy(update={"at_ms": now_ms})
            signal = signal_of(self.name, now_ms, shared.plan, pods)
            try:
                await requests.publish(bus, subjects.NODE_USAGE, self._usage, node=self.name)
                if signal is not None:
                    await requests.publish(bus, subjects.NODE_SIGNAL, signal, node=self.name)
            except BusClosedError:
                return
            except BusError as error:
                shared.context.log.warning("usage_not_published", node=self.name, error=str(error))

    # What is asked of it

    def reconcile(self, uid: str) -> None:
        """Compare what should be with what is, and take the one next step."""
        binding, pod = self._follower.items.get(uid), self.pods.get(uid)
        record = None if binding is None else self._shared.record_of(binding)
        if binding is None:
            if self._shared.places.get(uid) is self:
                del self._shared.places[uid]
            self._forget(uid)
            return
        self._shared.places[uid] = self
        if record is None:
            # Either its spec went, or it has not reached us yet; the mirror calls again when it does.
            if pod is not None:
                self._forget(uid)
        elif pod is None or pod.binding.attempt < binding.attempt:
            self._begin(binding, record)
        elif record.deletion is not None:
            pod.stop(record.deletion)

    def _begin(self, binding: Binding, record: SpecRecord) -> None:
        known = self._shared.settled.get(binding.uid)
        if known is not None and known.attempt >= binding.attempt and (known.terminal or record.deletion is None):
            return
        pod = HollowPod(binding, lambda: self._shared.now_ms, self._tell)
        others = [one.binding.requests for uid, one in self.pods.items() if uid != binding.uid and one.holds_room]
        self.pods[binding.uid] = pod
        if record.deletion is not None:
            pod.stop(record.deletion)
            return
        found = self._judge(binding, record, others)
        if isinstance(found, Refusal):
            pod.refuse(found)
        else:
            pod.start(found)

    def _judge(self, binding: Binding, record: SpecRecord, others: list[dict[str, int]]) -> PodPlan | Refusal:
        refusal = refuse_digest(binding.spec_digest, spec_digest(record.manifest.get("spec") or {}))
        refusal = refusal or refuse_capacity(binding.requests, others, self._allocatable)
        if refusal is not None:
            return refusal
        try:
            plan = read_plan(record, self.name)
            annotations.check(plan.pod.annotations)
        except LaunchError as error:
            return Refusal(ReasonCode.BIND_REJECTED, f"spec.{error.field}: {error.reason}")
        except AnnotationError as error:
            return Refusal(ReasonCode.BIND_REJECTED, str(error))
        return plan

    def _forget(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            pod.close()
        self._usage = None
        self._events.pop(uid, None)
        self._dirty[uid] = None
        self._changed.set()

    # What it says of its pods

    def _tell(self, view: PodView, event: str | None) -> None:
        uid = view.binding.uid
        self._usage = None
        self._dirty[uid] = view
        if event is not None:
            self._events.setdefault(uid, []).append(event)
        self._changed.set()

    async def _write_statuses(self) -> None:
        """The newest status of each pod, one write at a time, as an agent does it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._dirty:
                uid, view = next(iter(self._dirty.items()))
                try:
                    await self._write_status(uid, view)
                except BusClosedError:
                    return
                except BusError as error:
                    self._shared.context.log.warning("status_not_written", uid=uid, error=str(error))
                    await asyncio.sleep(_RETRY_S)
                    continue
                if self._dirty[uid] is view:
                    del self._dirty[uid]

    async def _write_status(self, uid: str, view: PodView | None) -> None:
        key = status_key(self.name, uid)
        if view is None:
            await self._shared.statuses.delete(key)
            return
        kinds = self._events.pop(uid, [])
        revision = await self._shared.statuses.put(key, codec.encode(record_of(view)))
        for kind in kinds:
            await self._shared.announcer.announce(
                self._event(kind, view, event_id(buckets.PODSTATUS, key, revision, kind))
            )

    def _event(self, kind: str, view: PodView, identifier: str) -> Event:
        binding = view.binding
        data: Mapping[str, object] = {"node": self.name, "attempt": binding.attempt, "phase": view.phase}
        return Event(
            id=identifier,
            type=kind,
            at_ms=self._shared.now_ms,
            source=SOURCE,
            object=object_key("Pod", binding.namespace, binding.name),
            uid=binding.uid,
            reason=view.reason,
            message=view.message or f"on {self.name}",
            data=dict(data),
        )
