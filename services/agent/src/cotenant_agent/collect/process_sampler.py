"""Measuring pods where there are no groups to ask: one pass over /proc per sample, summed by process tree."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant_agent.collect.proc import ProcReader
from cotenant_agent.collect.sampler import slice_used
from cotenant_agent.collect.schedstat import parse_schedstat
from cotenant_agent.core.usage import GroupCounters, NodeCounters

# Fields of /proc/<pid>/stat after the closing bracket of the command, counted from 0.
_PPID: Final = 1
_TIMES: Final = slice(11, 15)
_RSS_PAGES: Final = 21


@dataclass(frozen=True, slots=True)
class Process:
    """`cpu_ticks` holds its own time and that of the children it waited for, so a tree's sum does not shrink."""

    pid: int
    ppid: int
    cpu_ticks: int
    rss_pages: int


def parse_stat(pid: int, data: bytes) -> Process | None:
    words = data[data.rfind(b")") + 2 :].split()
    if len(words) <= _RSS_PAGES:
        return None
    return Process(pid, int(words[_PPID]), sum(map(int, words[_TIMES])), int(words[_RSS_PAGES]))


def read_processes(proc: Path) -> list[Process]:
    found = []
    for entry in os.scandir(proc):
        if not entry.name.isdecimal():
            continue
        try:
            data = Path(entry.path, "stat").read_bytes()
        except OSError:
            continue
        process = parse_stat(int(entry.name), data)
        if process is not None:
            found.append(process)
    return found


def trees(processes: Iterable[Process], roots: Mapping[str, Collection[int]]) -> dict[str, list[Process]]:
    """The processes under each name's roots, the roots included."""
    by_pid = {process.pid: process for process in processes}
    children: dict[int, list[int]] = {}
    for process in by_pid.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found: dict[str, list[Process]] = {}
    for name, pids in roots.items():
        pending = [pid for pid in pids if pid in by_pid]
        members: dict[int, Process] = {}
        while pending:
            pid = pending.pop()
            # A root may stand below another root: a container whose shim still lives.
            if pid not in members:
                members[pid] = by_pid[pid]
                pending.extend(children.get(pid, ()))
        found[name] = list(members.values())
    return found


class ProcessSampler:
    """`roots_of` gives the pids above a pod's processes: its shims, which adopt whatever its processes leave behind."""

    def __init__(
        self,
        roots_of: Callable[[str], Collection[int]],
        *,
        proc: Path = Path("/proc"),
        slice_cpus: Collection[int] | None = None,
        slice_bytes: int | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._roots_of = roots_of
        self._proc_path = proc
        self._proc = ProcReader(proc, slice_cpus)
        self._slice_bytes = slice_bytes
        self._monotonic_ns = monotonic_ns
        self._sensitive: dict[str, bool] = {}
        self._tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._cost_ns = 0

    @property
    def cost_us(self) -> int:
        return self._cost_ns // 1_000

    def track_group(self, name: str, group: str) -> None:
        """Without kernel groups there are no group totals; the pods are summed instead."""

    def track_pod(self, uid: str, group: str, *, latency_sensitive: bool) -> None:  # noqa: ARG002 - the protocol's
        self._sensitive[uid] = latency_sensitive

    def untrack_pod(self, uid: str) -> None:
        self._sensitive.pop(uid, None)

    def sample(self) -> NodeCounters:
        began = time.thread_time_ns()
        pods = self._read(self._sensitive)
        sample = NodeCounters(
            at_us=self._monotonic_ns() // 1_000,
            cpu_us=self._proc.cpu_us(),
            memory_bytes=slice_used(self._proc.memory(), self._slice_bytes, pods.values()),
            cpu_pressure_some=self._proc.pressure_some("cpu"),
            memory_pressure_some=self._proc.pressure_some("memory"),
            io_pressure_some=self._proc.pressure_some("io"),
            pods=pods,
        )
        self._cost_ns += time.thread_time_ns() - began
        return sample

    def sample_pods(self, uids: Collection[str]) -> NodeCounters:
        began = time.thread_time_ns()
        pods = self._read(uids)
        self._cost_ns += time.thread_time_ns() - began
        return NodeCounters(at_us=self._monotonic_ns() // 1_000, pods=pods)

    def _read(self, uids: Collection[str]) -> dict[str, GroupCounters]:
        if not uids:
            return {}
        found = trees(read_processes(self._proc_path), {uid: self._roots_of(uid) for uid in uids})
        return {uid: self._counters(members, self._sensitive.get(uid, False)) for uid, members in found.items()}

    def _counters(self, members: list[Process], sensitive: bool) -> GroupCounters:
        if not members:
            return GroupCounters()
        run_ns = wait_ns = slices = 0
        if sensitive:
            for process in members:
                values = self._schedstat(process.pid)
                if values is not None:
                    run_ns, wait_ns, slices = run_ns + values[0], wait_ns + values[1], slices + values[2]
        return GroupCounters(
            cpu_us=sum(process.cpu_ticks for process in members) * self._tick_us,
            memory_bytes=sum(process.rss_pages for process in members) * self._page_bytes,
            run_us=run_ns // 1_000 if sensitive else None,
            wait_us=wait_ns // 1_000 if sensitive else None,
            slices=slices if sensitive else None,
        )

    def _schedstat(self, pid: int) -> tuple[int, int, int] | None:
        """Of the first thread only: the others would cost another pass over each process."""
        try:
            return parse_schedstat((self._proc_path / str(pid) / "schedstat").read_bytes())
        except OSError:
            return None

    def close(self) -> None:
        self._proc.close()
