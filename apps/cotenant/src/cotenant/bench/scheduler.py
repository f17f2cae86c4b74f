"""How fast the scheduling core decides, and the whole service over a real bus."""

import asyncio
from statistics import median
from typing import Any, Final

from cotenant.bench import rig
from cotenant_common.runtime.service import tune_collector
from cotenant_scheduler import bench, bus_bench

_MEDIANS: Final = ("pods_per_s", "pods_per_cpu_s", "p50_ms", "p99_ms")
_BUS_MEDIANS: Final = (*_MEDIANS, "decision_p50_ms", "decision_p99_ms")


def measure(
    nodes: int, pods: int, mix: bench.Mix, *, noisy: bool, bus: bool = False, runs: int, say: rig.Say
) -> dict[str, Any]:
    """The run with the median speed stands for all; every run is kept beside it.

    ``pods_per_s`` is by the wall, ``pods_per_cpu_s`` by the CPU time the process was given: they differ by what else
    the machine had to do. Over the bus a pod's time runs from the answer to the write of its spec to the sight of its
    binding; the CPU time is the service's alone, as its process spends it, with the settings of its collector.
    """
    machine = rig.describe()
    found = []
    for index in range(runs):
        say(f"placing {pods} pods on {nodes} nodes, run {index + 1} of {runs}")
        if bus:
            found.append(_over_the_bus(nodes, pods, mix, noisy))
        else:
            found.append(bench.run(nodes, pods, mix, noisy=noisy))
    figures = {name: median(run[name] or 0.0 for run in found) for name in (_BUS_MEDIANS if bus else _MEDIANS)}
    figures["rss_mib"] = max(run["rss_mib"] for run in found)
    asked = {"nodes": nodes, "pods": pods, "mix": mix, "noisy": noisy, "bus": bus}
    return {**asked, **figures, "runs": found, **rig.result("scheduler", figures, machine, **asked)}


def _over_the_bus(nodes: int, pods: int, mix: bench.Mix, noisy: bool) -> dict[str, Any]:
    """As ``python -m cotenant_scheduler`` runs it."""
    import uvloop  # noqa: PLC0415 - belongs to the edge

    tune_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bus_bench.run(nodes, pods, mix, noisy=noisy))
