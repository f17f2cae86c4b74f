"""Neighbours as plain processes in groups of their own: what a machine without Cotenant does with them."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cotenant.demo.programs import Programs
from cotenant_agent.cgroup.files import DEFAULT_SHARES, MAX_SHARES, MIN_SHARES, Knob
from cotenant_agent.cgroup.hierarchy import HierarchyTree
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.layout import Layout, open_tree
from cotenant_agent.cgroup.teardown import remove_everything
from cotenant_agent.cgroup.tree import GroupBusyError
from cotenant_agent.cgroup.writer import KnobChange, KnobWriter

_LOAD_GROUP: Final = "load"
_STOP_GRACE_S: Final = 2.0
_WITHOUT_GROUPS_NICE: Final = 19


@dataclass(frozen=True, slots=True)
class Cleaned:
    """``differences`` includes a group that could not be removed."""

    written: int = 0
    differences: tuple[str, ...] = ()


@dataclass(slots=True)
class ProcessGroups:
    """One group per process below one root group. Without rights to groups, sessions: each has an autogroup of its own.

    All writes go through the agent's own writer and journal, so that they come back the same way.
    """

    root: str
    tree: HierarchyTree | None
    writer: KnobWriter | None
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    @classmethod
    def open(cls, layout: Layout, root: str, journal: Path) -> "ProcessGroups":
        tree = open_tree(layout, root)
        return cls(root, tree, None if tree is None else KnobWriter(tree, KnobJournal(journal)))

    def weigh(self, shares: int, reason: str) -> None:
        """The weight of all of them together, against whoever else is on the machine."""
        if self.tree is not None and self.writer is not None:
            self.tree.create("")
            bounded = min(max(shares, MIN_SHARES), MAX_SHARES)
            self.writer.write(KnobChange("", Knob.CPU_SHARES, bounded, reason), time.time_ns() // 1_000_000)

    async def start(self, name: str, command: Sequence[str], programs: Programs, *, low: bool) -> None:
        if self.tree is not None:
            self.tree.create(name)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            **programs.user.switch,
        )
        self.processes[name] = process
        if self.tree is not None:
            self.tree.attach(name, process.pid)
        elif low:
            _lower(process.pid)

    async def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        waits = [asyncio.ensure_future(process.wait()) for process in self.processes.values()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=_STOP_GRACE_S)
            for process in self.processes.values() if late else ():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*waits)
        names = list(self.processes)
        self.processes.clear()
        for name in names:
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        if self.tree is None or self.writer is None:
            return
        for _ in range(40):  # an exiting process holds its group for a moment
            try:
                self.tree.remove(name)
            except GroupBusyError:
                await asyncio.sleep(0.05)
            else:
                self.writer.forget(name)
                return

    def clean_up(self) -> Cleaned:
        """Blocking. Write back, kill, remove: also what a failed stop left."""
        if self.writer is None:
            return Cleaned()
        report = remove_everything(self.writer)
        left = () if report.removed else (f"group {self.root}: still there",)
        return Cleaned(report.restored.written_back, (*report.restored.differences, *left))


def _lower(pid: int) -> None:
    """The least that a plain user can give. Each session is a scheduling group, so its own nice value is not enough."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _WITHOUT_GROUPS_NICE)
        Path(f"/proc/{pid}/autogroup").write_text(str(_WITHOUT_GROUPS_NICE))


def equal_shares(layout: Layout, service_root: str, count: int) -> int:
    """Weight for ``count`` groups so that each weighs as much as the whole tree the service runs in."""
    tree = open_tree(layout, service_root)
    own = tree.read("", Knob.CPU_SHARES) if tree is not None else None
    return (DEFAULT_SHARES if own is None else int(own)) * max(count, 1)
