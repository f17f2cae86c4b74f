"""What a plan costs: a cluster's snapshot, and one question about it."""

import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

from cotenant.bench import rig
from cotenant_simulator.restore import read_snapshot
from cotenant_simulator.testing import body_of, deployment, documents, node
from cotenant_simulator.whatif import Question, ask

_SETTLED_S: Final = 20
_NEW_PODS: Final = 20


def measure(nodes: int, pods_per_node: int, say: rig.Say) -> dict[str, Any]:
    """One node is drained and twenty pods come. Time and memory are those of the plan, not of making the cluster."""
    machine = rig.describe()
    say(f"making a cluster of {nodes} nodes and {nodes * pods_per_node} pods")
    # In a process of its own: what it needed must not count as the plan's.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as maker:
        text = maker.submit(cluster, nodes, pods_per_node).result()
    wall, cpu = time.perf_counter(), time.process_time()
    answer = ask(read_snapshot(json.loads(text)), Question(documents(deployment("new", _NEW_PODS)), drain=["n0"]), say)
    figures = {
        "nodes": nodes,
        "pods": nodes * pods_per_node,
        "wall_s": round(time.perf_counter() - wall, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024, 1),
        "snapshot_mib": round(len(text) / (1 << 20), 1),
        "virtual_s": answer["virtual_ms"] / 1_000,
        "landed": len(answer["lands"]),
        "moved": len(answer["moves"]),
    }
    return {**figures, **rig.result("plan", figures, machine, nodes=nodes, pods_per_node=pods_per_node)}


def cluster(nodes: int, pods_per_node: int) -> str:
    machines = [node(f"n{at}", "16", "64Gi") for at in range(nodes)]
    work = [deployment(f"d{at}", pods_per_node, "500m") for at in range(nodes)]
    slow = {"agent": {"usage_interval_ms": 5_000, "signal_interval_ms": 5_000}}
    return json.dumps(body_of(*machines, *work, seconds=_SETTLED_S, overrides=slow))
