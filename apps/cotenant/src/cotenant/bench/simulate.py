"""How much virtual time the simulator gets through in a second: services, batch jobs that come over time, quotas."""

import json
import resource
import time
from statistics import median
from typing import Any, Final

from cotenant.bench import rig
from cotenant.stack.services import LEADERS
from cotenant_simulator.core import durations
from cotenant_simulator.run import Outcome, parse, run

_NODE_CPU: Final = 32
_TEAMS: Final = ("team-a", "team-b", "team-c")
_WAVES: Final = 8
"""Jobs of batch pods arrive in so many steps, each over by the time of the next but one."""
_REPLICAS: Final = 20
_SLOWEST_BEAT_MS: Final = 20_000
_LONG_LEASE_S: Final = 60


def measure(
    nodes: int, pods: int, duration_ms: int, telemetry_ms: int, *, runs: int, seed: int, say: rig.Say
) -> dict[str, Any]:
    """The median run stands for all; every run is kept beside it. CPU is that of this process alone."""
    machine = rig.describe()
    text = scenario(nodes, pods, duration_ms, telemetry_ms, seed)
    found = []
    for index in range(runs):
        shown = durations.show(duration_ms)
        say(f"simulating {nodes} nodes and {pods} pods for {shown}, run {index + 1} of {runs}")
        found.append(_one(text))
    virtual_s = duration_ms / 1_000
    wall_s = median(one["wall_s"] for one in found)
    figures = {
        "nodes": nodes,
        "pods": pods,
        "virtual_s": virtual_s,
        "wall_s": wall_s,
        "cpu_s": median(one["cpu_s"] for one in found),
        "virtual_s_per_wall_s": round(virtual_s / wall_s, 1),
        "rss_mib": max(one["rss_mib"] for one in found),
    }
    asked = {"nodes": nodes, "pods": pods, "duration_ms": duration_ms, "telemetry_ms": telemetry_ms, "seed": seed}
    return {**figures, "runs": found, **rig.result("simulate", figures, machine, **asked)}


def _one(text: str) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = run(parse(text, "bench"))
    spent = {"wall_s": round(time.perf_counter() - wall, 3), "cpu_s": round(time.process_time() - cpu, 3)}
    rss_mib = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024, 1)
    return {**spent, "rss_mib": rss_mib, **_phases(outcome)}


def _phases(outcome: Outcome) -> dict[str, int]:
    """What the run came to, so that a fast run that placed nothing is seen for what it is."""
    phases = [pod["phase"] for pod in outcome.data["pods"].values()]
    return {name.lower(): phases.count(name) for name in ("Running", "Succeeded", "Pending", "Failed")}


def scenario(nodes: int, pods: int, duration_ms: int, telemetry_ms: int, seed: int) -> str:
    """Two in five pods are services that stay; the others come in jobs over the first half of the time."""
    services = 2 * pods // 5
    body = {
        "apiVersion": "cotenant.io/v1",
        "kind": "Scenario",
        "metadata": {"name": "bench"},
        "spec": {
            "seed": seed,
            "duration": f"{duration_ms}ms",
            "config": _config(telemetry_ms),
            "objects": [*_machines(nodes), *_quotas(nodes), *_services(services)],
            "timeline": [*_loads(nodes, duration_ms), *_jobs(pods - services, duration_ms)],
        },
    }
    return json.dumps(body)


def _config(telemetry_ms: int) -> dict[str, dict[str, int]]:
    """Nobody fails over here: with slow reports the leases live as long as a slow node's silence is borne."""
    agent = _intervals(telemetry_ms)
    if telemetry_ms <= 1_000:
        return {"agent": agent}
    leases = {name: {"leaseTtlS": _LONG_LEASE_S} for name in LEADERS}
    return {"agent": agent, **leases}


def _intervals(telemetry_ms: int) -> dict[str, int]:
    """With slow reports a node's heartbeats slow down too, to three in the time after which it counts as dead."""
    if telemetry_ms <= 1_000:
        return {"usageIntervalMs": telemetry_ms}
    beat_ms = min(telemetry_ms, _SLOWEST_BEAT_MS)
    return {"usageIntervalMs": telemetry_ms, "heartbeatIntervalMs": max(3_000, beat_ms), "heartbeatTtlS": 60}


def _machines(nodes: int) -> list[dict[str, Any]]:
    capacity = {"cpu": str(_NODE_CPU), "memory": "128Gi"}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{at}"}, "status": {"capacity": capacity}}
        for at in range(nodes)
    ]


def _quotas(nodes: int) -> list[dict[str, Any]]:
    each = max(1, nodes * _NODE_CPU // len(_TEAMS))
    return [
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": team, "namespace": "default"},
            "spec": {
                "min": {"cpu": str(each), "memory": f"{each * 4}Gi"},
                "max": {"cpu": str(each * 2), "memory": f"{each * 8}Gi"},
            },
        }
        for team in _TEAMS
    ]


def _services(count: int) -> list[dict[str, Any]]:
    found = []
    for at, start in enumerate(range(0, count, _REPLICAS)):
        pod = {
            "metadata": {
                "labels": {
                    "app": f"web-{at}",
                    "koordinator.sh/qosClass": "LS",
                    "quota.scheduling.koordinator.sh/name": _TEAMS[at % len(_TEAMS)],
                },
                "annotations": {"cotenant.io/sim-usage": json.dumps({"cpu": f"{300 + 50 * (at % 5)}m"})},
            },
            "spec": {
                "priorityClassName": "koord-prod",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}],
            },
        }
        replicas = min(_REPLICAS, count - start)
        found.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": f"web-{at}"},
                "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": f"web-{at}"}}, "template": pod},
            }
        )
    return found


def _loads(nodes: int, duration_ms: int) -> list[dict[str, Any]]:
    """The systems idle along; in the middle every fourth machine gets busier for a while."""
    quiet = [
        {"at": "0s", "usage": {"node": f"n{at}", "system": {"cpu": "500m", "memory": "2Gi"}}} for at in range(nodes)
    ]
    busy = [
        {
            "at": f"{duration_ms // 2}ms",
            "for": f"{duration_ms // 8}ms",
            "usage": {"node": f"n{at}", "system": {"cpu": "4"}},
        }
        for at in range(0, nodes, 4)
    ]
    return [*quiet, *busy]


def _jobs(count: int, duration_ms: int) -> list[dict[str, Any]]:
    """In waves over the first half, each pod as long as an eighth of the whole."""
    found = []
    for wave in range(_WAVES):
        completions = count // _WAVES + (1 if wave < count % _WAVES else 0)
        if completions:
            at_ms = 5_000 + wave * duration_ms // (2 * _WAVES)
            found.append({"at": f"{at_ms}ms", "apply": [_job(wave, completions, duration_ms // 8)]})
    return found


def _job(wave: int, completions: int, lasts_ms: int) -> dict[str, Any]:
    amounts = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    pod = {
        "metadata": {
            "labels": {"koordinator.sh/qosClass": "BE"},
            "annotations": {
                "cotenant.io/sim-duration": f"{lasts_ms}ms",
                "cotenant.io/sim-usage": json.dumps({"cpu": "900m"}),
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "priorityClassName": "koord-batch",
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"crunch-{wave}"},
        "spec": {"completions": completions, "parallelism": completions, "template": pod},
    }
