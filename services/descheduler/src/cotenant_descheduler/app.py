"""The descheduler: watches load, finds nodes that stay hot, and asks the gate to let the right pod leave."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant_common.bus.protocol import Bucket, BusError, Delete, Put
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import (
    EvictReply,
    EvictRequest,
    WhyNotReply,
    WhyNotRequest,
)
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    MigrationRecord,
    NodeInventory,
    OvercommitRecord,
    PodStatusRecord,
    SpecRecord,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.model import resources
from cotenant_common.model.ids import encode_token, object_key
from cotenant_common.model.pod import Pod, parse_pod
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_common.runtime import requests
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.mirror import BucketMirror, wait_for_snapshots
from cotenant_common.runtime.service import ServiceContext
from cotenant_descheduler.adapters.load_window import LoadWindow
from cotenant_descheduler.config import DeschedulerSettings
from cotenant_descheduler.core.classify import Heat, NodeLoad, Verdict, classify
from cotenant_descheduler.core.decide import NodeReport, Removal, decide, workload
from cotenant_descheduler.core.detector import Counters, Transition, acted, mark
from cotenant_descheduler.core.victims import Candidate, Target

SERVICE = "descheduler"


@dataclass(slots=True)
class _Node:
    """What the loop remembers of one node between passes."""

    window: LoadWindow
    counters: Counters = field(default_factory=Counters)
    last_report: str = ""


class DeschedulerService:
    """One pass every ``descheduling_interval_ms``; writes only while it holds its lease."""

    name = SERVICE

    def __init__(self, context: ServiceContext, settings: DeschedulerSettings) -> None:
        self._context = context
        self._settings = settings
        self._nodes: dict[str, _Node] = {}
        self._moved_ms: dict[str, int] = {}
        self._commands = 0
        self._evictions = context.metrics.counter(
            "cotenant_descheduler_evictions_total", "Removals asked of the gate, by mode and outcome", "1"
        )
        self._rejections = context.metrics.counter(
            "cotenant_descheduler_rejections_total", "Pods that stay, and nodes that do not take them, by reason", "1"
        )

    async def run(self) -> None:
        await self._open()
        self._context.health.set_ready(False, "reading the buckets")
        try:
            async with asyncio.TaskGroup() as group:
                for mirror in self._mirrors():
                    group.create_task(mirror.run())
                group.create_task(self._lease.run())
                group.create_task(self._loop())
        finally:
            await self._announcer.close()

    async def _open(self) -> None:
        bus, clock = self._context.bus, self._context.clock
        self._migrations_bucket: Bucket = await bus.bucket(buckets.MIGRATIONS)
        self._specs = BucketMirror(await bus.bucket(buckets.SPECS), SpecRecord)
        self._bindings = BucketMirror(await bus.bucket(buckets.BINDINGS), Binding)
        self._inventory = BucketMirror(await bus.bucket(buckets.NODES), NodeInventory)
        self._overcommit = BucketMirror(await bus.bucket(buckets.OVERCOMMIT), OvercommitRecord)
        self._status = BucketMirror(await bus.bucket(buckets.PODSTATUS), PodStatusRecord)
        self._migrations = BucketMirror(self._migrations_bucket, MigrationRecord)
        leases = await bus.bucket(buckets.LEASES)
        self._lease = Lease(
            self._migrations_bucket, SERVICE, self._context.instance, clock, self._settings.lease_ttl_s, leases
        )
        self._announcer = Announcer(bus, self._migrations_bucket, SERVICE, clock)
        await requests.subscribe(bus, subjects.NODE_USAGE, self._on_usage)

    def _mirrors(self) -> list[BucketMirror]:  # type: ignore[type-arg]
        return [
            self._specs,
            self._bindings,
            self._inventory,
            self._overcommit,
            self._status,
            self._migrations,
        ]

    async def _on_usage(self, usage: NodeUsage) -> None:
        if encode_token(usage.node) not in self._inventory.items:
            return  # not a node, or not any more: whoever can publish could otherwise fill our memory with names
        node = self._nodes.setdefault(usage.node, _Node(LoadWindow(self._settings.usage_window_ms)))
        node.window.add(usage)

    async def _loop(self) -> None:
        await wait_for_snapshots(self._mirrors(), self._context.health, self._context.log)
        self._context.health.set_ready(True)
        while True:
            await asyncio.sleep(self._settings.descheduling_interval_ms / 1000)
            self._context.health.beat("pass")
            try:
                if self._lease.held:
                    await self._pass()
            except BusError as error:
                self._context.log.warning("pass_given_up", error=str(error))

    async def _pass(self) -> None:
        now_ms = self._context.clock.now_ms()
        self._nodes = {name: one for name, one in self._nodes.items() if encode_token(name) in self._inventory.items}
        await self._follow_migrations(now_ms)
        loads = self._loads(now_ms)
        hot = [verdict for load in loads if (verdict := await self._judge(load, now_ms)) is not None]
        if not hot:
            return
        reports = decide(
            hot,
            {verdict.node: self._candidates(verdict.node) for verdict in hot},
            [self._target(load) for load in loads if load.schedulable],
            self._settings.thresholds,
            self._moved_ms,
            now_ms,
            self._settings.limits,
        )
        for report in reports:
            await self._carry_out(report, now_ms)

    def _loads(self, now_ms: int) -> list[NodeLoad]:
        """Nodes with a fresh metric, by name; a silent node is unknown and takes no part."""
        loads = []
        for key, inventory in sorted(self._inventory.items.items()):
            node = self._nodes.get(inventory.node)
            latest_ms = node.window.latest_ms if node else None
            if node is None or latest_ms is None or now_ms - latest_ms > self._settings.node_metric_expiration_ms:
                continue
            load = node.window.load(inventory.node, inventory.allocatable, schedulable=self._schedulable(key))
            if load is not None:
                loads.append(load)
        return loads

    def _schedulable(self, node_token: str) -> bool:
        record = self._specs.items.get(f"Node.-.{node_token}")
        spec = record.manifest.get("spec") or {} if record else {}
        return not spec.get("unschedulable") and not spec.get("taints")

    async def _judge(self, load: NodeLoad, now_ms: int) -> Verdict | None:
        """The verdict of a node that stays hot; announces the moment it becomes so, and the moment it cools."""
        node = self._nodes[load.node]
        verdict = classify(load, self._settings.thresholds)
        node.counters, transition = mark(node.counters, verdict.heat, now_ms, self._settings.condition)
        if transition is not Transition.NONE:
            await self._announce_heat(verdict, transition, now_ms)
        return verdict if node.counters.anomalous and verdict.heat is not Heat.FINE else None

    async def _announce_heat(self, verdict: Verdict, transition: Transition, now_ms: int) -> None:
        hot = transition is Transition.HOT
        await self._announcer.announce(
            Event(
                id=f"{SERVICE}.{verdict.node}.{transition.value}.{now_ms}",
                type="node.hot" if hot else "node.cooled",
                at_ms=now_ms,
                source=SERVICE,
                object=object_key("Node", None, verdict.node),
                reason="NodeHot" if hot else None,
                message=verdict.sentence(),
                data={"excess": verdict.excess, "danger": verdict.heat is Heat.DANGER},
            )
        )

    def _candidates(self, node: str) -> list[Candidate]:
        usage = self._nodes[node].window.pod_usage()
        found = []
        for _, binding in sorted(self._bindings.items.items()):
            if binding.node != node:
                continue
            pod = self._pod(binding)
            status = self._status.items.get(f"{encode_token(node)}.{binding.uid}")
            if pod is None or (status is not None and status.terminal):
                continue
            found.append(Candidate(pod, usage.get(binding.uid, {}), status.started_ms if status else None))
        return found

    def _pod(self, binding: Binding) -> Pod | None:
        """The bound incarnation; None when the name already belongs to a successor: identity is the uid."""
        key = f"Pod.{encode_token(binding.namespace)}.{encode_token(binding.name)}"
        record = self._specs.items.get(key)
        if record is None or record.uid != binding.uid:
            return None
        return parse_pod(
            record.manifest,
            uid=record.uid,
            created_ms=record.created_ms,
            incarnation=record.incarnation,
            deleting=record.deletion is not None,
        )

    def _target(self, load: NodeLoad) -> Target:
        overcommit = self._overcommit.items.get(encode_token(load.node))
        sold: dict[str, int] = {}
        if overcommit is not None:
            sold |= _renamed(overcommit.batch, resources.RESOURCES_BY_BAND["batch"])
            sold |= _renamed(overcommit.mid, resources.RESOURCES_BY_BAND["mid"])
        requested: dict[str, int] = {}
        for binding in self._bindings.items.values():
            if binding.node == load.node and not self._ended(binding):
                requested = resources.add(requested, binding.requests)
        free = resources.subtract({**load.allocatable, **sold}, requested)
        return Target(load.node, load.allocatable, load.usage, free)

    def _ended(self, binding: Binding) -> bool:
        status = self._status.items.get(f"{encode_token(binding.node)}.{binding.uid}")
        return status is not None and status.terminal

    async def _carry_out(self, report: NodeReport, now_ms: int) -> None:
        for rejection in report.rejections:
            self._rejections.add(1, {"reason": rejection.kept.value})
        if report.removal is None:
            self._log_once(report)
            return
        landing = await self._confirmed_landing(report.removal)
        if report.removal.mode == "move" and landing is None:
            self._log_once(report)
            return
        await self._remove(report.removal, landing, now_ms)

    def _log_once(self, report: NodeReport) -> None:
        """A protection that blocks everything is said once per change, not once per pass."""
        node = self._nodes[report.node]
        summary = f"{report.reason}: " + "; ".join(f"{r.pod}: {r.why}" for r in report.rejections)
        if summary != node.last_report:
            node.last_report = summary
            self._context.log.warning(
                "nothing_leaves_hot_node",
                node=report.node,
                reason=str(report.reason),
                considered=report.considered,
                rejections=[f"{r.pod}: {r.why}" for r in report.rejections],
            )

    async def _confirmed_landing(self, removal: Removal) -> str | None:
        """The first place that the scheduler itself says would take the pod; no answer is no proof."""
        pod = removal.candidate.pod
        for node in removal.landing:
            question = WhyNotRequest(namespace=pod.namespace, name=pod.name, node=node)
            try:
                answer = await requests.call(
                    self._context.bus, subjects.SCHEDULER_WHY_NOT, question, WhyNotReply, timeout_s=2
                )
            except BusError as error:
                self._context.log.warning("landing_not_confirmed", node=node, error=str(error))
                return None
            if answer.fits:
                return node
        return None

    async def _remove(self, removal: Removal, landing: str | None, now_ms: int) -> None:
        pod = removal.candidate.pod
        self._commands += 1
        command_id = f"{SERVICE}-{self._lease.epoch}-{self._commands}"
        request = EvictRequest(
            id=command_id,
            kind=removal.mode,
            victims=[PodRef(uid=pod.uid, namespace=pod.namespace, name=pod.name, node=removal.source)],
            requested_by=SERVICE,
            reason=removal.reason.value,
            message=removal.message,
            numbers=dict(removal.numbers),
            beneficiary=object_key("Node", None, removal.source) if removal.mode == "reclaim" else None,
            landing_node=landing,
            dry_run=self._settings.dry_run,
        )
        reply = await requests.call(self._context.bus, subjects.POD_EVICT, request, EvictReply)
        self._evictions.add(1, {"mode": removal.mode, "granted": str(reply.granted).lower()})
        self._context.log.info(
            "eviction_asked", pod=pod.key, node=removal.source, granted=reply.granted, answer=reply.message
        )
        node = self._nodes[removal.source]
        node.counters = acted(node.counters)
        if reply.granted and not self._settings.dry_run:
            self._moved_ms[workload(removal.candidate)] = now_ms
            await self._record_start(removal, landing, request, reply, now_ms)

    async def _record_start(
        self, removal: Removal, landing: str | None, request: EvictRequest, reply: EvictReply, now_ms: int
    ) -> None:
        successor = reply.victims[0].successor_uid if reply.victims else None
        record = MigrationRecord(
            id=request.id,
            pod=request.victims[0],
            successor_uid=successor,
            mode=removal.mode,
            phase="Running",
            reason=removal.reason.value,
            message=removal.message,
            source_node=removal.source,
            target_node=landing,
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        await self._write(record, "migration.started")

    async def _follow_migrations(self, now_ms: int) -> None:
        """A move is over when its successor runs, or when it took too long."""
        self._moved_ms = {
            name: at_ms for name, at_ms in self._moved_ms.items() if now_ms - at_ms < self._settings.cool_down_ms
        }
        for key, record in sorted(self._migrations.items.items()):
            if record.phase != "Running":
                if now_ms - record.updated_ms > self._settings.migration_history_ms:
                    await self._migrations_bucket.batch([self._lease.guard(), Delete(key)])
                continue
            landed = self._successor_node(record)
            if landed is not None:
                update = {"phase": "Succeeded", "target_node": landed, "updated_ms": now_ms}
                await self._write(record.model_copy(update=update), "migration.succeeded")
            elif now_ms - record.created_ms > self._settings.migration_ttl_ms:
                update = {"phase": "Failed", "updated_ms": now_ms, "message": "the successor did not run in time"}
                await self._write(record.model_copy(update=update), "migration.aborted")

    def _successor_node(self, record: MigrationRecord) -> str | None:
        for status in self._status.items.values():
            if _follows(record, status) and status.phase in ("Running", "Succeeded"):
                return status.node
        return None

    async def _write(self, record: MigrationRecord, event_type: str) -> None:
        # The guard comes first, so that the revision of the batch is the record's own.
        revision = await self._migrations_bucket.batch([self._lease.guard(), Put(record.id, codec.encode(record))])
        await self._announcer.announce(
            Event(
                id=event_id(buckets.MIGRATIONS, record.id, revision),
                type=event_type,
                at_ms=record.updated_ms,
                source=SERVICE,
                object=object_key("Pod", record.pod.namespace, record.pod.name),
                uid=record.pod.uid,
                reason=record.reason,
                message=record.message,
                data={"from": record.source_node, "to": record.target_node, "mode": record.mode},
            )
        )


def _follows(record: MigrationRecord, status: PodStatusRecord) -> bool:
    """By uid where the gate named the successor; by name and a later start where it could not yet."""
    if record.successor_uid is not None:
        return status.uid == record.successor_uid
    same_name = (status.namespace, status.name) == (record.pod.namespace, record.pod.name)
    return same_name and status.uid != record.pod.uid


def _renamed(sold: Mapping[str, int] | None, names: Mapping[str, str]) -> dict[str, int]:
    """``None`` is *not sold*: the resource stays absent, so that nothing fits into it."""
    return {names[name]: sold[name] for name in (CPU, MEMORY) if sold is not None and name in sold}
