"""How fast the core decides: nodes and pods made up by a seed, everything in memory, nothing written anywhere."""

import gc
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Literal

from cotenant_common.model.pod import parse_pod
from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_scheduler.core.engine import Engine, Placement
from cotenant_scheduler.core.estimate import LoadPolicy, NodeMetric, Thresholds
from cotenant_scheduler.core.plugins.registry import default_plugins
from cotenant_scheduler.core.request import PodRequest, read_request
from cotenant_scheduler.core.snapshot import NodeFacts

Mix = Literal["one", "templates", "distinct"]
TEMPLATES: Final = 20
NOISY_WAITING: Final = 5_000
CHURN_PERCENT: Final = 10
_GI: Final = 1 << 30
_NODE: Final = {CPU: 96_000, MEMORY: 512 * _GI, PODS: 256}
_POLICY: Final = LoadPolicy(thresholds=Thresholds(plain={CPU: 65, MEMORY: 95}))


def run(nodes: int, pods: int, mix: Mix = "templates", *, noisy: bool = False, seed: int = 0) -> dict[str, Any]:
    """Place ``pods`` on ``nodes``; load-aware filter and score are on.

    ``noisy``: 5,000 pods that fit nowhere wait meanwhile, every tenth placement ends again, and each simulated second
    (1,000 decisions) brings a report of every node.
    """
    engine = Engine(default_plugins(), _POLICY, seed=seed)
    for i in range(nodes):
        engine.set_node(_node(i))
        engine.set_metric(f"node-{i:05}", _metric(i, 0))
    if noisy:
        _fill_with_infeasible(engine)
    requests = list(_requests(pods, mix))
    gc.collect()
    began = time.perf_counter()
    for request in requests:
        engine.submit(request)
    latencies = _drain(engine, nodes, noisy=noisy)
    elapsed_s = time.perf_counter() - began
    latencies.sort()
    return {
        "nodes": nodes,
        "pods": pods,
        "mix": mix,
        "noisy": noisy,
        "placed": len(latencies),
        "seconds": round(elapsed_s, 3),
        "pods_per_s": round(pods / elapsed_s, 1),
        "p50_ms": _percentile_ms(latencies, 50),
        "p99_ms": _percentile_ms(latencies, 99),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _drain(engine: Engine, nodes: int, *, noisy: bool) -> list[float]:
    """Seconds per placement, from the call to the decision."""
    latencies: list[float] = []
    now_ms, step_began = 0, time.perf_counter()
    while (decision := engine.decide(now_ms)) is not None:
        if isinstance(decision, Placement):
            latencies.append(time.perf_counter() - step_began)
            if noisy:
                now_ms += 1
                _disturb(engine, decision, now_ms, nodes)
        step_began = time.perf_counter()
    return latencies


def _disturb(engine: Engine, decision: Placement, now_ms: int, nodes: int) -> None:
    if now_ms % (100 // CHURN_PERCENT) == 0:
        engine.release(decision.pod.uid)
    if now_ms % 1_000 == 0:
        for i in range(nodes):
            engine.set_metric(f"node-{i:05}", _metric(i, now_ms))


def _fill_with_infeasible(engine: Engine) -> None:
    for i in range(NOISY_WAITING):
        engine.submit(_request(1_000_000 + i, cpu_milli=200_000 + i, memory_bytes=_GI))
    while engine.decide(0) is not None:
        pass


def _node(i: int) -> NodeFacts:
    name = f"node-{i:05}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{i % 3}"}
    return NodeFacts(name, allocatable=_NODE, labels=labels)


def _metric(i: int, now_ms: int) -> NodeMetric:
    return NodeMetric(now_ms, 30_000, ((i * 37) % 20_000, ((i * 53) % 64) * _GI))


def _requests(pods: int, mix: Mix) -> Iterator[PodRequest]:
    kinds = {"one": 1, "templates": TEMPLATES, "distinct": pods}[mix]
    templates = [_request(i, 500 + 7 * i % 4_000, (1 + i % 8) * _GI + i) for i in range(min(kinds, TEMPLATES))]
    for i in range(pods):
        if mix == "distinct":
            yield _request(i, 500 + i % 3_001, _GI + i * 4_096)
        else:
            yield replace(templates[i % kinds], uid=f"uid-{i:07}", name=f"pod-{i:07}", created_ms=i)


def _request(i: int, cpu_milli: int, memory_bytes: int) -> PodRequest:
    resources = {"requests": {CPU: f"{cpu_milli}m", MEMORY: str(memory_bytes)}}
    manifest = {
        "metadata": {"name": f"pod-{i:07}", "namespace": "bench"},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    return read_request(parse_pod(manifest, uid=f"uid-{i:07}", created_ms=i), _POLICY, 0)


def _percentile_ms(ordered_s: list[float], percent: int) -> float | None:
    if not ordered_s:
        return None
    return round(1000 * ordered_s[min(len(ordered_s) - 1, len(ordered_s) * percent // 100)], 3)
