"""The gateway as a service: mirrors for all, writing and deciding only for the one that leads."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from cotenant_common.bus.protocol import BusError, BusUnavailableError, Received, Subscription
from cotenant_common.contracts import subjects
from cotenant_common.contracts.messages.commands import (
    ApplyReply,
    ApplyRequest,
    ApplyResult,
    EmergencyUsed,
    EvictReply,
    EvictRequest,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.runtime import requests
from cotenant_common.runtime.audit import Auditor, Drift
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.adapters.events import mirror_event
from cotenant_gateway.adapters.http.auth import read_token
from cotenant_gateway.adapters.records import to_evict_reply, to_gate_request
from cotenant_gateway.app.brakes import Brakes
from cotenant_gateway.app.evictions import Evictions
from cotenant_gateway.app.facade import Facade
from cotenant_gateway.app.leadership import Leadership
from cotenant_gateway.app.operations import Operations
from cotenant_gateway.app.reading import Reading
from cotenant_gateway.app.reconcile import Reconciler
from cotenant_gateway.app.snapshot import Snapshots
from cotenant_gateway.app.wire import apply_results
from cotenant_gateway.app.world import World
from cotenant_gateway.app.writer import SERVICE, Writer
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core.errors import ApiError

_DRAIN_S = 2.0


class GatewayService:
    """``operations`` and ``reading`` are for whoever hosts the service in process, such as a simulation."""

    def __init__(self, context: ServiceContext, settings: GatewaySettings) -> None:
        """Raise SettingsError when the settings would let strangers in."""
        if settings.api_enabled:
            read_token(settings.api_token_file, settings.api_host)  # raises here: a crash loop would hide the cause
        self._context = context
        self._settings = settings
        self.world = World(context.clock)
        self.leadership = Leadership(self.world, context.instance)
        self.operations = Operations(context, settings, self.world, self.leadership)
        self.evictions = Evictions(context, settings, self.world, self.leadership)
        self.brakes = Brakes(context, self.world, self.leadership, self.operations)
        self.reading = Reading(context, self.world, self.operations, self.leadership)
        self.snapshots = Snapshots(context, settings, self.world)
        self.api_port: int | None = None

    async def run(self) -> None:
        context = self._context
        await self._open()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for mirror in self.world.mirrors:
                tasks.create_task(mirror.run(), name="mirror")
            context.health.set_ready(False, "reading the buckets")
            await self.world.wait_ready()
            self.world.listen_again()
            usage = await requests.subscribe(context.bus, subjects.NODE_USAGE, self._on_usage)
            stack.push_async_callback(usage.stop)
            if self._settings.api_enabled:
                await self._listen(stack)
            lease = Lease(
                self.world.specs_bucket,
                SERVICE,
                context.instance,
                context.clock,
                self._settings.lease_ttl_s,
                self.world.leases_bucket,
            )
            tasks.create_task(lease.run(), name="lease")
            tasks.create_task(self._lead(lease), name="lead")
            context.health.set_ready(True)

    async def _open(self) -> None:
        while True:
            try:
                return await self.world.open(self._context.bus)
            except BusUnavailableError as error:
                self._context.health.set_ready(False, f"waiting for the bus: {error}")
                await asyncio.sleep(1)

    async def _listen(self, stack: AsyncExitStack) -> None:
        from cotenant_gateway.adapters.http.server import ApiServer  # noqa: PLC0415 - a simulation needs no aiohttp

        server = ApiServer(self._facade(), self._settings)
        self.api_port = await server.start()
        stack.push_async_callback(server.stop)
        self._context.log.info("api_listens", host=self._settings.api_host, port=self.api_port)

    def _facade(self) -> Facade:
        return Facade(
            self._context, self.world, self.operations, self.reading, self.snapshots, self.evictions, self.brakes
        )

    async def _lead(self, lease: Lease) -> None:
        """Each time the lease is ours: announce what a crash left unsaid, then decide and serve."""
        while True:
            await lease.wait_held()
            leading = asyncio.ensure_future(self._while_leading(lease))
            lost = asyncio.ensure_future(lease.wait_lost())
            try:
                await asyncio.wait([leading, lost], return_when=asyncio.FIRST_COMPLETED)
            finally:
                leading.cancel()
                lost.cancel()
                await asyncio.wait([leading, lost])
            if not leading.cancelled() and (error := leading.exception()) is not None:
                self._context.log.error("leading_failed", exc_info=error)
                await asyncio.sleep(1)

    async def _while_leading(self, lease: Lease) -> None:
        context, world = self._context, self.world
        announcer = Announcer(context.bus, world.specs_bucket, SERVICE, context.clock)
        writer = Writer(world.specs_bucket, lease, announcer, context.clock)
        subscriptions: list[Subscription] = []
        try:
            # A deposed leader may have written after our mirror last moved; decide on nothing older than that.
            last = await world.specs_bucket.last_revision()
            while not await world.specs.wait_revision(last):
                context.log.warning("leads_later", expected=last, seen=world.specs.revision)
            told = await announcer.catch_up(writer.derive)
            self.leadership.lead(writer)
            context.log.info("leads", epoch=lease.epoch, told_again=told)
            await self.evictions.recall()
            subscriptions += await self._serve()
            async with asyncio.TaskGroup() as tasks:
                reconciler = Reconciler(context, self._settings, world, self.leadership, self.operations)
                tasks.create_task(reconciler.run(), name="reconcile")
                tasks.create_task(self._audit(Auditor(context, writer.say)), name="audit")
        finally:
            self.leadership.lead(None)
            for subscription in subscriptions:
                await subscription.stop()
            await announcer.close(_DRAIN_S)

    async def _audit(self, auditor: Auditor) -> None:
        """The mirrors that decisions rest on against the store, and the gate's own book against the specs."""
        world = self.world
        ledgers: dict[str, BucketMirror[Any]] = {
            "specs": world.specs,
            "bindings": world.bindings,
            "podstatus": world.statuses,
        }
        while True:
            await asyncio.sleep(self._settings.audit_s)
            try:
                drifts = [
                    Drift(name, f"Key/-/{missed.key}", _revision(missed.believed), _revision(missed.actual))
                    for name, mirror in ledgers.items()
                    for missed in await mirror.audit()
                ]
                await auditor.repaired([*drifts, *self.evictions.audit()])
            except BusError as error:
                self._context.log.warning("audit_given_up", error=str(error))

    async def _serve(self) -> list[Subscription]:
        bus = self._context.bus
        served = [
            await requests.serve(bus, subjects.POD_EVICT, self._on_evict),
            await requests.serve(bus, subjects.OBJECT_APPLY, self._on_apply),
            await requests.serve(bus, subjects.EMERGENCY_USED, self._on_emergency),
        ]
        if self._settings.mirror_json:
            served.append(await bus.subscribe(subjects.EVENTS_WILDCARD, self._on_event))
        return served

    async def _on_evict(self, message: EvictRequest) -> EvictReply:
        request = to_gate_request(message)
        decision = await self.evictions.evict(request, dry_run=message.dry_run)
        return to_evict_reply(message.id, decision)

    async def _on_emergency(self, message: EmergencyUsed) -> EvictReply:
        return to_evict_reply(message.id, await self.evictions.emergency(message))

    async def _on_apply(self, message: ApplyRequest) -> ApplyReply:
        """Faults are an answer, not a failure: the asking service has to read them."""
        try:
            planned = await self.operations.apply_data(message.manifests, dry_run=message.dry_run)
        except ApiError as error:
            refused = ApplyResult(kind="", namespace=None, name="", action="refused", errors=[error.message])
            return ApplyReply(id=message.id, ok=False, results=[refused])
        return ApplyReply(id=message.id, ok=not planned.faults, results=apply_results(planned))

    async def _on_usage(self, message: NodeUsage) -> None:
        if not self.world.is_node(message.node):
            return  # whoever can publish could otherwise fill our memory with names
        known = self.world.usage.get(message.node)
        if known is None or message.at_ms >= known.at_ms:
            self.world.usage[message.node] = message

    async def _on_event(self, received: Received) -> None:
        await mirror_event(self._context.bus, received)

    def debug_state(self) -> dict[str, Any]:
        world = self.world
        return {
            "leader": self.leadership.writer is not None,
            "writes": self.leadership.writes,
            "revisions": {
                mirror.__class__.__name__ + str(at): mirror.revision for at, mirror in enumerate(world.mirrors)
            },
            "pods": world.count("Pod"),
            "nodes": {name: str(world.watched(name).alive) for name in world.node_names()},
            "frozen": world.frozen(),
        }


def _revision(revision: int | None) -> dict[str, int] | None:
    return None if revision is None else {"revision": revision}
