"""Alibaba's generative AI service of 2026: requests a second as one service's demand, or memory, pod by pod."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotenant_common.model.resources import MEMORY
from cotenant_simulator.replay.families.rates import SERVICE_MEMORY_BYTES, Point, Sums, following, later
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.figures import spread
from cotenant_simulator.replay.model import Defaults, Item, LeftOut, Site, TraceError
from cotenant_simulator.replay.tables import BrokenRowError, Row, converted, rows

COLUMNS: Final = ("t_s", "pod", "value")
STEP_MS: Final = 57_000
_QPS: Final = "qps"
_MEMORY: Final = "pod_memory_util"
_LATENCY: Final = "pipeline_inference_data"


def read(path: Path, site: Site) -> Iterator[Item]:
    kind = path.name.partition(".")[0]
    if kind == _MEMORY:
        yield from _memories(path, site)
    elif kind in (_LATENCY, "model_predict_data", "queue_rt", "queue_size", "pod_gpu_duty_cycle") or "gpu" in kind:
        raise TraceError(
            f"{path}: expected a demand for CPU or memory ({_QPS}.csv, {_MEMORY}.csv, or the folder), got {kind}: "
            "waiting times are outcomes, and shares of a GPU are not modelled yet"
        )
    else:
        yield following(kind or _QPS, list(_summed(path, site).points()), step_ms=STEP_MS)


def _summed(path: Path, site: Site) -> Sums:
    """The samples of all pods in one step."""
    sums = Sums(STEP_MS)
    for at_ms, value in converted(path, COLUMNS, site.left_out, _requests_of_pod):
        sums.add(at_ms, value)
    return sums


def _requests_of_pod(row: Row) -> Point:
    return row.seconds_ms("t_s"), row.amount("value")


def _memories(path: Path, site: Site) -> Iterator[Item]:
    """Rows are sorted by time, so that every pod's own come in order."""
    pods: dict[str, list[Point]] = {}
    for pod, point in converted(path, COLUMNS, site.left_out, partial(_memory, pods)):
        pods.setdefault(pod, []).append(point)
    for name, points in sorted(pods.items()):
        yield following(
            f"pod-{name}", points, step_ms=STEP_MS, whole=Fraction(1), resource=MEMORY, amount=SERVICE_MEMORY_BYTES
        )


def _memory(before: Mapping[str, Sequence[Point]], row: Row) -> tuple[str, Point]:
    pod = row.text("pod")
    if not pod:
        raise BrokenRowError("pod is empty")
    value = row.amount("value")
    return pod, (later(before.get(pod, ()), row.seconds_ms("t_s"), "t_s"), value)


def _requests(files: Sequence[Path]) -> Sequence[Path]:
    return [file for file in files if file.name.startswith(f"{_QPS}.")] or files[:1]


def told(files: Sequence[Path]) -> Mapping[str, Any]:
    """End-to-end latency, where it lies beside the requests."""
    beside = [found for file in files for found in sorted(file.parent.glob(f"{_LATENCY}.csv*"))]
    found = [round(row.amount("value")) for file in beside[:1] for row in rows(file, COLUMNS, LeftOut())]
    return {"latency_s": spread(found)} if found else {}


FAMILY: Final = Family(
    "alibaba-genai-2026",
    (frozenset(COLUMNS),),
    read,
    Defaults(nodes=2, node_cpu_milli=32_000, node_memory_bytes=128 << 30, limit=20, backlog=True),
    choose=_requests,
    told=told,
)
