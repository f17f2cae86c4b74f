"""The whole agent on the in-memory bus, in virtual time, on a node in memory."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from cotenant_agent.app import AgentService
from cotenant_agent.cgroup.fake import FakeCgroupTree
from cotenant_agent.cgroup.files import Knob
from cotenant_agent.cgroup.tree import GroupBusyError
from cotenant_agent.config import AgentSettings
from cotenant_agent.testing import FakeNode, fake_node
from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.bus.protocol import BusUnavailableError
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.messages.commands import EmergencyUsed, EvictReply, EvictRequest, LogsReply, LogsRequest
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    Binding,
    Deletion,
    NodeInventory,
    PodStatusRecord,
    PolicyRecord,
)
from cotenant_common.contracts.messages.telemetry import AppLatency, NodeSignal, NodeUsage
from cotenant_common.model import labels
from cotenant_common.model.digest import spec_digest
from cotenant_common.model.pod import parse_pod
from cotenant_common.runtime import requests
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.events import Announcer
from cotenant_common.testing.builders import pod_manifest, spec_key, spec_record
from cotenant_common.testing.context import EPOCH_MS, memory_server, service_context
from cotenant_common.testing.virtual_loop import in_virtual_time

NODE = "n1"
GIB = 1 << 30


class World:
    """Everybody but the agent: writes specs, bindings and policies, and reads what comes back."""

    def __init__(self, server: MemoryServer, node: FakeNode) -> None:
        self.server = server
        self.node = node
        self.bus = server.connect("world")
        self.usage: list[NodeUsage] = []
        self.signals: list[NodeSignal] = []
        self.context = None

    async def open(self) -> None:
        self.specs = await self.bus.bucket(buckets.SPECS)
        self.bindings = await self.bus.bucket(buckets.BINDINGS)
        self.policies = await self.bus.bucket(buckets.POLICIES)
        self.statuses = await self.bus.bucket(buckets.PODSTATUS)
        self.nodes = await self.bus.bucket(buckets.NODES)
        self.heartbeats = await self.bus.bucket(buckets.HEARTBEATS)
        await requests.subscribe(self.bus, subjects.NODE_USAGE, self._on_usage)
        await requests.subscribe(self.bus, subjects.NODE_SIGNAL, self._on_signal)

    async def _on_usage(self, message: NodeUsage) -> None:
        self.usage.append(message)

    async def _on_signal(self, message: NodeSignal) -> None:
        self.signals.append(message)

    async def submit(self, name: str, *, bind: bool = True, digest: str | None = None, attempt: int = 1, **fields):
        record = spec_record(pod_manifest(name, **fields))
        await self.specs.put(spec_key(record), codec.encode(record))
        if bind:
            await self.bind(record, digest=digest, attempt=attempt)
        return record

    async def bind(self, record, *, digest: str | None = None, attempt: int = 1) -> None:
        pod = parse_pod(record.manifest, uid=record.uid)
        binding = Binding(
            uid=record.uid,
            namespace="default",
            name=record.name,
            node=NODE,
            attempt=attempt,
            epoch=1,
            spec_digest=digest or spec_digest(record.manifest["spec"]),
            requests=dict(pod.requests),
            bound_ms=0,
        )
        await self.bindings.put(f"{record.uid}.{NODE}", codec.encode(binding))

    async def unbind(self, record) -> None:
        await self.bindings.delete(f"{record.uid}.{NODE}")

    async def mark_deleted(self, record, grace_ms: int = 5_000, reason: str = "Deleted") -> None:
        deletion = Deletion(at_ms=0, grace_ms=grace_ms, reason=reason, message="as asked", requested_by="user")
        await self.specs.put(spec_key(record), codec.encode(record.model_copy(update={"deletion": deletion})))

    async def status(self, record) -> PodStatusRecord | None:
        entry = await self.statuses.get(f"{NODE}.{record.uid}")
        return None if entry is None or entry.value is None else codec.decode(PodStatusRecord, entry.value)

    async def until(self, record, condition, seconds: float = 30.0) -> PodStatusRecord:
        """Poll in virtual time; the last status is in the failure."""
        status = None
        for _ in range(int(seconds * 20)):
            status = await self.status(record)
            if status is not None and condition(status):
                return status
            await asyncio.sleep(0.05)
        raise AssertionError(f"never so: {status}")

    async def gone(self, record) -> None:
        for _ in range(600):
            if await self.status(record) is None:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"still there: {await self.status(record)}")

    def events(self, kind: str) -> list[str]:
        return [subject for subject in event_subjects(self.server) if f".evt.{kind}." in subject]

    @asynccontextmanager
    async def agent(self, **settings):
        context = service_context(self.server, "agent")
        self.context = context
        chosen = AgentSettings(node=NODE, **settings)
        service = AgentService(context, chosen, self.node.ports)
        task = asyncio.create_task(service.run())
        try:
            for _ in range(400):
                if context.health.ready or task.done():
                    break
                await asyncio.sleep(0.05)
            if task.done():
                task.result()
            yield service
        finally:
            context.bus.cut()
            task.cancel()
            with suppress(asyncio.CancelledError, ExceptionGroup):
                await task


def event_subjects(server: MemoryServer) -> list[str]:
    return [received.subject for received in server.events.replay(after_sequence=0, since_ms=None)]


async def world(**node) -> World:
    clock = LoopClock(EPOCH_MS)
    made = World(memory_server(), fake_node(clock.now_ms, **node))
    await made.open()
    return made


def running(status: PodStatusRecord) -> bool:
    return status.phase == "Running"


def terminal(status: PodStatusRecord) -> bool:
    return status.terminal


@in_virtual_time
async def test_a_node_registers_and_keeps_a_heartbeat_that_expires_with_it():
    w = await world()
    async with w.agent(reserved_cpu_milli=500):
        entry = await w.nodes.get(NODE)
        inventory = codec.decode(NodeInventory, entry.value)
        assert (inventory.allocatable["cpu"], inventory.idle_class, inventory.cpus) == (3_500, True, "0-3")
        await asyncio.sleep(20)
        assert (await w.heartbeats.get(NODE)) is not None
    await asyncio.sleep(12)
    assert (await w.heartbeats.get(NODE)) is None
    assert w.events("node.registered")


@in_virtual_time
async def test_a_bound_pod_runs_in_its_own_group_with_its_limits():
    w = await world()
    async with w.agent():
        record = await w.submit(
            "batch", qos="BE", band="batch", cpu="500m", limits={"kubernetes.io/batch-memory": "1Gi"}
        )
        status = await w.until(record, lambda s: s.ready)
        assert (status.phase, status.attempt, status.restarts, status.run_as) == ("Running", 1, 0, "tester")
        group = f"{NODE}/be/pod{record.uid}"
        assert w.node.tree.read(group, Knob.CPU_SHARES) == 512
        assert w.node.tree.read(group, Knob.CPU_QUOTA) == -1
        assert w.node.tree.read(group, Knob.MEMORY_MAX) == GIB
        assert w.node.tree.read(f"{NODE}/be", Knob.CPU_IDLE) == 1
    assert [len(w.events(kind)) for kind in ("pod.started", "pod.ready")] == [1, 1]


@in_virtual_time
async def test_a_finished_pod_is_told_once_and_its_group_goes():
    w = await world()
    async with w.agent():
        record = await w.submit("job", spec={"restartPolicy": "Never"})
        await w.until(record, running)
        w.node.runtime.finish(record.uid, code=0)
        status = await w.until(record, terminal)
        assert (status.phase, status.exit_code, status.reason) == ("Succeeded", 0, "Completed")
        await asyncio.sleep(1)
        assert not w.node.tree.exists(f"{NODE}/be/pod{record.uid}")
    assert len(w.events("pod.finished")) == 1


@in_virtual_time
async def test_a_crash_loop_backs_off_and_a_memory_kill_is_named():
    w = await world()
    async with w.agent():
        record = await w.submit("crash")
        await w.until(record, running)
        for restarts in range(3):
            await w.until(record, lambda s, n=restarts: s.restarts == n and s.containers[0].state == "Running")
            w.node.runtime.finish(record.uid, code=1, oom_killed=True)
            status = await w.until(record, lambda s: s.containers[0].state == "Waiting")
            assert status.reason == "CrashLoopBackOff"
            assert status.containers[0].reason == "OOMKilled"
        assert "restart in 4000 ms" in status.message
    assert len(w.events("pod.restarted")) == 2


@in_virtual_time
async def test_a_start_that_fails_is_tried_again_or_ends_by_the_policy():
    w = await world()
    w.node.runtime.refuses = {"never": "'nope' is not on the PATH", "always": "'nope' is not on the PATH"}
    async with w.agent():
        never = await w.submit("never", spec={"restartPolicy": "Never"})
        always = await w.submit("always")
        status = await w.until(never, terminal)
        assert (status.phase, status.reason) == ("Failed", "StartFailed")
        assert "nope" in status.message
        await w.until(always, lambda s: s.reason == "StartFailed")
        w.node.runtime.refuses.clear()
        await w.until(always, running)


@in_virtual_time
async def test_a_deletion_mark_stops_the_pod_and_the_gone_spec_clears_the_status():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        await w.mark_deleted(record, grace_ms=7_000, reason="NodeHot")
        status = await w.until(record, terminal)
        assert (status.phase, status.reason) == ("Deleted", "NodeHot")
        assert w.node.runtime.stops == [(record.uid, 7_000)]
        await w.specs.delete(spec_key(record))
        await w.gone(record)
        await w.unbind(record)
        await asyncio.sleep(1)
        assert record.uid in w.node.runtime.removed


@in_virtual_time
async def test_a_second_order_without_grace_ends_the_wait():
    w = await world()
    w.node.runtime.stop_takes_s = 20
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        await w.mark_deleted(record, grace_ms=60_000)
        await asyncio.sleep(1)
        assert w.node.tree.kills == []
        await w.mark_deleted(record, grace_ms=0)
        await asyncio.sleep(1)
        assert w.node.tree.kills == [f"{NODE}/be/pod{record.uid}"]
        await w.until(record, terminal)
        assert len(w.node.runtime.stops) == 1


@in_virtual_time
async def test_without_rights_to_groups_batch_runs_in_the_idle_scheduling_class():
    w = await world()
    w.node.ports = replace(w.node.ports, tree=None, writer=None)
    async with w.agent():
        batch = await w.submit("batch", qos="BE", band="batch", cpu="500m")
        web = await w.submit("web", cpu="500m")
        await w.until(batch, running)
        await w.until(web, running)
        by_name = {launch.name: launch.containers[0] for launch in w.node.runtime.launches}
        assert (by_name["batch"].sched_idle, by_name["batch"].nice) == (True, 19)
        assert (by_name["web"].sched_idle, by_name["web"].nice) == (False, None)
        await asyncio.sleep(3)
        assert w.usage[-1].be_limit_milli is None
        await w.mark_deleted(batch)
        await w.until(batch, terminal)


@in_virtual_time
async def test_a_pod_deleted_before_it_ran_never_starts():
    w = await world()
    async with w.agent():
        record = await w.submit("late", bind=False)
        await w.mark_deleted(record)
        await w.bind(record)
        status = await w.until(record, terminal)
        assert status.phase == "Deleted"
        assert w.node.runtime.launches == []


@in_virtual_time
async def test_a_binding_of_another_spec_is_refused_and_the_next_attempt_runs():
    w = await world()
    async with w.agent():
        record = await w.submit("web", digest="0000")
        status = await w.until(record, lambda s: s.rejected)
        assert (status.phase, status.reason, status.attempt) == ("Pending", "BindRejected", 1)
        await w.bind(record, attempt=2)
        status = await w.until(record, running)
        assert (status.rejected, status.attempt) == (False, 2)
    assert len(w.events("pod.rejected")) == 1


@in_virtual_time
async def test_a_refused_pod_that_is_deleted_still_gets_its_terminal_status():
    w = await world()
    async with w.agent():
        record = await w.submit("web", digest="0000")
        await w.until(record, lambda s: s.rejected)
        await w.mark_deleted(record)
        status = await w.until(record, terminal)
        assert (status.phase, status.rejected) == ("Deleted", False)


@in_virtual_time
async def test_an_observing_agent_runs_pods_and_writes_no_knob():
    w = await world()
    async with w.agent(observe=True):
        record = await w.submit("web", cpu="1")
        await w.until(record, running)
        w.node.sampler.rates = {"node": 3_000, "ls": 3_000, "be": 0, "system": 0}
        await asyncio.sleep(5)
        assert w.node.tree.writes == []
        assert w.usage[-1].be_limit_message is not None


@in_virtual_time
async def test_what_does_not_fit_the_slice_is_refused_with_the_numbers():
    w = await world(cpus=2)
    async with w.agent():
        first = await w.submit("first", cpu="1500m")
        await w.until(first, running)
        second = await w.submit("second", cpu="1")
        status = await w.until(second, lambda s: s.rejected)
        assert status.reason == "InsufficientResource"
        assert "500m" in status.message


@in_virtual_time
async def test_a_field_that_processes_cannot_honour_is_refused_by_name():
    w = await world()
    async with w.agent():
        record = await w.submit("init", spec={"initContainers": [{"name": "a"}]})
        status = await w.until(record, lambda s: s.rejected)
        assert "initContainers" in status.message


@in_virtual_time
async def test_a_binding_may_come_before_its_spec():
    w = await world()
    async with w.agent():
        record = spec_record(pod_manifest("early"))
        await w.bind(record)
        await asyncio.sleep(1)
        await w.specs.put(spec_key(record), codec.encode(record))
        await w.until(record, running)


@in_virtual_time
async def test_a_restarted_agent_adopts_and_starts_nothing_twice():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        done = await w.submit("done", spec={"restartPolicy": "Never"})
        await w.until(record, running)
        await w.until(done, running)
        w.node.runtime.finish(done.uid)
        await w.until(done, terminal)
    async with w.agent():
        status = await w.until(record, lambda s: s.reason == "Adopted")
        assert (status.phase, status.ready, status.restarts) == ("Running", True, 0)
        await asyncio.sleep(5)
        assert len(w.node.runtime.launches) == 2
        w.node.runtime.finish(record.uid, code=3)
        await w.until(record, lambda s: s.restarts == 1)


@in_virtual_time
async def test_what_ended_while_the_agent_was_away_is_judged_on_return():
    w = await world()
    async with w.agent():
        record = await w.submit("job", spec={"restartPolicy": "Never"})
        await w.until(record, running)
    w.node.runtime.finish(record.uid, code=4)
    async with w.agent():
        status = await w.until(record, terminal)
        assert (status.phase, status.exit_code) == ("Failed", 4)


@in_virtual_time
async def test_a_pod_unbound_while_the_agent_was_away_is_an_orphan():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
    await w.unbind(record)
    await w.specs.delete(spec_key(record))
    async with w.agent():
        await w.gone(record)
        assert record.uid in w.node.runtime.removed


@in_virtual_time
async def test_absence_from_a_new_world_is_not_deletion():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
    for spec in (buckets.BINDINGS, buckets.SPECS, buckets.PODSTATUS):
        w.server.lose_bucket(spec)
    async with w.agent():
        await asyncio.sleep(120)
        assert w.node.runtime.stops == []
        assert w.node.runtime.containers(record.uid)[0].running


@in_virtual_time
async def test_a_store_lost_under_a_running_agent_stops_nothing():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        for spec in (buckets.BINDINGS, buckets.SPECS, buckets.PODSTATUS):
            w.server.lose_bucket(spec)
        await asyncio.sleep(200)
        assert w.node.runtime.stops == []


@in_virtual_time
async def test_without_a_bus_nothing_changes_and_enforcement_goes_on():
    w = await world()
    async with w.agent():
        record = await w.submit("web", spec={"restartPolicy": "Always"})
        await w.until(record, running)
        w.node.sampler.rates = {"node": 1_000, "ls": 800, "be": 100, "system": 0}
        w.server.stop()
        await asyncio.sleep(10)
        before = w.node.tree.read(f"{NODE}/be", Knob.CPU_QUOTA)
        w.node.sampler.rates = {"node": 3_500, "ls": 3_300, "be": 100, "system": 0}
        await asyncio.sleep(10)
        after = w.node.tree.read(f"{NODE}/be", Knob.CPU_QUOTA)
        assert w.node.runtime.stops == []
        assert 0 < after < before
        w.node.runtime.finish(record.uid, code=1)
        await asyncio.sleep(3)
        assert w.node.runtime.containers(record.uid)[0].running
        w.server.start()
        await w.until(record, lambda s: s.restarts == 1)


@in_virtual_time
async def test_a_lost_copy_of_a_binding_is_found_by_the_next_snapshot():
    w = await world()
    async with w.agent(snapshot_interval_ms=5_000):
        w.context.bus.partition()
        record = await w.submit("web")
        w.context.bus.heal()
        await w.until(record, running)


@in_virtual_time
async def test_usage_is_published_each_second_with_what_best_effort_may_use():
    w = await world()
    async with w.agent():
        record = await w.submit("batch", qos="BE", band="batch", cpu="1")
        await w.until(record, running)
        w.node.sampler.rates = {"node": 2_000, "ls": 1_000, "be": 700, "system": 0, record.uid: 700}
        await asyncio.sleep(5.5)
        last = w.usage[-1]
        assert (last.usage.cpu_milli, last.system.cpu_milli, last.be_usage_milli) == (2_000, 300, 700)
        assert (last.be_limit_milli, last.be_limit_reason) == (2_500, "Suppressed")
        assert last.pods[0].cpu_milli == 700
        assert 900 < last.interval_ms < 1_100
        assert "95%" in last.be_limit_message


@in_virtual_time
async def test_a_policy_changes_the_line_and_observing_gives_everything_back():
    w = await world()
    async with w.agent():
        w.node.sampler.rates = {"node": 1_000, "ls": 1_000, "be": 0, "system": 0}
        slo = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65}}
        policy = PolicyRecord(node=NODE, slo=slo, colocation={})
        await w.policies.put(NODE, codec.encode(policy))
        await asyncio.sleep(5)
        assert w.node.tree.read(f"{NODE}/be", Knob.CPU_QUOTA) == 160_000
        await w.policies.put(NODE, codec.encode(policy.model_copy(update={"observe": True})))
        await asyncio.sleep(5)
        assert w.node.tree.read(f"{NODE}/be", Knob.CPU_QUOTA) == -1
        assert w.node.tree.read(f"{NODE}/be", Knob.CPU_IDLE) == 0
        await w.policies.put(NODE, codec.encode(policy))
        await asyncio.sleep(5)
        assert w.node.tree.read(f"{NODE}/be", Knob.CPU_QUOTA) == 160_000


@in_virtual_time
async def test_waiting_services_make_best_effort_step_back_and_the_end_is_told():
    w = await world()
    async with w.agent():
        record = await w.submit("web", qos="LS", cpu="1")
        await w.until(record, running)
        w.node.sampler.rates = {"node": 3_000, "ls": 500, "be": 2_500, "system": 0, record.uid: 500}
        w.node.sampler.waits = {record.uid: 9.0}
        await asyncio.sleep(8)
        assert w.usage[-1].be_limit_reason == "LatencyGuard"
        assert "default/web waits 9.0 ms" in w.usage[-1].be_limit_message
        w.node.sampler.waits = {record.uid: 0.1}
        await asyncio.sleep(60)
        assert w.usage[-1].be_limit_reason == "Suppressed"
    assert [len(w.events(f"interference.{kind}")) for kind in ("detected", "cleared")] == [1, 1]


@in_virtual_time
async def test_a_missed_target_is_heard_and_signalled():
    w = await world()
    async with w.agent():
        slo = {labels.LATENCY_SLO: '{"percentile": 99, "milliseconds": 10}'}
        record = await w.submit("web", qos="LS", cpu="1", annotations=slo)
        await w.until(record, running)
        w.node.sampler.rates = {"node": 3_000, "ls": 500, "be": 2_500, "system": 0, record.uid: 500}
        for _ in range(8):
            latency = AppLatency(namespace="default", pod="web", at_ms=0, window_ms=1_000, count=9, p99_ms=31.0)
            await requests.publish(w.bus, subjects.APP_LATENCY, latency, namespace="default", pod="web")
            await asyncio.sleep(1)
        assert "answers in 31.0 ms" in w.usage[-1].be_limit_message
        assert w.signals[-1].pods[0].latency_ms == 31.0
        assert len(w.signals) > 20


@in_virtual_time
async def test_nothing_is_signalled_before_a_pod_has_a_target_or_after_it_left():
    w = await world()
    async with w.agent():
        plain = await w.submit("plain", qos="LS", cpu="1")
        await w.until(plain, running)
        await asyncio.sleep(3)
        assert w.signals == []
        slo = {labels.LATENCY_SLO: '{"percentile": 99, "milliseconds": 10}'}
        record = await w.submit("web", qos="LS", cpu="1", annotations=slo)
        await w.until(record, running)
        await asyncio.sleep(3)
        assert w.signals
        w.node.runtime.finish(record.uid)
        await w.mark_deleted(record)
        await w.until(record, terminal)
        await asyncio.sleep(1)
        told = len(w.signals)
        await asyncio.sleep(10)
        assert len(w.signals) == told


@in_virtual_time
async def test_a_report_of_an_unchanged_node_has_its_own_time():
    w = await world()
    async with w.agent():
        w.node.sampler.rates = {"node": 1_000, "ls": 500, "be": 0, "system": 0}
        await asyncio.sleep(10)
        told = w.usage[-3:]
        assert [later.at_ms - earlier.at_ms for earlier, later in pairwise(told)] == [1_000, 1_000]
        assert told[0].model_copy(update={"at_ms": told[-1].at_ms}) == told[-1]


def crowded(w: World, *uids: str) -> None:
    w.node.sampler.memory = {"node": 7_800 << 20} | dict.fromkeys(uids, 600 << 20)


@in_virtual_time
async def test_memory_pressure_asks_the_gate_for_one_victim_at_a_time():
    w = await world()
    asked: list[EvictRequest] = []

    async def gate(request: EvictRequest) -> EvictReply:
        asked.append(request)
        return EvictReply(id=request.id, granted=True, message="granted")

    await requests.serve(w.bus, subjects.POD_EVICT, gate)
    async with w.agent():
        pods = [await w.submit(name, qos="BE", band="batch", cpu="100m") for name in ("a", "b")]
        for record in pods:
            await w.until(record, running)
        crowded(w, *(record.uid for record in pods))
        await asyncio.sleep(3)
        assert [request.victims[0].name for request in asked] == ["b"]
        assert (asked[0].kind, asked[0].reason) == ("emergency", "NodePressure")
        assert asked[0].numbers["used_percent"] == 95


@in_virtual_time
async def test_without_a_gate_the_allowance_is_spent_counted_and_reported():
    w = await world()
    reports: list[EmergencyUsed] = []

    async def gate(report: EmergencyUsed) -> EvictReply:
        reports.append(report)
        return EvictReply(id=report.id, granted=True, message="counted")

    async with w.agent(emergency_allowance=1) as agent:
        pods = [await w.submit(name, qos="BE", band="batch", cpu="100m") for name in ("a", "b", "c")]
        for record in pods:
            await w.until(record, running)
        crowded(w, *(record.uid for record in pods))
        await asyncio.sleep(30)
        ended = [record for record in pods if not w.node.runtime.containers(record.uid)[0].running]
        assert [record.name for record in ended] == ["c"]
        status = await w.until(ended[0], terminal)
        assert (status.phase, status.reason) == ("Failed", "NodePressure")
        assert agent.debug_state()["emergencies"] == {"used": 1, "left": 0}
        w.node.sampler.memory = {"node": GIB}
        await requests.serve(w.bus, subjects.EMERGENCY_USED, gate)
        await asyncio.sleep(10)
        assert [report.victim.name for report in reports] == ["c"]
        assert agent.debug_state()["emergencies"] == {"used": 1, "left": 1}
    assert len(w.events("emergency.used")) == 1


@in_virtual_time
async def test_logs_are_served_in_pages():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        w.node.logs.pages[record.uid, "main"] = "one\ntwo\nthree\n"

        async def ask(**fields) -> LogsReply:
            request = LogsRequest(uid=record.uid, **fields)
            return await requests.call(w.bus, subjects.AGENT_LOGS, request, LogsReply, node=NODE)

        first = await ask(tail_lines=2)
        assert (first.text, first.running) == ("two\nthree\n", True)
        w.node.logs.pages[record.uid, "main"] += "four\n"
        assert (await ask(after=first.cursor)).text == "four\n"
        wrong = await ask(container="side")
        assert not wrong.found
        assert wrong.message == "no container 'side'; the pod has main"
        never = await requests.call(w.bus, subjects.AGENT_LOGS, LogsRequest(uid="none"), LogsReply, node=NODE)
        assert (never.found, "no container of this pod was started" in never.message) == (False, True)


@pytest.mark.parametrize("cpus", ["", "x", "3-1"])
def test_a_slice_that_is_no_cpu_list_is_refused(cpus):
    with pytest.raises(ValueError, match="cpu"):
        AgentSettings(node=NODE, cpus=cpus)


class SlowWrites:
    """A bucket whose writes take a moment, so that things happen while one is under way."""

    def __init__(self, bucket):
        self._bucket = bucket

    def __getattr__(self, name):
        return getattr(self._bucket, name)

    async def put(self, key, value, *, ttl_s=None):
        await asyncio.sleep(0.5)
        return await self._bucket.put(key, value, ttl_s=ttl_s)

    async def delete(self, key, *, revision=None):
        await asyncio.sleep(2)
        await self._bucket.delete(key, revision=revision)


@in_virtual_time
async def test_an_event_names_the_write_that_tells_of_it():
    w = await world()
    async with w.agent() as agent:
        agent._pods._bucket = SlowWrites(agent._pods._bucket)
        record = await w.submit("job", spec={"restartPolicy": "Never"})
        while not w.node.runtime.containers(record.uid):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        w.node.runtime.finish(record.uid)
        await w.until(record, terminal)
        await asyncio.sleep(1)
        written = await w.statuses.get(f"{NODE}.{record.uid}")
    stored = w.server.events.replay(after_sequence=0, since_ms=None)
    events = [codec.decode(Event, received.data) for received in stored]
    (finished,) = [event for event in events if event.type == "pod.finished"]
    assert (finished.data["phase"], finished.id.split("/")[2]) == ("Succeeded", str(written.revision))


@in_virtual_time
async def test_a_status_that_goes_never_takes_the_next_attempts_along():
    w = await world()
    async with w.agent() as agent:
        record = await w.submit("web", digest="0000")
        await w.until(record, lambda s: s.rejected)
        agent._pods._bucket = SlowWrites(agent._pods._bucket)
        await w.unbind(record)
        await asyncio.sleep(0.1)
        await w.bind(record, attempt=2)
        await w.until(record, running)
        await asyncio.sleep(5)
        assert running(await w.status(record))


@in_virtual_time
async def test_a_pod_deleted_at_the_moment_of_its_refusal_gets_its_terminal_status():
    w = await world()
    async with w.agent() as agent:
        agent._pods._bucket = SlowWrites(agent._pods._bucket)
        record = await w.submit("web", digest="0000")
        await asyncio.sleep(0.1)
        await w.mark_deleted(record)
        status = await w.until(record, terminal)
        assert status.phase == "Deleted"
        await asyncio.sleep(2)
    assert len(w.events("pod.finished")) == 1


@in_virtual_time
async def test_a_pod_with_processes_left_is_not_told_as_gone():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        w.node.runtime.unkillable = 1
        await w.mark_deleted(record, grace_ms=1_000)
        await asyncio.sleep(20)
        status = await w.status(record)
        assert not status.terminal
        assert "1 of its processes do not end" in status.message
        w.node.runtime.unkillable = 0
        await w.until(record, terminal)


@in_virtual_time
async def test_a_pod_half_started_by_a_dead_agent_is_completed():
    w = await world()
    two = [{"name": "main", "command": ["true"]}, {"name": "side", "command": ["true"]}]
    async with w.agent():
        record = await w.submit("web", spec={"containers": two})
        await w.until(record, running)
    w.node.runtime.lose(record.uid, "side")
    async with w.agent():
        await w.until(record, lambda s: s.ready and len(s.containers) == 2)
        assert [state.attempt for state in w.node.runtime.containers(record.uid)] == [0, 0]


@in_virtual_time
async def test_the_end_of_an_undone_attempt_restarts_nothing():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        (state,) = w.node.runtime.containers(record.uid)
        w.node.runtime.tell_end(replace(state, attempt=7, exit_code=1))
        await asyncio.sleep(5)
        status = await w.status(record)
        assert (status.restarts, status.reason) == (0, "Started")


@in_virtual_time
async def test_room_of_an_ended_pod_is_free_although_its_group_lingers():
    w = await world(cpus=2, tree=LingeringTree(cpus="0-1"))
    async with w.agent():
        first = await w.submit("first", cpu="1500m", spec={"restartPolicy": "Never"})
        await w.until(first, running)
        w.node.runtime.finish(first.uid)
        await w.until(first, terminal)
        second = await w.submit("second", cpu="1500m")
        await w.until(second, running, seconds=2)


class LingeringTree(FakeCgroupTree):
    """Groups of pods that cannot be removed."""

    def remove(self, group):
        raise GroupBusyError(group)


@in_virtual_time
async def test_an_agent_restarted_without_a_bus_loosens_nothing():
    w = await world()
    async with w.agent():
        owner = await w.submit("db", qos="LSE", cpu="1", memory="4Gi")
        await w.until(owner, running)
        w.node.sampler.rates = {"node": 2_000, "ls": 1_900, "be": 0, "system": 0}
        w.node.sampler.memory = {"be": 0}
        await asyncio.sleep(3)
    knobs = (Knob.CPUSET_CPUS, Knob.MEMORY_MAX, Knob.CPU_QUOTA)
    w.node.tree.write(f"{NODE}/be", Knob.CPUSET_CPUS, "1-3")
    before = {knob: w.node.tree.read(f"{NODE}/be", knob) for knob in knobs}
    assert before[Knob.MEMORY_MAX] == 4 * GIB
    w.server.stop()
    w.node.sampler.rates = {"node": 100, "ls": 100, "be": 0, "system": 0}
    async with w.agent():
        await asyncio.sleep(30)
        assert {knob: w.node.tree.read(f"{NODE}/be", knob) for knob in knobs} == before
        w.server.start()
        await asyncio.sleep(30)
        assert w.node.tree.read(f"{NODE}/be", Knob.CPU_QUOTA) > before[Knob.CPU_QUOTA]
        assert w.node.tree.read(f"{NODE}/be", Knob.CPUSET_CPUS) == "0-3"


@in_virtual_time
async def test_a_bus_that_fails_while_old_events_are_told_does_not_end_the_agent(monkeypatch):
    w = await world()
    tries = []
    catch_up = Announcer.catch_up

    async def fails_once(self, *arguments):
        tries.append(self)
        if len(tries) == 1:
            raise BusUnavailableError("gone for a moment")
        return await catch_up(self, *arguments)

    monkeypatch.setattr(Announcer, "catch_up", fails_once)
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
    assert len(tries) == 2


@in_virtual_time
async def test_a_store_made_anew_is_told_of_the_node_and_its_pods():
    w = await world()
    async with w.agent():
        record = await w.submit("web")
        await w.until(record, running)
        for spec in (buckets.NODES, buckets.PODSTATUS):
            w.server.lose_bucket(spec)
        await w.until(record, running)
        for _ in range(200):
            if await w.nodes.get(NODE) is not None:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("never registered again")


@in_virtual_time
async def test_a_pod_that_cannot_be_read_is_refused_and_harms_no_other():
    w = await world()
    async with w.agent():
        bad = await w.submit("bad", spec={"terminationGracePeriodSeconds": "soon"})
        status = await w.until(bad, lambda s: s.rejected)
        assert "no pod that can be read" in status.message
        await w.unbind(bad)
        good = await w.submit("good")
        await w.until(good, running)


@in_virtual_time
async def test_a_sampler_that_fails_once_ends_no_loop(monkeypatch):
    w = await world()
    async with w.agent():
        slo = {labels.LATENCY_SLO: '{"percentile": 99, "milliseconds": 10}'}
        record = await w.submit("web", qos="LS", cpu="1", annotations=slo)
        await w.until(record, running)
        monkeypatch.setattr(type(w.node.sampler), "sample_pods", _broken)
        await asyncio.sleep(1)
        monkeypatch.undo()
        heard = len(w.signals)
        await asyncio.sleep(2)
        assert len(w.signals) > heard


def _broken(*_):
    raise OSError("no such device")
