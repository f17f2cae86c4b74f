"""How long a start takes: the figure behind 'submit to running', for `cotenant bench` and not for a test."""

import tempfile
import time
from pathlib import Path

from cotenant_agent.runtime.launch import ContainerLaunch, PodLaunch
from cotenant_agent.runtime.pod_runtime import PodRuntime
from cotenant_agent.runtime.settings import RuntimeSettings


async def start_latency_ms(count: int) -> list[float]:
    """One figure per pod, from the call of `start` until the command was exec'ed."""
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as directory:
        runtime = PodRuntime(RuntimeSettings(Path(directory)), now_ms=lambda: time.time_ns() // 1_000_000, environ={})
        try:
            return [await _timed_start(runtime, f"bench-{index}") for index in range(count)]
        finally:
            for found in runtime.containers():
                await runtime.stop(found.uid, 0)
            runtime.close()


async def _timed_start(runtime: PodRuntime, uid: str) -> float:
    sleeper = ContainerLaunch("main", command=("sleep", "600"))
    before = time.perf_counter()
    await runtime.start(PodLaunch(uid, "bench", uid, "bench", (sleeper,)))
    return (time.perf_counter() - before) * 1000
