"""Many hollow nodes on one connection, and their way out."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final

from cotenant.hollow.node import HollowNode, Shared
from cotenant.hollow.plan import FleetPlan
from cotenant_common.bus.protocol import Bucket, BusError, Entry, SnapshotDone
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import PodStatusRecord, SpecRecord
from cotenant_common.model.ids import decode_token, encode_token
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.runtime.service import ServiceContext

_TOGETHER: Final = 64
_ATTEMPTS: Final = 20
_RETRY_S: Final = 0.25


class HollowFleet:
    """``run`` until cancelled; ``leave`` afterwards takes everything back that the fleet wrote."""

    def __init__(self, context: ServiceContext, plan: FleetPlan) -> None:
        self.nodes: dict[str, HollowNode] = {}
        self._context = context
        self._plan = plan
        self._shared: Shared | None = None

    @property
    def registered(self) -> int:
        return sum(node.registered for node in self.nodes.values())

    @property
    def pods_running(self) -> int:
        return sum(pod.running for node in self.nodes.values() for pod in node.pods.values())

    async def run(self) -> None:
        shared = self._shared = await self._open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(shared.specs.run(), name="specs")
                await shared.specs.wait_ready()
                await self._read_settled(shared)
                for index, name in enumerate(self._plan.names()):
                    node = self.nodes[name] = HollowNode(name, f"zone-{index % self._plan.zones}", shared)
                    group.create_task(node.run(), name=name)
                    await asyncio.sleep(1 / self._plan.rate)
        finally:
            for node in self.nodes.values():
                node.close()
            await shared.announcer.close(1.0)

    async def _open(self) -> Shared:
        bus = self._context.bus
        specs = (buckets.SPECS, buckets.NODES, buckets.HEARTBEATS, buckets.PODSTATUS, buckets.BINDINGS)
        opened = {spec.name: await bus.bucket(spec) for spec in specs}
        statuses = opened[buckets.PODSTATUS.name]
        return Shared(
            self._context,
            self._plan,
            nodes=opened[buckets.NODES.name],
            heartbeats=opened[buckets.HEARTBEATS.name],
            statuses=statuses,
            bindings=opened[buckets.BINDINGS.name],
            specs=BucketMirror(opened[buckets.SPECS.name], SpecRecord, "Pod.>", self._on_spec),
            announcer=Announcer(bus, statuses, f"agent-{self._plan.prefix}", self._context.clock),
        )

    async def _read_settled(self, shared: Shared) -> None:
        """What an earlier fleet of these names brought to its end stays ended."""
        names = dict.fromkeys(self._plan.names())
        async with aclosing(shared.statuses.watch("*.*")) as watch:
            async for item in watch:
                if isinstance(item, SnapshotDone):
                    return
                if not isinstance(item, Entry) or item.value is None or buckets.is_bookkeeping(item.key):
                    continue
                node, _, uid = item.key.partition(".")
                if decode_token(node) in names:
                    status = codec.decode(PodStatusRecord, item.value)
                    if status.terminal or status.rejected:
                        shared.settled[uid] = status

    def _on_spec(self, _key: str, old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        for uid in dict.fromkeys(record.uid for record in (old, new) if record is not None):
            node = None if self._shared is None else self._shared.places.get(uid)
            if node is not None:
                node.reconcile(uid)

    async def leave(self) -> None:
        """Silent nodes would be kept for minutes; these say that they are gone. Raise BusError."""
        shared = self._shared
        if shared is None:
            return
        tokens = [encode_token(name) for name in self.nodes]
        await _delete_all(shared.nodes, tokens)
        await _delete_all(shared.heartbeats, tokens)
        await _delete_all(shared.statuses, [key for node in self.nodes.values() for key in node.held()])


async def _delete_all(bucket: Bucket, keys: list[str]) -> None:
    for start in range(0, len(keys), _TOGETHER):
        await asyncio.gather(*(_insist(partial(bucket.delete, key)) for key in keys[start : start + _TOGETHER]))


async def _insist(call: Callable[[], Awaitable[None]]) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            await call()
        except BusError:
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(_RETRY_S)
        else:
            return
