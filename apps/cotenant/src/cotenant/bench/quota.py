"""How fast quotas follow demand, and how many pods a second are tested and charged, without a bus."""

from statistics import median
from typing import Any

from cotenant.bench import rig
from cotenant_quota import bench


def measure(quotas: int, dimensions: int, levels: int, *, runs: int, admissions: int, say: rig.Say) -> dict[str, Any]:
    """``recompute_ms`` is the median over all changes of all runs, ``p99_ms`` the worst run's."""
    machine = rig.describe()
    shape = bench.Shape(quotas, dimensions, levels)
    found = []
    for index in range(runs):
        say(f"{quotas} quotas, run {index + 1} of {runs}")
        found.append({**_recompute(shape), **bench.admissions(shape, admissions)})
    figures = {
        "recompute_ms": median(run["recompute_ms"] for run in found),
        "recompute_cpu_ms": median(run["recompute_cpu_ms"] for run in found),
        "p99_ms": max(run["p99_ms"] for run in found),
        "publish_ms": median(run["publish_ms"] for run in found),
        "message_bytes": found[-1]["message_bytes"],
        "admissions_per_s": median(run["admissions_per_s"] for run in found),
        "admissions_per_wall_s": median(run["admissions_per_wall_s"] for run in found),
        "rss_mib": max(run["rss_mib"] for run in found),
    }
    asked = {"quotas": quotas, "dimensions": dimensions, "levels": levels}
    return {**asked, **figures, "runs": found, **rig.result("quota", figures, machine, **asked)}


def _recompute(shape: bench.Shape) -> dict[str, Any]:
    found = bench.recompute(shape, changes=200)
    return {
        "recompute_ms": round(median(found["recompute_ms"]), 3),
        "recompute_cpu_ms": round(median(found["recompute_cpu_ms"]), 3),
        "p99_ms": round(rig.percentile(found["recompute_ms"], 99), 3),
        "publish_ms": round(median(found["publish_ms"]), 3),
        "message_bytes": found["message_bytes"],
    }
