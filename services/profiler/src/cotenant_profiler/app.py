"""The profiler: listens to usage, and publishes what each node may sell a second time with the sum that made it."""

import asyncio
from typing import Any, Final

from cotenant_common.bus.protocol import Bucket, BusClosedError, BusError, Delete, Entry, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import (
    BINDINGS,
    LEASES,
    NODES,
    OVERCOMMIT,
    POLICIES,
    SPECS,
    is_bookkeeping,
)
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    NodeInventory,
    OvercommitRecord,
    PolicyRecord,
    SpecRecord,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.contracts.subjects import NODE_USAGE
from cotenant_common.model.ids import spec_key
from cotenant_common.model.quantity import QuantityError
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import BucketMirror, wait_for_snapshots
from cotenant_common.runtime.service import ServiceContext
from cotenant_profiler.adapters import messages
from cotenant_profiler.adapters.messages import Samples
from cotenant_profiler.config import ProfilerSettings
from cotenant_profiler.core.facts import PodFacts
from cotenant_profiler.core.node import Machine, NodeProfile, Offer
from cotenant_profiler.core.strategy import Strategy, strategy_of

_RETRY_S: Final = 0.5
_LEASE_CHECK_S: Final = 1.0
_BATCH_SIZE: Final = 200


class ProfilerService:
    """Every replica listens and learns; only the one that holds the lease publishes."""

    def __init__(self, context: ServiceContext, settings: ProfilerSettings) -> None:
        self._context = context
        self._settings = settings
        self._tuning = settings.tuning()
        self._profiles: dict[str, NodeProfile] = {}
        self._reports: dict[str, Samples] = {}
        self._pods: dict[str, PodFacts] = {}
        self._bound: dict[str, dict[str, None]] = {}
        self._node_of: dict[str, str] = {}
        self._dirty: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._swept_at = float("-inf")
        self._published: dict[str, OvercommitRecord] = {}
        self._complaints: dict[str, str] = {}
        self._strategies: dict[str, tuple[PolicyRecord | None, bool, Strategy]] = {}
        """By node: what its strategy was read from, and the strategy."""
        self._machines: dict[str, tuple[NodeInventory, SpecRecord | None, Machine]] = {}
        """By node: what its machine was read from, and the machine."""
        self._told: dict[str, Offer] = {}
        """Offers that are as published: the same again is no news."""
        self._opened = False
        self._leading = False
        self._publications = context.metrics.counter("cotenant_profiler_offers_total", "Overcommit records published")
        self._samples = context.metrics.counter("cotenant_profiler_samples_total", "Usage samples taken or dropped")

    async def run(self) -> None:
        bus = self._context.bus
        self._own = await bus.bucket(OVERCOMMIT)
        self._records = BucketMirror(self._own, OvercommitRecord)
        self._specs = BucketMirror(await bus.bucket(SPECS), SpecRecord, on_change=self._on_spec)
        self._bindings = BucketMirror(await bus.bucket(BINDINGS), Binding, on_change=self._on_binding)
        self._nodes = BucketMirror(await bus.bucket(NODES), NodeInventory, on_change=self._on_node)
        self._policies = BucketMirror(await bus.bucket(POLICIES), PolicyRecord, on_change=self._on_policy)
        self._announcer = Announcer(bus, self._own, "profiler", self._context.clock)
        self._lease = await self._make_lease(self._own)
        self._opened = True
        listening = await requests.subscribe(bus, NODE_USAGE, self._on_usage)
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._mirrors():
                    group.create_task(mirror.run(), name="profiler mirror")
                group.create_task(self._lead(), name="profiler leads")
        finally:
            await listening.stop()
            await self._announcer.close()

    async def _make_lease(self, bucket: Bucket) -> Lease:
        context = self._context
        discovery = await context.bus.bucket(LEASES)
        return Lease(
            bucket, "profiler", context.instance, context.clock, self._settings.lease_ttl_s, discovery=discovery
        )

    def _mirrors(self) -> tuple[BucketMirror[Any], ...]:
        return self._records, self._specs, self._bindings, self._nodes, self._policies

    async def _lead(self) -> None:
        await self._wait_for_snapshots()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.run(on_lost=self._on_lease_lost), name="profiler lease")
            while True:
                await self._lease.wait_held()
                self._leading = True
                if not await self._take_over():
                    await asyncio.sleep(_RETRY_S)
                    continue
                while self._leading and self._lease.held:
                    await self._publish_once()

    def _on_lease_lost(self) -> None:
        # It may be ours again before the loop looks: what was led before is over all the same.
        self._leading = False
        self._changed.set()

    async def _wait_for_snapshots(self) -> None:
        """A pod that is not seen yet would be sold as free room."""
        context = self._context
        await wait_for_snapshots(self._mirrors(), context.health, context.log, self._settings.snapshot_timeout_s)
        context.health.set_ready(True)

    async def _take_over(self) -> bool:
        """Continue from what was offered before, and tell what may not have been told. False: try again."""
        try:
            await self._records.wait_revision(await self._own.last_revision())
            told = await self._announcer.catch_up(self._derive)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("take_over_waits", error=str(error))
            return False
        # A store that was made anew holds none of the orphans: they are continued from, but written again.
        orphans = self._records.orphans
        self._told.clear()
        self._published = {one.node: one for key, one in self._records.items.items() if key not in orphans}
        for record in self._records.items.values():
            if (profile := self._profiles.get(record.node)) is not None:
                profile.restore("batch", record.batch, record.computed_ms)
                profile.restore("mid", record.mid, record.computed_ms)
        self._swept_at = float("-inf")
        self._changed.set()
        self._context.log.info("leading", epoch=self._lease.epoch, nodes=len(self._published), events_repeated=told)
        return True

    def _derive(self, entry: Entry) -> list[Event]:
        if entry.value is None or is_bookkeeping(entry.key):
            return []
        record = codec.decode(OvercommitRecord, entry.value)
        return [messages.event_of(record, entry.revision, self._context.instance)]

    # What comes in

    async def _on_usage(self, usage: NodeUsage) -> None:
        profile = self._profiles.get(usage.node)
        if profile is None:
            # Its inventory has not arrived; the next sample is a second away.
            return
        sample = self._reports.setdefault(usage.node, Samples()).read(usage)
        taken = profile.observe(sample, self._context.clock.now_ms())
        self._samples.add(1, {"taken": taken})
        if taken:
            self._touch(usage.node)

    def _on_spec(self, _key: str, old: SpecRecord | None, new: SpecRecord | None, _revision: int) -> None:
        changed = new or old
        if changed is not None and changed.kind == "Node":
            self._touch(changed.name)
        elif changed is not None and changed.kind == "Pod":
            if old is not None and (new is None or new.uid != old.uid):
                self._forget_pod(old.uid)
            if new is not None:
                self._read_pod(new)

    def _read_pod(self, record: SpecRecord) -> None:
        try:
            facts = messages.pod_facts(record)
        except QuantityError as error:
            self._context.log.warning("pod_unusable", uid=record.uid, error=str(error))
            facts = None
        if facts is None:
            self._forget_pod(record.uid)
        elif self._pods.get(record.uid) != facts:
            self._pods[record.uid] = facts
            self._touch_node_of(record.uid)

    def _forget_pod(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._touch_node_of(uid)

    def _on_binding(self, _key: str, old: Binding | None, new: Binding | None, _revision: int) -> None:
        if new is not None:
            self._node_of[new.uid] = new.node
            self._bound.setdefault(new.node, {})[new.uid] = None
            self._touch(new.node)
        elif old is not None:
            self._bound.get(old.node, {}).pop(old.uid, None)
            if self._node_of.get(old.uid) == old.node:
                del self._node_of[old.uid]
            self._touch(old.node)

    def _on_node(self, _key: str, old: NodeInventory | None, new: NodeInventory | None, _revision: int) -> None:
        if new is not None:
            self._profiles.setdefault(new.node, NodeProfile(self._tuning, self._context.clock.now_ms()))
            self._touch(new.node)
        elif old is not None:
            self._profiles.pop(old.node, None)
            self._complaints.pop(old.node, None)
            self._strategies.pop(old.node, None)
            self._machines.pop(old.node, None)
            self._reports.pop(old.node, None)
            self._told.pop(old.node, None)
            self._touch(old.node)

    def _on_policy(self, _key: str, old: PolicyRecord | None, new: PolicyRecord | None, _revision: int) -> None:
        changed = new or old
        if changed is not None:
            self._touch(changed.node)

    def _touch_node_of(self, uid: str) -> None:
        if (node := self._node_of.get(uid)) is not None:
            self._touch(node)

    def _touch(self, node: str) -> None:
        self._dirty[node] = None
        self._changed.set()

    # What goes out

    async def _publish_once(self) -> None:
        """Wait for news, let those that come with it arrive, write what they change."""
        self._context.health.beat("publish")
        try:
            async with asyncio.timeout(_LEASE_CHECK_S):
                await self._changed.wait()
            await asyncio.sleep(self._settings.coalesce_ms / 1000)
        except TimeoutError:
            if not self._sweep_is_due():
                return
        self._changed.clear()
        nodes = self._take_dirty()
        try:
            await self._write(self._evaluate(nodes), self._gone())
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("offers_delayed", nodes=len(nodes), error=str(error))
            self._dirty.update(dict.fromkeys(nodes))
            await asyncio.sleep(_RETRY_S)
            self._changed.set()

    def _sweep_is_due(self) -> bool:
        return self._context.clock.monotonic() - self._swept_at >= self._settings.sweep_interval_s

    def _take_dirty(self) -> list[str]:
        """Nodes with news; now and then all, since silence is news too."""
        if self._sweep_is_due():
            self._swept_at = self._context.clock.monotonic()
            self._dirty.update(dict.fromkeys(self._profiles))
        nodes, self._dirty = sorted(self._dirty), {}
        return nodes

    def _evaluate(self, nodes: list[str]) -> list[OvercommitRecord]:
        now_ms = self._context.clock.now_ms()
        records = []
        for node in nodes:
            offer = self._offer(node, now_ms)
            if offer is None or offer is self._told.get(node):
                continue
            metric_ms = self._profiles[node].sampled_ms
            record = messages.record_of(node, offer, metric_ms=metric_ms, now_ms=now_ms)
            if messages.same_offer(self._published.get(node), record):
                self._told[node] = offer
            else:
                records.append(record)
        return records

    def _offer(self, node: str, now_ms: int) -> Offer | None:
        profile = self._profiles.get(node)
        inventory = self._nodes.items.get(messages.key_of(node))
        if profile is None or inventory is None:
            return None
        pods = [self._pods[uid] for uid in self._bound.get(node, ()) if uid in self._pods]
        return profile.offer(self._machine(inventory), pods, self._strategy(inventory), now_ms)

    def _machine(self, inventory: NodeInventory) -> Machine:
        spec = self._specs.items.get(spec_key("Node", None, inventory.node))
        known = self._machines.get(inventory.node)
        if known is not None and known[0] is inventory and known[1] is spec:
            return known[2]
        try:
            machine = messages.machine_of(inventory, spec)
        except ValueError as error:
            self._complain(inventory.node, str(error))
            machine = messages.machine_of(inventory, None)
        self._machines[inventory.node] = inventory, spec, machine
        return machine

    def _strategy(self, inventory: NodeInventory) -> Strategy:
        policy = self._policies.items.get(messages.key_of(inventory.node))
        known = self._strategies.get(inventory.node)
        if known is not None and known[0] is policy and known[1] == inventory.idle_class:
            return known[2]
        try:
            strategy = messages.node_strategy(policy, inventory)
        except ValueError as error:
            self._complain(inventory.node, str(error))
            strategy = strategy_of({}, idle_class=False)
        self._strategies[inventory.node] = policy, inventory.idle_class, strategy
        return strategy

    def _complain(self, node: str, problem: str) -> None:
        """Once per problem: this is asked every second."""
        if self._complaints.get(node) != problem:
            self._complaints[node] = problem
            self._context.log.error("node_setting_unusable", node=node, problem=problem)

    def _gone(self) -> list[str]:
        return [node for node in self._published if node not in self._profiles]

    async def _write(self, records: list[OvercommitRecord], gone: list[str]) -> None:
        for start in range(0, len(records), _BATCH_SIZE):
            chunk = records[start : start + _BATCH_SIZE]
            puts = [Put(messages.key_of(record.node), codec.encode(record)) for record in chunk]
            # The guard comes first, so that the revisions of the records are the last ones of the batch.
            last = await self._own.batch([self._lease.guard(), *puts])
            for revision, record in enumerate(chunk, start=last - len(chunk) + 1):
                self._published[record.node] = record
                self._told.pop(record.node, None)
                self._publications.add(1)
                await self._announcer.announce(messages.event_of(record, revision, self._context.instance))
        for node in gone:
            await self._own.batch([self._lease.guard(), Delete(messages.key_of(node))])
            del self._published[node]
            self._told.pop(node, None)

    def debug_state(self) -> dict[str, Any]:
        if not self._opened:
            return {"state": "opening buckets"}
        return {
            "leading": self._lease.held,
            "epoch": self._lease.epoch,
            "nodes": {
                node: {"batch": record.batch, "mid": record.mid, "degraded": record.degraded, "why": record.message}
                for node, record in sorted(self._published.items())
            },
            "pods": len(self._pods),
            "complaints": dict(self._complaints),
            "pending_events": self._announcer.pending,
        }
