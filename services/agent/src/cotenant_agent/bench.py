"""What the agent itself costs: the whole service at its real pace, on real groups where there are rights to them."""

import asyncio
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotenant_agent.adapters.ports import NodePorts
from cotenant_agent.app import AgentService
from cotenant_agent.cgroup.teardown import remove_everything
from cotenant_agent.cgroup.tree import CgroupTree
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.usage import GROUPS
from cotenant_agent.node import open_groups, read_facts
from cotenant_agent.runtime import ContainerState, PodLaunch
from cotenant_agent.testing import FakeRuntime, fake_node
from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.bus.protocol import Bus
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.model.digest import spec_digest
from cotenant_common.model.pod import parse_pod
from cotenant_common.runtime.clock import SystemClock
from cotenant_common.runtime.health import Health
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.telemetry.logging import get_logger
from cotenant_common.telemetry.metrics import null_metrics
from cotenant_common.testing.builders import pod_manifest, spec_key, spec_record

NODE = "bench"
TARGET_PERCENT = 2.0
_READY_S = 60.0


class _Sleepers(FakeRuntime):
    """One sleeping process per pod, in the pod's group: starting them is not what is measured."""

    def __init__(self, tree: CgroupTree) -> None:
        super().__init__(SystemClock().now_ms)
        self._tree = tree
        self._processes: list[subprocess.Popen[bytes]] = []

    async def start(self, launch: PodLaunch) -> tuple[ContainerState, ...]:
        self._sleep_in(next(g for name in GROUPS if self._tree.exists(g := f"{NODE}/{name}/pod{launch.uid}")))
        return await super().start(launch)

    def _sleep_in(self, group: str) -> None:
        process = subprocess.Popen(["sleep", "86400"], stdin=subprocess.DEVNULL)
        self._processes.append(process)
        self._tree.attach(group, process.pid)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


async def measure_agent(pods: int = 50, seconds: float = 20.0, *, real_groups: bool = True) -> dict[str, Any]:
    """Percent of one core over `seconds`, bus client included; half of the pods are latency-sensitive."""
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as state:
        settings = AgentSettings(node=NODE, cgroup_root=f"cotenant-bench-{os.getpid()}", state_dir=Path(state))
        ports, sleepers, kind = _ports(settings, real_groups=real_groups)
        try:
            return await _measure(settings, ports, pods, seconds) | {"groups": kind}
        finally:
            if sleepers is not None:
                sleepers.end()
            if sleepers is not None and ports.writer is not None:
                remove_everything(ports.writer)


def _ports(settings: AgentSettings, *, real_groups: bool) -> tuple[NodePorts, _Sleepers | None, str]:
    node = fake_node(SystemClock().now_ms)
    tree, writer = open_groups(settings)
    if tree is None or writer is None or not real_groups:
        return node.ports, None, "in memory"
    from cotenant_agent.collect.sampler import NodeSampler  # noqa: PLC0415 - opens files of /proc

    sleepers = _Sleepers(tree)
    facts = replace(read_facts(settings), runtime="simulated")
    return (
        replace(node.ports, facts=facts, tree=tree, writer=writer, sampler=NodeSampler(tree), runtime=sleepers),
        sleepers,
        f"real, {tree.version.value}",
    )


async def _measure(settings: AgentSettings, ports: NodePorts, pods: int, seconds: float) -> dict[str, Any]:
    server = MemoryServer(SystemClock())
    await _submit(server.connect("world"), pods)
    context = _context(server)
    service = AgentService(context, settings, ports)
    running = asyncio.create_task(service.run())
    try:
        await _until_placed(running, ports, pods)
        cpu, wall, measured = time.process_time(), time.monotonic(), ports.sampler.cost_us
        await asyncio.sleep(seconds)
        elapsed = time.monotonic() - wall
        percent = 100 * (time.process_time() - cpu) / elapsed
        sampling = (ports.sampler.cost_us - measured) / 10_000 / elapsed
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, ExceptionGroup):
            await running
    return {
        "pods": pods,
        "seconds": round(elapsed, 1),
        "cpu_percent": round(percent, 2),
        "sampling_percent": round(sampling, 2),
        "target_percent": TARGET_PERCENT,
        "ok": percent < TARGET_PERCENT,
    }


def _context(server: MemoryServer) -> ServiceContext:
    clock = SystemClock()
    bus = server.connect("agent")
    log = get_logger("bench")
    return ServiceContext("agent", bus, clock, log, null_metrics(), Health(clock), "bench-1")


async def _until_placed(running: "asyncio.Task[None]", ports: NodePorts, pods: int) -> None:
    """Raise TimeoutError, or what the service failed with."""
    async with asyncio.timeout(_READY_S):
        while len(ports.runtime.containers()) < pods:
            if running.done():
                running.result()
            await asyncio.sleep(0.1)
    await asyncio.sleep(2)


async def _submit(bus: Bus, pods: int) -> None:
    specs, bindings = await bus.bucket(buckets.SPECS), await bus.bucket(buckets.BINDINGS)
    for number in range(pods):
        best_effort = number % 2 == 0
        manifest = (
            pod_manifest(f"be-{number}", qos="BE", band="batch", cpu="10m")
            if best_effort
            else pod_manifest(f"ls-{number}", qos="LS", cpu="10m")
        )
        record = spec_record(manifest)
        await specs.put(spec_key(record), codec.encode(record))
        binding = Binding(
            uid=record.uid,
            namespace="default",
            name=record.name,
            node=NODE,
            attempt=1,
            epoch=1,
            spec_digest=spec_digest(record.manifest["spec"]),
            requests=dict(parse_pod(record.manifest, uid=record.uid).requests),
            bound_ms=0,
        )
        await bindings.put(f"{record.uid}.{NODE}", codec.encode(binding))
