"""Specs and pod states for tests of the core, and a gateway on the in-memory bus for tests of the whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from cotenant_common.bus.memory_bus import MemoryBus, MemoryServer
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding, Heartbeat, PodPhase, PodStatusRecord
from cotenant_common.contracts.subjects import Topic
from cotenant_common.model.ids import pod_uid
from cotenant_common.runtime import requests
from cotenant_common.testing.builders import node_inventory, pod_manifest
from cotenant_common.testing.context import memory_server, service_context
from cotenant_gateway.app.service import GatewayService
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core.records import Mark, PodState, Seen, Spec

M = TypeVar("M", bound=Message)


def pod_spec(name: str = "a", *, owner: str | None = None, uid: str | None = None, **fields: Any) -> Spec:
    kept = {key: fields.pop(key) for key in tuple(fields) if key in Spec.__dataclass_fields__ and key != "spec"}
    namespace = fields.get("namespace", "default")
    manifest = pod_manifest(name, **fields)
    spec = Spec("Pod", namespace, name, uid or str(pod_uid(namespace, name, 0, "t")), 0, manifest, owner=owner)
    return replace(spec, **kept)


def seen(spec: Spec, phase: str = "Running", *, node: str = "n1", ready: bool | None = None, **fields: Any) -> Seen:
    return Seen(spec.uid, node, phase, phase == "Running" if ready is None else ready, **fields)


def running(name: str = "a", *, node: str = "n1", ready: bool = True, **fields: Any) -> PodState:
    spec = pod_spec(name, **fields)
    return PodState(spec, seen(spec, node=node, ready=ready), node)


def pending(name: str = "a", **fields: Any) -> PodState:
    return PodState(pod_spec(name, **fields))


def ended(name: str = "a", phase: str = "Failed", *, noted_ms: int | None = None, **fields: Any) -> PodState:
    spec = pod_spec(name, terminal_ms=noted_ms, **fields)
    return PodState(spec, seen(spec, phase, finished_ms=noted_ms or 0), "n1")


def leaving(pod: PodState, **fields: Any) -> PodState:
    defaults: dict[str, Any] = {
        "at_ms": 0, "grace_ms": 1000, "reason": "NodeHot", "message": "m", "requested_by": "descheduler",
        "requeue": True, "kind": "move",
    }  # fmt: skip
    return replace(pod, spec=pod.spec.marked(Mark(**{**defaults, **fields})))


def controller(kind: str, name: str = "w", *, status: dict[str, Any] | None = None, **spec: Any) -> Spec:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never" if kind == "Job" else "Always",
            "containers": [{"name": "c", "command": ["x"]}],
        },
    }
    version = "batch/v1" if kind == "Job" else "apps/v1"
    manifest: dict[str, Any] = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }
    if status:
        manifest["status"] = status
    return Spec(kind, "default", name, f"uid-{name}", 0, manifest)


class Stage:
    """A gateway on an in-memory bus; the test plays scheduler and agents."""

    def __init__(self, server: MemoryServer, *, instance: str = "gateway-1", **settings: Any) -> None:
        self.server = server
        self.settings = GatewaySettings(**{"api_enabled": False, **settings})
        self.bus = server.connect("test")
        self.context = service_context(server, "gateway", instance=instance)
        self.service = GatewayService(self.context, self.settings)
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, lead: bool = True) -> "Stage":
        self._task = asyncio.create_task(self.service.run(), name="gateway")
        while not self.context.health.ready or (lead and self.service.leadership.writer is None):
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.05)
        return self

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.context.bus.close()

    async def crash(self) -> None:
        """The bus handle first, so that nothing can be cleaned up."""
        bus = self.context.bus
        assert isinstance(bus, MemoryBus)  # noqa: S101 - service_context makes no other
        bus.cut()
        await self.stop()

    async def settle(self, seconds: float = 0.5) -> None:
        await asyncio.sleep(seconds)

    async def apply(self, *manifests: dict[str, Any]) -> list[str]:
        """Actions of an apply that has to succeed."""
        planned = await self.service.operations.apply_data(manifests)
        if planned.faults:
            raise AssertionError([str(fault) for fault in planned.faults])
        return [item.action for item in planned.items]

    def spec(self, name: str, kind: str = "Pod", namespace: str | None = "default") -> Spec | None:
        return self.service.world.find_object(kind, namespace, name)

    def pod(self, name: str) -> Spec:
        found = self.spec(name)
        if found is None:
            raise AssertionError(f"there is no pod {name}")
        return found

    async def join(self, node: str, **fields: Any) -> None:
        bucket = await self.bus.bucket(buckets.NODES)
        await bucket.put(node, codec.encode(node_inventory(node, **fields)))
        await self.beat(node)

    async def beat(self, node: str) -> None:
        bucket = await self.bus.bucket(buckets.HEARTBEATS)
        message = Heartbeat(node=node, agent_id=f"agent-{node}", at_ms=self.context.clock.now_ms())
        await bucket.put(node, codec.encode(message), ttl_s=10)

    async def bind(self, name: str, node: str = "n1") -> Spec:
        spec = self.pod(name)
        binding = Binding(
            uid=spec.uid, namespace="default", name=name, node=node, attempt=1, epoch=1, spec_digest="", requests={},
            bound_ms=0,
        )  # fmt: skip
        await (await self.bus.bucket(buckets.BINDINGS)).put(f"{spec.uid}.{node}", codec.encode(binding))
        return spec

    async def report(self, spec: Spec, phase: PodPhase = "Running", node: str = "n1", **fields: Any) -> None:
        status = PodStatusRecord(
            uid=spec.uid, namespace="default", name=spec.name, node=node, phase=phase, ready=phase == "Running",
            **fields,
        )  # fmt: skip
        await (await self.bus.bucket(buckets.PODSTATUS)).put(f"{node}.{spec.uid}", codec.encode(status))

    async def run_pod(self, name: str, node: str = "n1") -> Spec:
        spec = await self.bind(name, node)
        await self.report(spec, node=node)
        await self.settle(0.1)
        return spec

    async def call(self, topic: Topic, message: Message, reply: type[M]) -> M:
        return await requests.call(self.bus, topic, message, reply)

    def events(self, *types: str) -> list[Event]:
        stored = self.server.events.replay(after_sequence=0, since_ms=None)
        found = [codec.decode(Event, received.data) for received in stored]
        return [event for event in found if not types or event.type in types]


@asynccontextmanager
async def stage(**settings: Any) -> AsyncIterator[Stage]:
    started = await Stage(memory_server(), **settings).start()
    try:
        yield started
    finally:
        await started.stop()


@asynccontextmanager
async def beating(on: Stage, *nodes: str) -> AsyncIterator[asyncio.Task[None]]:
    """The nodes join and beat until the block ends, or until the task is cancelled."""

    async def beat() -> None:
        while True:
            for node in nodes:
                await on.beat(node)
            await asyncio.sleep(3)

    for node in nodes:
        await on.join(node)
    task = asyncio.create_task(beat())
    await on.settle()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
