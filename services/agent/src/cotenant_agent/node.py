"""The real machine behind the service's ports, and how to leave it as it was found."""

import asyncio
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cotenant_agent.adapters.freeze_file import FreezeFiles
from cotenant_agent.adapters.log_pages import LogFiles
from cotenant_agent.adapters.ports import NodeFacts, NodePorts
from cotenant_agent.adapters.spec_files import SpecFiles
from cotenant_agent.app import AgentService
from cotenant_agent.capability import probe
from cotenant_agent.cgroup.hierarchy import HierarchyTree
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.layout import detect_layout, open_tree
from cotenant_agent.cgroup.teardown import remove_everything
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.cgroup.writer import KnobWriter, RestoreReport
from cotenant_agent.collect.proc import cpu_topology, online_cpus, parse_meminfo
from cotenant_agent.collect.process_sampler import ProcessSampler
from cotenant_agent.collect.sampler import NodeSampler, Sampler
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.cpuset import parse_cpuset
from cotenant_agent.runtime import PodRuntime, RuntimeSettings
from cotenant_common.model import labels
from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_common.runtime.clock import Clock, SystemClock
from cotenant_common.runtime.service import ServiceContext

_ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
_STOP_GRACE_MS = 5_000


class SliceError(ValueError):
    """The slice asks for what the machine does not have."""


def read_facts(settings: AgentSettings) -> NodeFacts:
    """Raise SliceError when the slice is larger than the machine."""
    online = online_cpus(settings.sys_fs)
    cpus = online if settings.cpus is None else parse_cpuset(settings.cpus)
    absent = [cpu for cpu in cpus if cpu not in online]
    if absent:
        raise SliceError(f"cpus: expected some of those online ({online}), got {absent} besides")
    memory = parse_meminfo((settings.proc_fs / "meminfo").read_bytes())
    if memory is None:
        raise SliceError(f"{settings.proc_fs}/meminfo does not say how much memory there is")
    wanted = settings.memory_bytes or memory.total_bytes
    if wanted > memory.total_bytes:
        raise SliceError(f"memory_bytes: expected at most {memory.total_bytes}, got {wanted}")
    uname = platform.uname()
    return NodeFacts(
        capacity={CPU: 1_000 * len(cpus), MEMORY: wanted, PODS: settings.max_pods},
        cpus=cpu_topology(cpus, settings.sys_fs),
        whole_machine=cpus == online,
        boot_id=(settings.proc_fs / "sys/kernel/random/boot_id").read_text().strip(),
        kernel=uname.release,
        cpu_model=_cpu_model(settings.proc_fs),
        labels={
            labels.HOSTNAME: settings.node,
            labels.ARCH: _ARCHITECTURES.get(uname.machine, uname.machine),
            labels.OS: uname.system.lower(),
        },
        capabilities=probe(settings.cgroup_fs, settings.proc_fs, settings.sys_fs).as_data(),
    )


def _cpu_model(proc_fs: Path) -> str | None:
    try:
        lines = (proc_fs / "cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def open_groups(settings: AgentSettings) -> tuple[HierarchyTree | None, KnobWriter | None]:
    tree = open_tree(detect_layout(settings.cgroup_fs, settings.proc_fs), settings.cgroup_root)
    return tree, None if tree is None else KnobWriter(tree, KnobJournal(settings.journal_path))


def runtime_settings(settings: AgentSettings) -> RuntimeSettings:
    return RuntimeSettings(state_dir=settings.state_dir, default_user=settings.default_user)


def open_node(settings: AgentSettings, clock: Clock) -> NodePorts:
    """Inside a running event loop. Raise SliceError, OSError when the state directory cannot be made."""
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = read_facts(settings)
    tree, writer = open_groups(settings)
    runtime = PodRuntime(runtime_settings(settings), now_ms=clock.now_ms, environ=os.environ)
    sampler = _sampler(settings, facts, tree, runtime)
    logs, freeze = LogFiles(runtime_settings(settings)), FreezeFiles(settings.state_dir)
    specs = SpecFiles(settings.state_dir / "specs")
    return NodePorts(facts, tree, writer, sampler, runtime, logs, specs=specs, freeze=freeze)


def _sampler(settings: AgentSettings, facts: NodeFacts, tree: HierarchyTree | None, runtime: PodRuntime) -> Sampler:
    cpus = None if facts.whole_machine else tuple(cpu.cpu for cpu in facts.cpus)
    if tree is not None:
        return NodeSampler(tree, proc=settings.proc_fs, slice_cpus=cpus, slice_bytes=settings.memory_bytes)
    return ProcessSampler(
        lambda uid: [pid for state in runtime.containers(uid) for pid in (state.shim_pid, state.pid) if pid],
        proc=settings.proc_fs,
        slice_cpus=cpus,
        slice_bytes=settings.memory_bytes,
    )


def build_agent(context: ServiceContext, settings: AgentSettings) -> AgentService:
    return AgentService(context, settings, open_node(settings, context.clock))


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """`groups_removed` is None where there were no rights to groups, so none were made."""

    pods_stopped: int
    processes_killed: int
    processes_left: int
    groups_removed: bool | None
    restored: RestoreReport

    @property
    def clean(self) -> bool:
        return self.processes_left == 0 and self.groups_removed is not False and not self.restored.differences


async def end_node(settings: AgentSettings, grace_ms: int = _STOP_GRACE_MS) -> NodeEnd:
    """End every pod of this node, write every knob back, remove every group. The agent must have stopped before."""
    tree, writer = open_groups(settings)
    runtime = PodRuntime(runtime_settings(settings), now_ms=SystemClock().now_ms, environ=os.environ)
    left = 0
    try:
        uids = sorted({state.uid for state in await runtime.adopt() if state.running})
        # Side by side: the slowest pod, not their sum, is what a user waits for.
        left = sum(result.left for result in await asyncio.gather(*(runtime.stop(uid, grace_ms) for uid in uids)))
    finally:
        runtime.close()
    if tree is None or writer is None:
        return NodeEnd(len(uids), 0, left, None, RestoreReport(0, 0))
    report = remove_everything(writer, settings.node)
    remaining = len(tree.pids(settings.node))
    if not tree.children(""):
        # Other agents may share the root; the last one to leave takes it along.
        try:
            tree.remove("")
        except CgroupError:
            return NodeEnd(len(uids), report.killed, left + remaining, False, report.restored)
    return NodeEnd(len(uids), report.killed, left + remaining, report.removed, report.restored)
