"""The whole service on the in-memory bus, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.buckets import BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.commands import ExplainReply, ExplainRequest, WhyNotReply, WhyNotRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    Deletion,
    OvercommitRecord,
    PodSchedRecord,
    PodStatusRecord,
    QuotaRuntime,
    QuotaTreeStatus,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage, Usage
from cotenant_common.contracts.subjects import EVENTS_WILDCARD, NODE_USAGE, SCHEDULER_EXPLAIN, SCHEDULER_WHY_NOT
from cotenant_common.runtime import requests
from cotenant_common.runtime.settings import SettingsError, load_settings
from cotenant_common.testing import builders
from cotenant_common.testing.context import EPOCH_MS, memory_server, service_context
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_scheduler.adapters import facts
from cotenant_scheduler.app import SchedulerService
from cotenant_scheduler.config import SchedulerSettings


class Stack:
    """The other services' part: writes what they would write, reads what the scheduler wrote."""

    def __init__(self) -> None:
        self.server = memory_server()
        self.bus = self.server.connect("others")
        self.events: list[Event] = []

    async def put(self, bucket: BucketSpec, key: str, message: Message) -> int:
        return await (await self.bus.bucket(bucket)).put(key, codec.encode(message))

    async def delete(self, bucket: BucketSpec, key: str) -> None:
        await (await self.bus.bucket(bucket)).delete(key)

    async def all(self, bucket: BucketSpec, model: type[Any]) -> dict[str, Any]:
        opened = await self.bus.bucket(bucket)
        entries = [await opened.get(key) for key in await opened.keys()]
        live = [entry for entry in entries if entry and not buckets.is_bookkeeping(entry.key)]
        return {entry.key: codec.decode(model, entry.value) for entry in live}

    async def bindings(self) -> dict[str, Binding]:
        found = await self.all(buckets.BINDINGS, Binding)
        return {binding.name: binding for binding in found.values()}

    async def record(self, name: str) -> PodSchedRecord | None:
        return (await self.all(buckets.PODSCHED, PodSchedRecord)).get(f"uid-{name}")

    async def node(self, name: str, *, spec: Any = None, **fields: Any) -> None:
        await self.put(buckets.NODES, name, builders.node_inventory(name, **fields))
        record = builders.spec_record(builders.node_manifest(name, spec=spec))
        await self.put(buckets.SPECS, builders.spec_key(record), record)

    async def pod(self, name: str, *, uid: str | None = None, deletion: Deletion | None = None, **fields: Any) -> int:
        manifest = builders.pod_manifest(name, **fields)
        now_ms = EPOCH_MS + round(asyncio.get_running_loop().time() * 1000)
        record = builders.spec_record(manifest, uid=uid or f"uid-{name}", created_ms=now_ms, deletion=deletion)
        return await self.put(buckets.SPECS, builders.spec_key(record), record)

    async def remove_pod(self, name: str) -> None:
        await self.delete(buckets.SPECS, f"Pod.default.{name}")

    async def status(self, name: str, node: str, phase: str, **fields: Any) -> None:
        status = PodStatusRecord(uid=f"uid-{name}", namespace="default", name=name, node=node, phase=phase, **fields)
        await self.put(buckets.PODSTATUS, f"{node}.uid-{name}", status)

    async def quota(self, name: str, maximum: int, *, runtime: int | None = None, covers: int, generation: int = 1):
        record = builders.spec_record(builders.quota_manifest(name, maximum={"cpu": f"{maximum}m"}))
        await self.put(buckets.SPECS, builders.spec_key(record), record)
        await self.shares(name, maximum, runtime=runtime, covers=covers, generation=generation)

    async def shares(self, name: str, maximum: int, *, runtime: int | None = None, covers: int, generation: int):
        share = QuotaRuntime(name=name, max={"cpu": maximum}, runtime={"cpu": maximum if runtime is None else runtime})
        status = QuotaTreeStatus(
            tree="default", generation=generation, specs_revision=covers, bindings_revision=0, nodes_revision=0,
            total={}, quotas=[share], computed_ms=0,
        )  # fmt: skip
        await self.put(buckets.QUOTASTATUS, "default", status)

    async def explain(self, name: str) -> ExplainReply:
        request = ExplainRequest(namespace="default", name=name)
        return await requests.call(self.bus, SCHEDULER_EXPLAIN, request, ExplainReply)

    async def why_not(self, name: str, node: str) -> WhyNotReply:
        request = WhyNotRequest(namespace="default", name=name, node=node)
        return await requests.call(self.bus, SCHEDULER_WHY_NOT, request, WhyNotReply)

    async def listen(self) -> None:
        async for received in self.bus.events(EVENTS_WILDCARD, after_sequence=0):
            self.events.append(codec.decode(Event, received.data))

    def told(self, kind: str) -> list[str]:
        return [event.object.split("/")[-1] for event in self.events if event.type == kind]


@asynccontextmanager
async def running(stack: Stack, instance: str = "scheduler-1", **settings: Any) -> AsyncIterator[SchedulerService]:
    context = service_context(stack.server, "scheduler", instance=instance)
    service = SchedulerService(context, SchedulerSettings(**settings))
    service.context = context
    stack.events.clear()
    tasks = [asyncio.create_task(service.run()), asyncio.create_task(stack.listen())]
    try:
        await asyncio.sleep(0.5)
        yield service
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and task.exception():
                raise task.exception()


@in_virtual_time
async def test_a_pod_is_bound_without_any_time_passing():
    stack = Stack()
    await stack.node("n1")
    async with running(stack):
        before = asyncio.get_running_loop().time()
        await stack.pod("a", cpu="1")
        while not await stack.bindings():
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() == before
        await asyncio.sleep(0.1)
        binding = (await stack.bindings())["a"]
        assert (binding.node, binding.attempt, binding.epoch) == ("n1", 1, 1)
        assert binding.requests == {"cpu": 1000}
        assert stack.told("pod.bound") == ["a"]
        assert await stack.record("a") is None


@in_virtual_time
async def test_a_pod_that_fits_nowhere_is_on_record_and_told_once():
    stack = Stack()
    await stack.node("n1")
    async with running(stack):
        await stack.pod("whale", cpu="100")
        await stack.pod("minnow", cpu="1")
        await asyncio.sleep(1)
        record = await stack.record("whale")
        assert (record.state, record.reason, record.nodes_total) == ("Unschedulable", "InsufficientResource", 1)
        assert list(await stack.bindings()) == ["minnow"]
        await stack.node("n1", cpu="5")
        await asyncio.sleep(1)
        assert stack.told("pod.unschedulable") == ["whale"]
        await stack.node("n2", cpu="200")
        await asyncio.sleep(1)
        assert (await stack.bindings())["whale"].node == "n2"
        assert await stack.record("whale") is None


@in_virtual_time
async def test_explain_names_counts_the_nearest_miss_and_what_would_help():
    stack = Stack()
    for i in range(3):
        await stack.node(f"n{i}", cpu=str(i + 1))
    async with running(stack):
        await stack.pod("a", cpu="4")
        await asyncio.sleep(0.1)
        reply = await stack.explain("a")
        assert (reply.state, reply.nodes_total) == ("Unschedulable", 3)
        (refusal,) = reply.refusals
        assert (refusal["reason"], refusal["nodes"], refusal["example_node"]) == ("InsufficientResource", 3, "n2")
        assert reply.helps == ["a smaller request (3 at most on n2) or a bigger node"]
        assert [line["what"] for line in reply.timeline] == ["queued", "refused"]


@in_virtual_time
async def test_explain_tells_where_a_bound_pod_is_and_what_the_others_scored():
    stack = Stack()
    await stack.node("n1")
    await stack.node("n2", cpu="8")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.status("a", "n2", "Running", started_ms=EPOCH_MS + 1000)
        await asyncio.sleep(0.1)
        reply = await stack.explain("a")
        assert (reply.state, reply.node) == ("Running", "n2")
        assert set(reply.scores) == {"n1", "n2"}
        assert [line["what"] for line in reply.timeline] == ["queued", "bound", "started"]
        missing = await stack.explain("nobody")
        assert not missing.found


@in_virtual_time
async def test_why_not_one_node():
    stack = Stack()
    await stack.node("n1", cpu="1")
    await stack.node("n2")
    async with running(stack):
        await stack.pod("a", cpu="2")
        await asyncio.sleep(0.1)
        reply = await stack.why_not("a", "n1")
        assert not reply.fits
        assert reply.reasons[0]["reason"] == "InsufficientResource"
        assert (await stack.why_not("a", "n2")).fits
        assert "no node nowhere" in (await stack.why_not("a", "nowhere")).message


@in_virtual_time
async def test_an_inventory_without_a_node_object_takes_nobody():
    """An inventory alone may be what a dead machine left behind."""
    stack = Stack()
    await stack.put(buckets.NODES, "n1", builders.node_inventory("n1"))
    async with running(stack):
        await stack.pod("a")
        await asyncio.sleep(0.1)
        assert (await stack.record("a")).reason == "NodeNotReady"
        await stack.node("n1")
        await asyncio.sleep(1)
        assert list(await stack.bindings()) == ["a"]


@in_virtual_time
async def test_batch_is_admitted_up_to_what_is_sold_and_the_rest_says_why():
    stack = Stack()
    await stack.node("n1")
    sold = OvercommitRecord(node="n1", batch={"kubernetes.io/batch-cpu": 2500}, computed_ms=0)
    async with running(stack):
        for i in range(4):
            await stack.pod(f"be{i}", band="batch", qos="BE", cpu="1")
        await asyncio.sleep(0.1)
        assert await stack.bindings() == {}
        await stack.put(buckets.OVERCOMMIT, "n1", sold)
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["be0", "be1"]
        await asyncio.sleep(5)
        assert "has 500m left of 2500m sold" in (await stack.record("be3")).message


@in_virtual_time
async def test_a_pod_that_ended_frees_its_room_though_its_binding_stays():
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await stack.pod("b", cpu="1")
        await asyncio.sleep(0.1)
        (first,) = await stack.bindings()
        await stack.status(first, "n1", "Succeeded")
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["a", "b"]


@in_virtual_time
async def test_a_deletion_mark_keeps_the_charge_until_the_agent_says_it_ended():
    stack = Stack()
    await stack.node("n1", cpu="1")
    mark = Deletion(at_ms=0, grace_ms=0, reason="Deleted", message="", requested_by="user")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.pod("a", cpu="1", deletion=mark)
        await stack.pod("b", cpu="1")
        await asyncio.sleep(1)
        assert sorted(await stack.bindings()) == ["a"]
        await stack.status("a", "n1", "Deleted")
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["a", "b"]
        await stack.remove_pod("a")
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["b"]


@in_virtual_time
async def test_a_deleted_pod_that_waits_is_never_bound():
    stack = Stack()
    mark = Deletion(at_ms=0, grace_ms=0, reason="Deleted", message="", requested_by="user")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.pod("a", cpu="1", deletion=mark)
        await stack.node("n1")
        await asyncio.sleep(2)
        assert await stack.bindings() == {}


@in_virtual_time
async def test_a_successor_under_the_same_name_is_another_pod():
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.pod("a", cpu="1", uid="uid-a2")
        await asyncio.sleep(1)
        found = await stack.all(buckets.BINDINGS, Binding)
        assert list(found) == ["uid-a2.n1"]


@in_virtual_time
async def test_a_refused_bind_is_recorded_and_tried_elsewhere_in_one_batch():
    stack = Stack()
    await stack.node("n1")
    await stack.node("n2")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        first = (await stack.bindings())["a"].node
        await stack.status("a", first, "Pending", rejected=True, reason="InsufficientResource", message="full")
        await asyncio.sleep(0.1)
        found = await stack.all(buckets.BINDINGS, Binding)
        (binding,) = found.values()
        assert (binding.attempt, binding.node) == (2, "n2" if first == "n1" else "n1")
        assert len(found) == 1
        assert stack.told("pod.bound") == ["a", "a"]


@in_virtual_time
async def test_a_refused_bind_waits_for_the_back_off_when_there_is_no_other_node():
    stack = Stack()
    await stack.node("n1")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.status("a", "n1", "Pending", rejected=True, reason="InsufficientResource", message="full")
        await asyncio.sleep(5)
        record = await stack.record("a")
        assert record.rejected_bindings == ["n1: InsufficientResource"]
        assert record.state == "Rejected"
        assert (await stack.bindings())["a"].attempt == 1
        await asyncio.sleep(6)
        assert (await stack.bindings())["a"].attempt == 2
        await stack.status("a", "n1", "Pending", rejected=True, attempt=1, reason="InsufficientResource")
        await asyncio.sleep(1)
        assert (await stack.bindings())["a"].attempt == 2


@in_virtual_time
async def test_a_quota_is_charged_and_waited_for():
    stack = Stack()
    await stack.node("n1", cpu="10")
    await stack.quota("team", 2000, covers=100)
    async with running(stack):
        for i in range(3):
            await stack.pod(f"p{i}", cpu="1", quota="team")
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["p0", "p1"]
        assert (await stack.bindings())["p0"].quota == "team"
        assert "cpu used 2 + requested 1 > max 2" in (await stack.record("p2")).message
        assert (await stack.explain("p2")).quota["chain"][0]["used"] == {"cpu": 2000}
        await stack.shares("team", 3000, covers=100, generation=2)
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["p0", "p1", "p2"]


@in_virtual_time
async def test_a_stale_quota_is_said_after_two_hundred_milliseconds():
    stack = Stack()
    await stack.node("n1")
    await stack.quota("team", 2000, covers=0)
    async with running(stack):
        revision = await stack.pod("a", cpu="1", quota="team")
        await asyncio.sleep(0.19)
        assert await stack.record("a") is None
        await asyncio.sleep(0.02)
        assert (await stack.record("a")).reason == "QuotaStatusStale"
        await stack.shares("team", 2000, covers=revision, generation=2)
        await asyncio.sleep(0.1)
        assert list(await stack.bindings()) == ["a"]


@in_virtual_time
async def test_a_restart_charges_what_runs_and_not_what_ended():
    stack = Stack()
    await stack.node("n1", cpu="4")
    async with running(stack):
        for name in ("a", "b", "c", "d"):
            await stack.pod(name, cpu="1")
        await asyncio.sleep(0.1)
        for name in ("a", "b"):
            await stack.status(name, "n1", "Succeeded")
        await stack.status("c", "n1", "Running")
        await asyncio.sleep(0.1)
    async with running(stack, instance="scheduler-2") as service:
        assert service.debug_state()["placed"] == 2
        assert service.debug_state()["epoch"] == 2
        for name in ("e", "f", "g"):
            await stack.pod(name, cpu="1")
        await asyncio.sleep(0.1)
        assert len(await stack.bindings()) == 6
        assert (await stack.record("g")).reason == "InsufficientResource"
        await asyncio.sleep(65)
        assert service.debug_state()["repaired"] == 0
        assert sorted(stack.told("pod.bound")) == ["a", "b", "c", "d", "e", "f"]


@in_virtual_time
async def test_a_spec_that_went_while_the_scheduler_was_away_takes_its_binding_along():
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
    await stack.remove_pod("a")
    async with running(stack):
        await asyncio.sleep(1)
        assert await stack.bindings() == {}
        await stack.pod("b", cpu="1")
        await asyncio.sleep(0.1)
        assert list(await stack.bindings()) == ["b"]


@in_virtual_time
async def test_a_standby_takes_over_and_the_deposed_writes_nothing():
    stack = Stack()
    await stack.node("n1", cpu="2")
    async with running(stack, "one") as first, running(stack, "two") as second:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        assert first.debug_state()["leading"]
        assert not second.debug_state()["leading"]
        first.context.bus.partition()
        await asyncio.sleep(10)
        assert second.debug_state()["leading"]
        await stack.pod("b", cpu="1")
        await asyncio.sleep(0.1)
        first.context.bus.heal()
        await asyncio.sleep(10)
        found = await stack.bindings()
        assert (found["a"].epoch, found["b"].epoch) == (1, 2)
        assert not first.debug_state()["leading"]


@in_virtual_time
async def test_a_bus_that_was_away_for_a_moment_loses_nothing():
    stack = Stack()
    await stack.node("n1", cpu="2")
    async with running(stack) as service:
        stack.server.stop()
        await asyncio.sleep(1)
        stack.server.start()
        await stack.pod("a", cpu="1")
        await asyncio.sleep(15)
        assert list(await stack.bindings()) == ["a"]
        assert service.context.health.ready


@in_virtual_time
async def test_a_ledger_that_is_wrong_is_repaired_counted_and_told():
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack) as service:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        service._state.engine.ledger.release("uid-a")
        await asyncio.sleep(31)
        assert service.debug_state()["placed"] == 1
        assert service.debug_state()["repaired"] == 1
        (event,) = [event for event in stack.events if event.type == "ledger.repaired"]
        assert event.object == "Pod/default/a"
        assert "believed nothing, is node n1" in event.message
        await asyncio.sleep(61)
        assert service.debug_state()["repaired"] == 1


@in_virtual_time
async def test_an_ended_pod_stays_ended_when_its_status_goes_before_its_binding():
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack) as service:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.status("a", "n1", "Failed")
        await asyncio.sleep(0.1)
        await stack.delete(buckets.PODSTATUS, "n1.uid-a")
        await asyncio.sleep(0.1)
        assert service.debug_state()["placed"] == 0


@in_virtual_time
async def test_a_pod_removed_by_force_frees_its_room_with_its_binding():
    """The agent is dead: no terminal status ever comes."""
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack) as service:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.remove_pod("a")
        await asyncio.sleep(0.1)
        assert await stack.bindings() == {}
        assert service.debug_state()["placed"] == 0


@in_virtual_time
async def test_best_effort_and_service_run_side_by_side_when_both_fit():
    stack = Stack()
    await stack.node("n1", memory="5Gi")
    await stack.put(buckets.OVERCOMMIT, "n1", OvercommitRecord(node="n1", batch={"memory": 1 << 30}, computed_ms=0))
    async with running(stack):
        await stack.pod("be", band="batch", qos="BE", memory="500Mi")
        await stack.pod("ls", band="prod", qos="LS", memory="500Mi")
        await asyncio.sleep(0.1)
        assert sorted(await stack.bindings()) == ["be", "ls"]


@in_virtual_time
async def test_usage_steers_to_the_cooler_node():
    stack = Stack()
    await stack.node("hot", cpu="8")
    await stack.node("cool", cpu="8")
    async with running(stack):
        for node, cpu in (("hot", 7000), ("cool", 100)):
            usage = Usage(cpu_milli=cpu, memory_bytes=1 << 30)
            sample = NodeUsage(node=node, at_ms=EPOCH_MS, interval_ms=1000, usage=usage, system=Usage(), pods=[])
            await requests.publish(stack.bus, NODE_USAGE, sample, node=node)
        await asyncio.sleep(0.1)
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        assert (await stack.bindings())["a"].node == "cool"


@in_virtual_time
async def test_many_pods_are_bound_in_few_batches():
    stack = Stack()
    for i in range(5):
        await stack.node(f"n{i}", cpu="100")
    async with running(stack):
        for i in range(300):
            await stack.pod(f"p{i:03}", cpu="1")
        await asyncio.sleep(1)
        found = await stack.bindings()
        assert len(found) == 300
        assert len(stack.told("pod.bound")) == 300
        ids = [event.id for event in stack.events if event.type == "pod.bound"]
        bucket = await stack.bus.bucket(buckets.BINDINGS)
        for binding in list(found.values())[:20]:
            entry = await bucket.get(f"{binding.uid}.{binding.node}")
            assert f"bindings/{entry.key}/{entry.revision}" in ids


@in_virtual_time
async def test_an_unreadable_pod_stops_nobody():
    stack = Stack()
    await stack.node("n1")
    async with running(stack):
        await stack.pod("bad", cpu="nonsense")
        await stack.pod("good", cpu="1")
        await asyncio.sleep(0.1)
        assert list(await stack.bindings()) == ["good"]
        assert (await stack.explain("bad")).state == "Unreadable"


def configuration(arguments: str) -> dict[str, Any]:
    text = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: LoadAwareScheduling
    args: {arguments}
"""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "koord-scheduler-config", "namespace": "koordinator-system"},
        "data": {"koord-scheduler-config": text},
    }


@in_virtual_time
async def test_the_config_map_changes_the_policy_without_a_restart():
    stack = Stack()
    await stack.node("n1", cpu="10")

    async def configure(arguments: str) -> None:
        record = builders.spec_record(configuration(arguments))
        await stack.put(buckets.SPECS, builders.spec_key(record), record)
        await asyncio.sleep(0.1)

    async with running(stack):
        usage = Usage(cpu_milli=9000, memory_bytes=1 << 30)
        sample = NodeUsage(node="n1", at_ms=EPOCH_MS, interval_ms=1000, usage=usage, system=Usage(), pods=[])
        await requests.publish(stack.bus, NODE_USAGE, sample, node="n1")
        await stack.pod("before", cpu="1")
        await asyncio.sleep(0.1)
        await configure("{usageThresholds: {cpu: 65}}")
        await stack.pod("during", cpu="1")
        await asyncio.sleep(0.1)
        assert (await stack.record("during")).reason == "LoadThresholdExceeded"
        await configure("{usageThresholds: {disk: 65}}")
        assert list(await stack.bindings()) == ["before"]
        await configure("{}")
        assert sorted(await stack.bindings()) == ["before", "during"]


@in_virtual_time
async def test_a_pod_that_breaks_a_plugin_does_not_stop_the_others(monkeypatch):
    from cotenant_scheduler.core.cycle import Cycle

    choose = Cycle.choose

    def breaks(self, pod, excluded=()):
        if pod.name == "poison":
            raise ZeroDivisionError
        return choose(self, pod, excluded)

    monkeypatch.setattr(Cycle, "choose", breaks)
    stack = Stack()
    await stack.node("n1")
    async with running(stack) as service:
        await stack.pod("poison", cpu="1")
        await stack.pod("fine", cpu="1")
        await asyncio.sleep(1)
        assert list(await stack.bindings()) == ["fine"]
        assert service.debug_state()["leading"]


async def refuse_all(stack: Stack, seconds: float) -> list[tuple[int, str]]:
    """Every agent refuses every binding of pod ``a``; what was tried, in order."""
    tried = []
    for _ in range(round(seconds / 0.1)):
        for binding in (await stack.bindings()).values():
            if not tried or tried[-1][0] != binding.attempt:
                tried.append((binding.attempt, binding.node))
                await stack.status(
                    "a", binding.node, "Pending", rejected=True, attempt=binding.attempt, reason="X", message="no"
                )
        await asyncio.sleep(0.1)
    return tried


@in_virtual_time
async def test_a_pod_that_every_node_refuses_does_not_go_round_in_circles():
    stack = Stack()
    await stack.node("n1")
    await stack.node("n2")
    async with running(stack):
        await stack.pod("a", cpu="1")
        tried = await refuse_all(stack, 9)
        assert [attempt for attempt, _ in tried] == [1, 2]
        assert len({node for _, node in tried}) == 2
        record = await stack.record("a")
        assert (record.state, record.reason) == ("Rejected", "BindRejected")


@in_virtual_time
async def test_a_restart_notes_a_refusal_no_second_time():
    stack = Stack()
    await stack.node("n1")
    async with running(stack):
        await stack.pod("a", cpu="1")
        tried = await refuse_all(stack, 13)
        assert [attempt for attempt, _ in tried] == [1, 2]
        before = (await stack.record("a")).rejected_bindings
    async with running(stack):
        await asyncio.sleep(1)
        assert (await stack.record("a")).rejected_bindings == before == ["n1: X"]


@in_virtual_time
async def test_a_pod_that_becomes_unreadable_is_not_placed_as_it_was():
    stack = Stack()
    async with running(stack):
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        await stack.pod("a", cpu="nonsense")
        await stack.node("n1")
        await asyncio.sleep(2)
        assert await stack.bindings() == {}


@in_virtual_time
async def test_a_quota_store_made_anew_is_believed_though_its_generations_start_again():
    stack = Stack()
    await stack.node("n1", cpu="10")
    await stack.quota("team", 1000, covers=1000, generation=7)
    async with running(stack):
        await stack.pod("a", cpu="2", quota="team")
        await asyncio.sleep(0.1)
        await stack.shares("team", 2000, covers=1000, generation=1)
        await asyncio.sleep(0.1)
        assert list(await stack.bindings()) == ["a"]


@in_virtual_time
async def test_a_placement_on_its_way_is_not_undone_by_older_news_of_the_pod():
    """The second attempt is being stored while the first one's refusal disappears."""
    stack = Stack()
    await stack.node("n1", cpu="1")
    await stack.node("n2", cpu="1")
    async with running(stack) as service:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        first = (await stack.bindings())["a"].node
        state = service._state
        engine = state.engine
        engine.release("uid-a")
        other = "n2" if first == "n1" else "n1"
        engine.exclude("uid-a", first, 10**15)
        state.in_flight["uid-a"] = None
        engine.put_charge(replace(state.charge("uid-a"), node=other))
        state.refresh_pod("uid-a")
        state.audit()
        assert engine.ledger.get("uid-a").node == other


@in_virtual_time
async def test_a_bindings_store_made_anew_gets_back_what_was_bound():
    """Otherwise the next restart would find running pods without a binding, and bind them a second time."""
    stack = Stack()
    await stack.node("n1")
    await stack.node("n2")
    async with running(stack) as service:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(0.1)
        before = await stack.bindings()
        stack.server.lose_bucket(buckets.BINDINGS)
        await asyncio.sleep(10)
        assert service.debug_state()["leading"]
        assert await stack.bindings() == before
    async with running(stack) as service:
        assert service.debug_state()["placed"] == 1
        assert await stack.bindings() == before


@in_virtual_time
async def test_a_bus_that_is_away_at_the_start_is_waited_for():
    stack = Stack()
    await stack.node("n")
    await stack.pod("a", cpu="1")
    context = service_context(stack.server, "scheduler", instance="scheduler-1")
    context.bus.partition()
    service = SchedulerService(context, SchedulerSettings())
    task = asyncio.create_task(service.run())
    await asyncio.sleep(30)
    assert not task.done()
    context.bus.heal()
    await asyncio.sleep(10)
    assert (await stack.bindings())["a"].node == "n"
    task.cancel()
    await asyncio.wait([task])


@in_virtual_time
async def test_the_kernel_is_used_where_the_settings_ask_for_it():
    pytest.importorskip("numba", reason="the kernel needs numba, an optional speed-up")
    stack = Stack()
    await stack.node("n")
    await stack.pod("a", cpu="1")
    async with running(stack, fused_kernel="on") as service:
        await asyncio.sleep(5)
        assert service._state.engine.fused
        assert (await stack.bindings())["a"].node == "n"


@in_virtual_time
async def test_small_clusters_do_without_the_kernel():
    stack = Stack()
    await stack.node("n")
    async with running(stack) as service:
        await asyncio.sleep(5)
        assert not service._state.engine.fused


def test_settings_that_name_an_unknown_plugin_are_refused_at_once():
    plugins = {"score": {"enabled": [{"name": "Nobody"}]}}
    settings = load_settings(SchedulerSettings, overrides={"plugins": plugins})
    with pytest.raises(SettingsError, match="no plugin Nobody is installed"):
        SchedulerService(service_context(Stack().server, "scheduler"), settings)


@in_virtual_time
async def test_an_audit_makes_the_charge_of_a_pod_anew_only_when_something_about_it_changed(monkeypatch):
    made = []
    make = facts.charge_from
    monkeypatch.setattr(
        facts, "charge_from", lambda binding, *rest: (made.append(binding.uid), make(binding, *rest))[1]
    )
    stack = Stack()
    await stack.node("n1", cpu="1")
    async with running(stack) as service:
        await stack.pod("a", cpu="1")
        await asyncio.sleep(31)
        assert "uid-a" in made
        made.clear()
        await asyncio.sleep(120)
        assert made == []
        assert service.debug_state()["repaired"] == 0


@in_virtual_time
async def test_while_the_bus_is_slow_no_more_is_decided_than_may_wait_for_it():
    stack = Stack()
    await stack.node("n1", cpu="100")
    async with running(stack, bind_batch=5, bind_backlog=10) as service:
        store = service._bindings.batch

        async def slowly(operations):
            if len(operations) > 1:  # the lease is renewed as quickly as ever
                await asyncio.sleep(1)
            return await store(operations)

        service._bindings.batch = slowly
        for i in range(60):
            await stack.pod(f"p{i:02}", cpu="1")
        for _ in range(5):
            await asyncio.sleep(1)
            assert 0 < len(service._state.in_flight) <= 15
        await asyncio.sleep(20)
        assert len(await stack.bindings()) == 60
        assert stack.told("pod.bound") == sorted(stack.told("pod.bound"))


@in_virtual_time
async def test_pods_are_read_before_taking_over_and_with_pauses():
    """Thousands that all differ take longer to read than a lease lives."""
    stack = Stack()
    await stack.node("n1", cpu="1000")
    async with running(stack) as service:
        for i in range(300):
            await stack.pod(f"p{i:03}", cpu=f"{100 + i}m")
        await asyncio.sleep(1)
        state = service._state
        state._requests.clear()
        reading = asyncio.create_task(state.read_ahead(state.profile))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 4
        read = dict(state._requests)
        assert len(read) == 300
        state.rebuild()
        assert all(state.request(uid) is request for uid, request in read.items())
