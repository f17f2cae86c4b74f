"""How fast the scheduling core decides, without a bus."""

from statistics import median
from typing import Any

from cotenant.bench import rig
from cotenant_scheduler import bench


def measure(nodes: int, pods: int, mix: bench.Mix, *, noisy: bool, runs: int, say: rig.Say) -> dict[str, Any]:
    """The run with the median speed stands for all; every run is kept beside it."""
    machine = rig.describe()
    found = []
    for index in range(runs):
        say(f"placing {pods} pods on {nodes} nodes, run {index + 1} of {runs}")
        found.append(bench.run(nodes, pods, mix, noisy=noisy))
    figures = {
        "pods_per_s": median(run["pods_per_s"] for run in found),
        "p50_ms": median(run["p50_ms"] or 0.0 for run in found),
        "p99_ms": median(run["p99_ms"] or 0.0 for run in found),
        "rss_mib": max(run["rss_mib"] for run in found),
    }
    asked = {"nodes": nodes, "pods": pods, "mix": mix, "noisy": noisy, "bus": False}
    return {**asked, **figures, "runs": found, **rig.result("scheduler", figures, machine, **asked)}
