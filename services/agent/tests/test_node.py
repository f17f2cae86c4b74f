"""The agent on this very machine: real groups, real processes, the in-memory bus."""

import asyncio
import os
import pwd
import sys
import time
from contextlib import suppress

import pytest

from cotenant_agent.app.enforce import Enforcer
from cotenant_agent.cgroup.files import Knob
from cotenant_agent.cgroup.layout import detect_layout
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.usage import GROUPS
from cotenant_agent.node import SliceError, build_agent, end_node, open_groups, open_node, read_facts
from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.contracts import buckets, codec, subjects
from cotenant_common.contracts.messages.state import Binding, Deletion, PodStatusRecord
from cotenant_common.model.digest import spec_digest
from cotenant_common.model.pod import parse_pod
from cotenant_common.runtime import requests
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.testing.builders import pod_manifest, spec_key, spec_record
from cotenant_common.testing.context import service_context

LAYOUT = detect_layout()
needs_groups = pytest.mark.skipif(LAYOUT.version is None, reason=f"no rights to cgroups here: {LAYOUT.reason}")
USER = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
async def settings(tmp_path):
    tmp_path.chmod(0o755)
    chosen = AgentSettings(
        node="n1",
        cgroup_root=f"cotenant-test-{os.getpid()}",
        state_dir=tmp_path / "state",
        usage_interval_ms=200,
        default_user=USER,
    )
    yield chosen
    await end_node(chosen, grace_ms=0)


async def eventually(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := await condition()) is not None:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("not in time")


class Store:
    def __init__(self, server):
        self.server = server
        self.bus = server.connect("world")

    async def submit(self, manifest):
        record = spec_record(manifest)
        specs, bindings = await self.bus.bucket(buckets.SPECS), await self.bus.bucket(buckets.BINDINGS)
        await specs.put(spec_key(record), codec.encode(record))
        binding = Binding(
            uid=record.uid,
            namespace="default",
            name=record.name,
            node="n1",
            attempt=1,
            epoch=1,
            spec_digest=spec_digest(record.manifest["spec"]),
            requests=dict(parse_pod(record.manifest, uid=record.uid).requests),
            bound_ms=0,
        )
        await bindings.put(f"{record.uid}.n1", codec.encode(binding))
        return record

    async def delete(self, record):
        deletion = Deletion(at_ms=0, grace_ms=500, reason="Deleted", message="asked", requested_by="test")
        specs = await self.bus.bucket(buckets.SPECS)
        await specs.put(spec_key(record), codec.encode(record.model_copy(update={"deletion": deletion})))

    async def phase(self, record, phase):
        statuses = await self.bus.bucket(buckets.PODSTATUS)

        async def look():
            entry = await statuses.get(f"n1.{record.uid}")
            if entry is None or entry.value is None:
                return None
            status = codec.decode(PodStatusRecord, entry.value)
            return status if status.phase == phase else None

        return await eventually(look)


class Agent:
    def __init__(self, server, settings):
        self.context = service_context(server, "agent", clock=SystemClock())
        self.task = asyncio.create_task(build_agent(self.context, settings).run())

    async def stop(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError, ExceptionGroup):
            await self.task
        await self.context.bus.close()


@needs_groups
async def test_a_best_effort_pod_runs_is_adopted_and_leaves_nothing(settings):
    server = MemoryServer(SystemClock())
    store = Store(server)
    agent = Agent(server, settings)
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    record = await store.submit(pod_manifest("spin", qos="BE", band="batch", cpu="100m", command=spin))
    status = await store.phase(record, "Running")
    pid = status.containers[0].pid
    tree, _ = open_groups(settings)
    group = f"n1/be/pod{record.uid}"
    assert pid in tree.pids(group)
    assert tree.read("n1/be", Knob.CPU_IDLE) in {1, None}
    assert tree.read(group, Knob.PIDS_MAX) in {4_096, None}

    async def capped():
        quota = tree.read("n1/be", Knob.CPU_QUOTA)
        return quota if quota not in {None, -1} else None

    await eventually(capped)
    await agent.stop()
    assert pid in tree.pids(group)
    agent = Agent(server, settings)
    try:
        status = await store.phase(record, "Running")
        assert status.containers[0].pid == pid
        await store.delete(record)
        await store.phase(record, "Deleted")
    finally:
        await agent.stop()
    end = await end_node(settings, grace_ms=0)
    assert end.clean
    assert not tree.exists("")


@needs_groups
async def test_leaving_a_node_ends_its_pods_and_restores_its_knobs(settings):
    server = MemoryServer(SystemClock())
    store = Store(server)
    agent = Agent(server, settings)
    record = await store.submit(pod_manifest("web", cpu="100m", command=["sleep", "600"]))
    await store.phase(record, "Running")
    await agent.stop()
    end = await end_node(settings, grace_ms=200)
    assert (end.pods_stopped, end.processes_left, end.restored.differences) == (1, 0, ())
    assert end.clean
    assert end.restored.written_back > 0


async def test_a_machine_without_groups_uses_the_scheduling_class_and_still_measures(tmp_path):
    tmp_path.chmod(0o755)
    chosen = AgentSettings(
        node="n1", cgroup_fs=tmp_path / "none", state_dir=tmp_path / "state", usage_interval_ms=200, default_user=USER
    )
    server = MemoryServer(SystemClock())
    store = Store(server)
    seen = []

    async def on_usage(message):
        seen.extend(pod.cpu_milli for pod in message.pods if pod.cpu_milli)

    await requests.subscribe(store.bus, subjects.NODE_USAGE, on_usage)
    agent = Agent(server, chosen)
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    record = await store.submit(pod_manifest("spin", qos="BE", band="batch", cpu="100m", command=spin))
    try:
        status = await store.phase(record, "Running")
        assert os.sched_getscheduler(status.containers[0].pid) == os.SCHED_IDLE

        async def measured():
            return seen or None

        await eventually(measured)
    finally:
        await agent.stop()
        end = await end_node(chosen, grace_ms=0)
    assert end.groups_removed is None
    assert end.clean


def test_a_slice_larger_than_the_machine_is_refused():
    with pytest.raises(SliceError, match="cpus"):
        read_facts(AgentSettings(node="n1", cpus="0-4095"))
    with pytest.raises(SliceError, match="memory_bytes"):
        read_facts(AgentSettings(node="n1", memory_bytes=1 << 60))


def test_the_facts_of_a_slice_are_its_own():
    facts = read_facts(AgentSettings(node="n1", cpus="0", memory_bytes=1 << 30))
    assert (facts.capacity["cpu"], facts.capacity["memory"]) == (1_000, 1 << 30)
    assert facts.labels["kubernetes.io/hostname"] == "n1"


@needs_groups
async def test_the_groups_of_a_slice_cannot_leave_it(settings):
    chosen = settings.model_copy(update={"cpus": "0"})
    ports = open_node(chosen, SystemClock())
    try:
        Enforcer(ports, chosen).prepare(0)
        assert {ports.tree.effective_cpus(f"n1/{name}") for name in GROUPS} == {(0,)}
    finally:
        ports.sampler.close()
        ports.runtime.close()
