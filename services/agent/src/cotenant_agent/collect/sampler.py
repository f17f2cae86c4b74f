"""One pass over everything that is measured, once a second and cheap."""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from cotenant_agent.cgroup.tree import StatPaths
from cotenant_agent.collect.cgroup_stats import GroupReader
from cotenant_agent.collect.proc import Memory, ProcReader
from cotenant_agent.core.usage import GroupCounters, NodeCounters


class Sampler(Protocol):
    """What the service asks of its measuring side; a simulated node has its own."""

    def track_group(self, name: str, group: str) -> None: ...

    def track_pod(self, uid: str, group: str, *, latency_sensitive: bool) -> None: ...

    def untrack_pod(self, uid: str) -> None: ...

    def sample(self) -> NodeCounters: ...

    def sample_pods(self, uids: Collection[str]) -> NodeCounters:
        """Only these pods, for signals between two full samples."""

    @property
    def cost_us(self) -> int:
        """Cpu time that measuring has taken so far."""

    def close(self) -> None: ...


class NodeSampler:
    """`slice_cpus` None and `slice_bytes` None: the whole machine is the slice."""

    def __init__(
        self,
        tree: StatPaths | None,
        *,
        proc: Path = Path("/proc"),
        slice_cpus: Collection[int] | None = None,
        slice_bytes: int | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._tree = tree
        self._proc_path = proc
        self._proc = ProcReader(proc, slice_cpus)
        self._slice_bytes = slice_bytes
        self._monotonic_ns = monotonic_ns
        self._pods: dict[str, GroupReader] = {}
        self._groups: dict[str, GroupReader] = {}
        self._cost_ns = 0

    @property
    def cost_us(self) -> int:
        return self._cost_ns // 1_000

    def track_group(self, name: str, group: str) -> None:
        if self._tree is not None and name not in self._groups:
            self._groups[name] = GroupReader(self._tree, group, proc=self._proc_path)

    def track_pod(self, uid: str, group: str, *, latency_sensitive: bool) -> None:
        if self._tree is not None and uid not in self._pods:
            self._pods[uid] = GroupReader(self._tree, group, waits=latency_sensitive, proc=self._proc_path)

    def untrack_pod(self, uid: str) -> None:
        reader = self._pods.pop(uid, None)
        if reader is not None:
            reader.close()

    def sample(self) -> NodeCounters:
        began = time.thread_time_ns()
        groups = {name: reader.read() for name, reader in self._groups.items()}
        sample = NodeCounters(
            # Between the groups and the node, so that neither side is a whole pass older than the stamp.
            at_us=self._monotonic_ns() // 1_000,
            cpu_us=self._proc.cpu_us(),
            memory_bytes=slice_used(self._proc.memory(), self._slice_bytes, groups.values()),
            cpu_pressure_some=self._proc.pressure_some("cpu"),
            memory_pressure_some=self._proc.pressure_some("memory"),
            io_pressure_some=self._proc.pressure_some("io"),
            pods={uid: reader.read() for uid, reader in self._pods.items()},
            groups=groups,
        )
        self._cost_ns += time.thread_time_ns() - began
        return sample

    def sample_pods(self, uids: Collection[str]) -> NodeCounters:
        began = time.thread_time_ns()
        pods = {uid: self._pods[uid].read() for uid in uids if uid in self._pods}
        sample = NodeCounters(at_us=self._monotonic_ns() // 1_000, pods=pods)
        self._cost_ns += time.thread_time_ns() - began
        return sample

    def close(self) -> None:
        for reader in (*self._pods.values(), *self._groups.values()):
            reader.close()
        self._pods.clear()
        self._groups.clear()
        self._proc.close()


def slice_used(memory: Memory | None, slice_bytes: int | None, groups: Collection[GroupCounters]) -> int | None:
    """Used memory of a slice: what its groups hold, or what the machine can no longer give it, whichever is more.

    For the whole machine that is MemTotal − MemAvailable.
    """
    if memory is None:
        return None
    if slice_bytes is None or slice_bytes >= memory.total_bytes:
        return memory.total_bytes - memory.available_bytes
    held = sum(group.memory_bytes or 0 for group in groups)
    return max(held, slice_bytes - memory.available_bytes)
