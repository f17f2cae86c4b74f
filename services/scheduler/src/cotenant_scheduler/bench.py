"""How fast the core decides: nodes and pods made up by a seed, everything in memory, nothing written anywhere."""

import gc
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from cotenant_common.model.pod import parse_pod
from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_scheduler.core.decisions import Placement
from cotenant_scheduler.core.engine import Engine
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


def run(
    nodes: int, pods: int, mix: Mix = "templates", *, noisy: bool = False, fused: bool = True, seed: int = 0
) -> dict[str, Any]:
    """Place ``pods`` on ``nodes``; load-aware filter and score are on.

    ``noisy``: 5,000 pods that fit nowhere wait meanwhile, every tenth placement ends again, and each second of the
    run's own CPU time brings a report of every node, one after the other. Time is taken by the wall and by the
    process's own CPU clock: on a machine with other work only the second says what the code costs.
    """
    engine = Engine(default_plugins(), _POLICY, seed=seed, fused=fused)
    for i in range(nodes):
        engine.set_node(_node(i))
        engine.set_metric(f"node-{i:05}", _metric(i, 0))
    if noisy:
        _fill_with_infeasible(engine)
    _warm(engine)
    requests = list(_requests(pods, mix))
    gc.collect()
    gc.freeze()
    noise = _Noise(engine, nodes) if noisy else None
    began, cpu_began = time.perf_counter(), time.process_time()
    for request in requests:
        engine.submit(request)
    latencies = _drain(engine, noise)
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    gc.unfreeze()
    latencies.sort()
    return {
        "nodes": nodes,
        "pods": pods,
        "mix": mix,
        "noisy": noisy,
        "fused": engine.fused,
        "placed": len(latencies),
        "reports": noise.reports if noise is not None else 0,
        "seconds": round(elapsed_s, 3),
        "cpu_seconds": round(cpu_s, 3),
        "pods_per_s": round(pods / elapsed_s, 1),
        "pods_per_cpu_s": round(pods / cpu_s, 1),
        "p50_ms": percentile_ms(latencies, 50),
        "p99_ms": percentile_ms(latencies, 99),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _drain(engine: Engine, noise: "_Noise | None") -> list[float]:
    """Seconds per placement, from the call to the decision."""
    latencies: list[float] = []
    now_ms, step_began = 0, time.perf_counter()
    while (decision := engine.decide(now_ms)) is not None:
        if isinstance(decision, Placement):
            latencies.append(time.perf_counter() - step_began)
            if noise is not None:
                now_ms = noise.after(decision)
        step_began = time.perf_counter()
    return latencies


@dataclass(slots=True)
class _Noise:
    engine: Engine
    nodes: int
    placements: int = 0
    reports: int = 0
    began: float = field(default_factory=time.process_time)

    def after(self, decision: Placement) -> int:
        """What happened until now; the time is in milliseconds since the start."""
        self.placements += 1
        if self.placements % (100 // CHURN_PERCENT) == 0:
            self.engine.release(decision.pod.uid)
        elapsed_s = time.process_time() - self.began
        now_ms = int(1000 * elapsed_s)
        while self.reports < int(elapsed_s * self.nodes):
            i = self.reports % self.nodes
            self.engine.set_metric(f"node-{i:05}", _metric(i, now_ms))
            self.reports += 1
        return now_ms


def _warm(engine: Engine) -> None:
    """One pod comes and goes: compiling is part of the start, not of a decision."""
    engine.submit(_request(9_999_999, cpu_milli=100, memory_bytes=_GI))
    while (decision := engine.decide(0)) is not None:
        if isinstance(decision, Placement):
            engine.release(decision.pod.uid)


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


def percentile_ms(ordered_s: list[float], percent: int) -> float | None:
    if not ordered_s:
        return None
    return round(1000 * ordered_s[min(len(ordered_s) - 1, len(ordered_s) * percent // 100)], 3)
