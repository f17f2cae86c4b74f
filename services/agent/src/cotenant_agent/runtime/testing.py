"""For tests of and around the runtime: short launches, and a runtime that can be replaced as by a restart."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant_agent.runtime.launch import ContainerLaunch, PodLaunch
from cotenant_agent.runtime.pod_runtime import PodRuntime
from cotenant_agent.runtime.settings import RuntimeSettings
from cotenant_agent.runtime.state import ContainerState

DEADLINE_S = 20.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sh(script: str, **fields: Any) -> ContainerLaunch:
    return ContainerLaunch("main", command=("/bin/sh", "-c", script), **fields)


def py(script: str, **fields: Any) -> ContainerLaunch:
    return ContainerLaunch("main", command=(sys.executable, "-I", "-S", "-c", script), **fields)


def pod(*containers: ContainerLaunch, uid: str = "uid-1", **fields: Any) -> PodLaunch:
    return PodLaunch(uid, "default", "web", "node-1", containers, **fields)


@dataclass
class Bench:
    """The runtime under test, with a way to replace it as a restarted agent would."""

    state_dir: Path
    runtime: PodRuntime

    def new_agent(self) -> PodRuntime:
        self.runtime.close()
        self.runtime = make_runtime(self.state_dir)
        return self.runtime

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def ended(self) -> ContainerState:
        async with asyncio.timeout(DEADLINE_S):
            return await anext(aiter(self.runtime.watch()))

    async def output(self, uid: str = "uid-1", **how: Any) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return b"".join([data async for data in self.runtime.logs(uid, "main", **how)])


def make_runtime(state_dir: Path, **settings: Any) -> PodRuntime:
    return PodRuntime(RuntimeSettings(state_dir, **settings), now_ms=now_ms, environ={})


def is_gone(pid: int) -> bool:
    """Gone, or a zombie that nobody here is the parent of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill(pid: int | None) -> None:
    if pid is None:
        raise AssertionError("nothing runs, so there is nothing to kill")
    os.kill(pid, signal.SIGKILL)
