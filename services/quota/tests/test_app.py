import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cotenant_common.bus import memory_store
from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS, NODES, OVERCOMMIT, PODSTATUS, QUOTASTATUS, SPECS, BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.commands import (
    ApplyReply,
    ApplyRequest,
    EvictReply,
    EvictRequest,
    QuotaTreeReply,
    QuotaTreeRequest,
    VictimDecision,
)
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    OvercommitRecord,
    PodStatusRecord,
    QuotaChange,
    QuotaRuntime,
    QuotaTreeStatus,
)
from cotenant_common.contracts.subjects import OBJECT_APPLY, POD_EVICT, QUOTA_TREE
from cotenant_common.runtime import requests
from cotenant_common.testing import builders
from cotenant_common.testing.context import memory_server, service_context
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_quota.adapters import pods
from cotenant_quota.app import QuotaService
from cotenant_quota.config import QuotaSettings

MILLI = 1000


class World:
    """The other services' part: writes what they would write, reads what quota wrote."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.bus = server.connect("others")

    async def put(self, bucket: BucketSpec, key: str, message: Message) -> int:
        return await (await self.bus.bucket(bucket)).put(key, codec.encode(message))

    async def delete(self, bucket: BucketSpec, key: str) -> None:
        await (await self.bus.bucket(bucket)).delete(key)

    async def node(self, name: str, cpu: str = "10") -> None:
        record = builders.spec_record(builders.node_manifest(name, cpu=cpu))
        await self.put(SPECS, builders.spec_key(record), record)
        await self.put(NODES, name, builders.node_inventory(name, cpu=cpu))

    async def quota(self, name: str, low: int, high: int, **more: Any) -> int:
        manifest = builders.quota_manifest(name, minimum={"cpu": low}, maximum={"cpu": high}, **more)
        record = builders.spec_record(manifest)
        return await self.put(SPECS, builders.spec_key(record), record)

    async def pod(self, name: str, quota: str | None, cpu: int, **more: Any) -> int:
        manifest = builders.pod_manifest(name, cpu=cpu, quota=quota)
        record = builders.spec_record(manifest, uid=f"uid-{name}", **more)
        return await self.put(SPECS, builders.spec_key(record), record)

    async def bind(self, name: str, quota: str | None, cpu: int, node: str = "n1", attempt: int = 1) -> None:
        binding = Binding(
            uid=f"uid-{name}", namespace="default", name=name, node=node, attempt=attempt, epoch=1, spec_digest="",
            requests={"cpu": cpu * MILLI}, quota=quota, bound_ms=0,
        )  # fmt: skip
        await self.put(BINDINGS, f"uid-{name}.{node}", binding)

    async def unbind(self, name: str, node: str = "n1") -> None:
        await self.delete(BINDINGS, f"uid-{name}.{node}")

    async def running(self, name: str, quota: str, cpu: int) -> None:
        await self.pod(name, quota, cpu)
        await self.bind(name, quota, cpu)

    def status(self, tree: str = "default") -> QuotaTreeStatus:
        entry = self.server.store(QUOTASTATUS).get(tree)
        assert entry is not None
        assert entry.value is not None
        return codec.decode(QuotaTreeStatus, entry.value)

    def of(self, quota: str) -> QuotaRuntime:
        return next(one for one in self.status().quotas if one.name == quota)

    def events(self) -> list[tuple[str, str, str | None, int]]:
        found = [codec.decode(Event, one.data) for one in self.server.events.replay(after_sequence=0, since_ms=None)]
        return [(event.type, event.data["borrower"], event.data["lender"], event.data["amount"]) for event in found]


async def world_with(**quotas: tuple[int, int]) -> World:
    """One node of ten cores, and quotas by name with their min and max in cores."""
    world = World(memory_server())
    await world.node("n1")
    for name, (low, high) in quotas.items():
        await world.quota(name, low, high)
    return world


@asynccontextmanager
async def quota_service(
    server: MemoryServer, instance: str = "quota-1", **settings: Any
) -> AsyncIterator[QuotaService]:
    service = QuotaService(service_context(server, "quota", instance=instance), QuotaSettings(**settings))
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.wait([task])


async def settle() -> None:
    await asyncio.sleep(1)


@in_virtual_time
async def test_a_new_pod_is_covered_by_a_status_within_the_time_the_scheduler_waits() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        revision = await world.pod("p", "a", 1)
        await asyncio.sleep(0.15)
        assert world.status().specs_revision >= revision
        assert world.of("a").runtime == {"cpu": 1000}
        assert world.status().total == {"cpu": 10_000, "memory": 8 * 2**30, "pods": 110}


@in_virtual_time
async def test_a_pod_without_a_quota_is_covered_too_though_no_share_changes() -> None:
    world = World(memory_server())
    async with quota_service(world.server):
        await settle()
        await world.pod("p", None, 1)
        await settle()
        revision = await world.pod("p", None, 1, generation=2)
        await settle()
        assert world.status().specs_revision >= revision


@in_virtual_time
async def test_borrowing_and_returning_are_told_with_lender_and_amount() -> None:
    world = await world_with(a=(4, 10), b=(6, 10))
    async with quota_service(world.server):
        await settle()
        await world.running("b1", "b", 9)
        await settle()
        assert world.events() == [("quota.borrowed", "b", "a", 3000)]
        assert [(loan.borrower, loan.lender, loan.amount) for loan in world.status().loans] == [("b", "a", 3000)]
        await world.unbind("b1")
        await world.delete(SPECS, "Pod.default.b1")
        await settle()
        assert world.events()[1:] == [("quota.returned", "b", "a", 3000)]
        assert world.of("b").used == {"cpu": 0}


@in_virtual_time
async def test_a_lender_that_wants_its_share_back_makes_the_borrower_over_and_reclaims() -> None:
    world = await world_with(a=(4, 10), b=(6, 10))
    async with quota_service(world.server):
        await settle()
        await world.running("b1", "b", 6)
        await world.running("b2", "b", 3)
        await settle()
        await world.pod("a1", "a", 4)
        await settle()
        assert world.of("b").runtime == {"cpu": 6000}
        assert world.events()[1:] == [("quota.over", "b", None, 3000)]
        await world.unbind("b2")
        await settle()
        assert world.events()[2:] == [("quota.reclaimed", "b", "a", 3000)]


@in_virtual_time
async def test_ended_pods_are_not_charged_and_successors_are_pods_of_their_own() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        await world.running("p", "a", 2)
        await settle()
        assert world.of("a").used == {"cpu": 2000}
        await world.pod("p", "a", 2, terminal_ms=5)
        await settle()
        assert (world.of("a").used, world.of("a").request) == ({"cpu": 0}, {"cpu": 0})
        successor = builders.spec_record(builders.pod_manifest("p", cpu=3, quota="a"), uid="uid-next", incarnation=1)
        await world.put(SPECS, "Pod.default.p", successor)
        await settle()
        assert world.of("a").request == {"cpu": 3000}


@in_virtual_time
async def test_a_refused_binding_is_requested_and_not_used() -> None:
    world = await world_with(a=(4, 10))
    refusal = PodStatusRecord(
        uid="uid-p", namespace="default", name="p", node="n1", phase="Pending", attempt=1, rejected=True
    )
    async with quota_service(world.server):
        await settle()
        await world.running("p", "a", 2)
        await settle()
        await world.put(PODSTATUS, "n1.uid-p", refusal)
        await settle()
        assert (world.of("a").used, world.of("a").request) == ({"cpu": 0}, {"cpu": 2000})
        await world.unbind("p")
        await world.bind("p", "a", 2, attempt=2)
        await settle()
        assert world.of("a").used == {"cpu": 2000}
    async with quota_service(world.server, "quota-2"):
        await settle()
        assert world.of("a").used == {"cpu": 2000}


@in_virtual_time
async def test_a_node_that_leaves_and_comes_back_counts_again() -> None:
    world = await world_with()
    await world.node("n2")
    async with quota_service(world.server):
        await settle()
        assert world.status().total["cpu"] == 20_000
        await world.delete(NODES, "n2")
        await settle()
        assert world.status().total["cpu"] == 10_000
        await world.node("n2")
        await settle()
        assert world.status().total["cpu"] == 20_000


@in_virtual_time
async def test_batch_quotas_share_what_is_sold_a_second_time() -> None:
    world = await world_with()
    sold = OvercommitRecord(node="n1", batch={"cpu": 3000, "memory": 2**30}, mid=None, computed_ms=0)
    await world.put(OVERCOMMIT, "n1", sold)
    async with quota_service(world.server):
        await settle()
        total = world.status().total
        assert (total["kubernetes.io/batch-cpu"], total["kubernetes.io/batch-memory"]) == (3000, 2**30)
        assert "kubernetes.io/mid-cpu" not in total


@in_virtual_time
async def test_nothing_new_publishes_nothing() -> None:
    world = await world_with()
    async with quota_service(world.server):
        await settle()
        generation = world.status().generation
        await world.put(NODES, "n1", builders.node_inventory("n1", cpu="10", kernel="6.1"))
        await asyncio.sleep(300)
        assert world.status().generation == generation


@in_virtual_time
async def test_a_burst_becomes_one_publication() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        generation = world.status().generation
        for index in range(50):
            await world.pod(f"p{index}", "a", 1)
        await settle()
        assert world.status().generation == generation + 1
        assert world.of("a").request == {"cpu": 50_000}


@in_virtual_time
async def test_a_successor_continues_the_generations_and_tells_nothing_twice() -> None:
    world = await world_with(a=(4, 10), b=(6, 10))
    async with quota_service(world.server):
        await settle()
        await world.running("b1", "b", 9)
        await settle()
    before = world.status()
    async with quota_service(world.server, "quota-2"):
        await settle()
        after = world.status()
        assert after.generation == before.generation + 1
        assert (after.quotas, after.loans) == (before.quotas, before.loans)
        assert world.events() == [("quota.borrowed", "b", "a", 3000)]


@in_virtual_time
async def test_a_standby_takes_over_after_a_crash() -> None:
    world = await world_with(a=(4, 10))
    crashed = service_context(world.server, "quota", instance="first")
    first = asyncio.create_task(QuotaService(crashed, QuotaSettings()).run())
    await settle()
    async with quota_service(world.server, "second") as second:
        await settle()
        assert second.debug_state()["leading"] is False
        crashed.bus.cut()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await world.pod("p", "a", 1)
        await asyncio.sleep(6)
        assert second.debug_state()["leading"] is True
        assert world.of("a").request == {"cpu": 1000}


@in_virtual_time
async def test_a_partition_delays_and_loses_nothing() -> None:
    world = await world_with(a=(4, 10))
    context = service_context(world.server, "quota")
    task = asyncio.create_task(QuotaService(context, QuotaSettings()).run())
    await settle()
    context.bus.partition()
    await world.running("p", "a", 2)
    await asyncio.sleep(20)
    context.bus.heal()
    await asyncio.sleep(10)
    assert world.of("a").used == {"cpu": 2000}
    task.cancel()
    await asyncio.wait([task])


@in_virtual_time
async def test_a_bad_edit_keeps_the_last_good_quota() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        await world.quota("a", 12, 10)
        await settle()
        assert world.of("a").min == {"cpu": 4000}


@in_virtual_time
async def test_a_tree_that_goes_takes_its_status_along() -> None:
    world = World(memory_server())
    await world.quota("g", 1, 1, tree="gpu")
    async with quota_service(world.server):
        await settle()
        assert world.status("gpu").quotas[0].name == "g"
        await world.delete(SPECS, "ElasticQuota.default.g")
        await settle()
        assert world.server.store(QUOTASTATUS).get("gpu") is None


@in_virtual_time
async def test_the_audit_repairs_and_tells() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server) as service:
        await settle()
        await world.running("p", "a", 2)
        await settle()
        service._world.book.remove_pod("uid-p")
        await asyncio.sleep(61)
        assert world.of("a").used == {"cpu": 2000}
        told = [codec.decode(Event, one.data) for one in world.server.events.replay(after_sequence=0, since_ms=None)]
        (repaired,) = [event for event in told if event.type == "ledger.repaired"]
        assert (repaired.object, repaired.uid, repaired.reason) == ("Pod/default/p", "uid-p", "LedgerDrift")
        assert repaired.data["believed"] is None
        assert repaired.data["actual"]["request"] == {"cpu": 2000}


@in_virtual_time
async def test_an_audit_reads_no_manifest_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = pods.read_pod
    monkeypatch.setattr(pods, "read_pod", lambda spec: (read.append(spec.uid), parse(spec))[1])
    world = await world_with(a=(4, 10))
    async with quota_service(world.server) as service:
        await settle()
        await world.running("p", "a", 2)
        await settle()
        assert read == ["uid-p"]
        await asyncio.sleep(3 * 61)
        assert read == ["uid-p"]
        assert service._world.audit() == []
        await world.running("p", "a", 3)
        await settle()
        assert read == ["uid-p", "uid-p"]
        assert world.of("a").used == {"cpu": 3000}


@in_virtual_time
async def test_the_tree_is_served_on_request() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        reply = await requests.call(world.bus, QUOTA_TREE, QuotaTreeRequest(tree="default"), QuotaTreeReply)
        assert [quota["name"] for quota in reply.trees[0]["quotas"]] == [
            "a",
            "koordinator-default-quota",
            "koordinator-system-quota",
        ]


@in_virtual_time
async def test_what_a_crash_left_untold_is_told_by_the_next_leader() -> None:
    world = World(memory_server())
    untold = QuotaChange(kind="borrowed", borrower="b", lender="a", resource="cpu", amount=5, outstanding=5)
    written = QuotaTreeStatus(
        tree="default", generation=7, specs_revision=0, bindings_revision=0, nodes_revision=0,
        total={}, quotas=[], changes=[untold], computed_ms=0,
    )  # fmt: skip
    await world.put(QUOTASTATUS, "default", written)
    async with quota_service(world.server):
        await settle()
        assert world.events() == [("quota.borrowed", "b", "a", 5)]
        assert world.status().generation == 8


@in_virtual_time
async def test_a_lost_status_store_is_written_anew_with_rising_generations() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        generation = world.status().generation
        world.server.lose_bucket(QUOTASTATUS)
        await asyncio.sleep(10)
        assert world.status().generation > generation
        assert [one.name for one in world.status().quotas if one.max] == ["a"]


@in_virtual_time
async def test_a_tree_too_large_for_the_bus_is_told_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server) as service:
        await settle()
        shown = world.status()
        size = len(codec.encode(shown))
        monkeypatch.setattr(memory_store, "MAX_PAYLOAD", size + 200)
        for index in range(5):
            await world.quota(f"b{index}", 0, 10)
        await world.quota("g", 1, 5, tree="gold")
        await settle()
        assert list(service.debug_state()["too_large"]) == ["default"]
        assert (world.status(), world.status("gold").tree) == (shown, "gold")
        monkeypatch.setattr(memory_store, "MAX_PAYLOAD", 10 * size)
        await world.quota("b5", 0, 10)
        await settle()
        assert service.debug_state()["too_large"] == {}
        assert world.of("b5").max == {"cpu": 10_000}


class Gate:
    """The eviction gate's part: remembers what it was asked, answers as told, and marks what it grants."""

    def __init__(self, world: World, refuse: tuple[str, ...] = (), at_a_time: int = 10) -> None:
        self.asked: list[EvictRequest] = []
        self._at_a_time = at_a_time
        self._world = world
        self._refuse = refuse

    async def __aenter__(self) -> "Gate":
        self._serving = await requests.serve(self._world.bus, POD_EVICT, self._answer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._serving.stop()

    async def _answer(self, request: EvictRequest) -> EvictReply:
        self.asked.append(request)
        granted = not any(victim.name in self._refuse for victim in request.victims)
        granted = granted and len(request.victims) <= self._at_a_time
        reason = None if granted else "BudgetExceeded"
        decisions = [VictimDecision(pod=victim, granted=granted, reason=reason) for victim in request.victims]
        return EvictReply(id=request.id, granted=granted, reason=reason, message="", victims=decisions)

    def victims(self) -> list[str]:
        return [victim.name for request in self.asked for victim in request.victims]


@asynccontextmanager
async def borrowing(world: World, gate: Gate, **settings: Any) -> AsyncIterator[QuotaService]:
    """b uses eight of ten, two of them borrowed, and a waits for the four it was promised."""
    await world.node("n1")
    await world.quota("a", 4, 10)
    await world.quota("b", 6, 10)
    for index in range(4):
        await world.running(f"b{index}", "b", 2)
    async with gate, quota_service(world.server, delay_evict_s=10, **settings) as service:
        await settle()
        await world.pod("a1", "a", 4)
        yield service


@in_virtual_time
async def test_what_is_owed_is_asked_back_after_the_delay_for_a_named_beneficiary() -> None:
    world = World(memory_server())
    gate = Gate(world)
    async with borrowing(world, gate):
        await asyncio.sleep(9)
        assert gate.asked == []
        since = world.of("b").over_since_ms
        await asyncio.sleep(3)
        assert world.of("b").over_since_ms == since
        (request,) = gate.asked
        assert (request.kind, request.reason, request.beneficiary) == ("reclaim", "QuotaReclaimed", "ElasticQuota/-/a")
        assert request.numbers["claim"] == 4000
        assert "a waits for 4" in request.message
        await asyncio.sleep(20)
        assert len(gate.asked) == 1, "what the gate granted counts as given while it is on its way"


@in_virtual_time
async def test_a_restart_does_not_begin_the_delay_again() -> None:
    world = World(memory_server())
    gate = Gate(world)
    async with borrowing(world, gate) as first:
        await asyncio.sleep(6)
        assert not first.debug_state()["revocations"]
        async with quota_service(world.server, instance="quota-2", delay_evict_s=10):
            pass
    async with gate, quota_service(world.server, instance="quota-3", delay_evict_s=10):
        await asyncio.sleep(9)
        assert gate.asked


@in_virtual_time
async def test_a_refused_pod_rests_and_another_is_asked_for() -> None:
    world = World(memory_server())
    gate = Gate(world, refuse=("b0",))
    async with borrowing(world, gate):
        await asyncio.sleep(14)
        assert gate.victims()[:2] == ["b0", "b1"]
        assert len(gate.victims()) == 2


@in_virtual_time
async def test_revoking_can_be_switched_off() -> None:
    world = World(memory_server())
    gate = Gate(world)
    async with borrowing(world, gate, monitor_all_quotas=False):
        await asyncio.sleep(60)
        assert world.of("b").over_since_ms is not None
        assert gate.asked == []


@in_virtual_time
async def test_a_drained_queue_is_emptied_and_its_waiting_pods_claim_nothing() -> None:
    world = World(memory_server())
    gate = Gate(world)
    async with borrowing(world, gate):
        await world.quota("b", 6, 10, annotations={"cotenant.io/stop-policy": "HoldAndDrain"})
        await asyncio.sleep(3)
        assert sorted(gate.victims()) == ["b0", "b1", "b2", "b3"]
        assert {(one.kind, one.reason) for one in gate.asked} == {("drain", "QuotaHeld")}
        assert world.of("b").stop_policy == "HoldAndDrain"


@in_virtual_time
async def test_a_gang_larger_than_the_gates_pace_is_drained_all_the_same() -> None:
    world = World(memory_server())
    gate = Gate(world, at_a_time=2)
    await world.node("n1")
    await world.quota("a", 4, 10, annotations={"cotenant.io/stop-policy": "HoldAndDrain"})
    names = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    for index in range(3):
        manifest = builders.pod_manifest(f"p{index}", cpu=1, quota="a", annotations=names)
        record = builders.spec_record(manifest, uid=f"uid-p{index}")
        await world.put(SPECS, builders.spec_key(record), record)
        await world.bind(f"p{index}", "a", 1)
    async with gate, quota_service(world.server):
        await asyncio.sleep(20)
        assert [len(request.victims) for request in gate.asked] == [3, 1, 1, 1]


@in_virtual_time
async def test_a_new_leader_takes_over_though_a_quota_that_was_over_is_gone() -> None:
    world = World(memory_server())
    gate = Gate(world)
    async with borrowing(world, gate):
        await asyncio.sleep(6)
        assert world.of("b").over_since_ms is not None
    await world.delete(SPECS, "ElasticQuota.default.b")
    async with gate, quota_service(world.server, "quota-2", delay_evict_s=0, revoke_interval_s=0.001) as second:
        await asyncio.sleep(5)
        assert second.debug_state()["leading"]
        assert gate.asked == []


@in_virtual_time
async def test_a_profile_has_the_quota_of_its_nodes_written_once() -> None:
    world = World(memory_server())
    asked: list[ApplyRequest] = []

    async def answer(request: ApplyRequest) -> ApplyReply:
        asked.append(request)
        (manifest,) = request.manifests
        record = builders.spec_record(manifest)
        await world.put(SPECS, builders.spec_key(record), record)
        return ApplyReply(id=request.id, ok=True, results=[])

    profile = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"quotaName": "pool", "resourceRatio": "0.5"},
    }
    record = builders.spec_record(profile)
    await world.put(SPECS, builders.spec_key(record), record)
    await world.node("n1")
    serving = await requests.serve(world.bus, OBJECT_APPLY, answer)
    async with quota_service(world.server):
        await asyncio.sleep(35)
        assert [request.requested_by for request in asked] == ["quota for ElasticQuotaProfile/default/all"]
        await world.node("n2")
        await asyncio.sleep(11)
        assert [one.manifests[0]["spec"]["min"]["cpu"] for one in asked] == ["5", "10"]
        assert len({one.id for one in asked}) == 2
    await serving.stop()


@in_virtual_time
async def test_a_deleted_node_has_nothing_to_share_though_its_inventory_stays() -> None:
    world = await world_with()
    await world.node("n2")
    async with quota_service(world.server):
        await settle()
        assert world.status().total["cpu"] == 20_000
        await world.delete(SPECS, builders.spec_key(builders.spec_record(builders.node_manifest("n2"))))
        await settle()
        assert world.status().total["cpu"] == 10_000


@in_virtual_time
async def test_a_quiet_service_publishes_the_first_change_at_once_and_then_keeps_a_pace() -> None:
    world = await world_with(a=(4, 10))
    async with quota_service(world.server):
        await settle()
        await world.pod("p1", "a", 1)
        await asyncio.sleep(0.01)
        first = world.status()
        assert world.of("a").request == {"cpu": 1000}
        await world.pod("p2", "a", 1)
        await asyncio.sleep(0.02)
        assert world.status().generation == first.generation
        await asyncio.sleep(0.05)
        assert world.of("a").request == {"cpu": 2000}
