"""How fast the core recomputes and charges: a tree made up here, everything in memory, nothing written anywhere."""

import gc
import resource
import time
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.model.quota.spec import ROOT, QuotaSpec
from cotenant_quota.adapters.status import StatusWriter
from cotenant_quota.core.book import QuotaBook, TreeView
from cotenant_quota.core.pods import PodFacts

DIMENSIONS: Final = ("cpu", "memory", "nvidia.com/gpu", "kubernetes.io/batch-cpu")
_UNIT: Final = 1_000
_PUBLICATION_S: Final = 0.1
_LONGEST_GAP_S: Final = 0.15
"""Between two publications of a thousand quotas that change all the time, as the service paces itself."""
_RUNNING_PODS: Final = 2_000
_REVISIONS: Final = {"specs": 1, "bindings": 1, "nodes": 1}


@dataclass(frozen=True, slots=True)
class Shape:
    quotas: int
    dimensions: int
    levels: int


def tree_of(shape: Shape) -> list[QuotaSpec]:
    """Evenly branched; the last level takes what is left, so that there are exactly as many quotas as asked for."""
    branching = max(2, round(shape.quotas ** (1 / shape.levels)))
    names = DIMENSIONS[: shape.dimensions] + tuple(f"example.com/d{i}" for i in range(4, shape.dimensions))
    rows: list[tuple[str, str, int]] = []
    above = [ROOT]
    for level in range(1, shape.levels + 1):
        left = shape.quotas - len(rows)
        size = left if level == shape.levels else min(left, branching**level)
        row = [(f"q{level}-{index:04}", above[index % len(above)], level) for index in range(size)]
        rows += row
        above = [name for name, _, _ in row] or above
    parents = {parent for _, parent, _ in rows}
    leaves = sum(name not in parents for name, _, _ in rows)
    return [
        _quota(name, parent, level, names, is_parent=name in parents, leaves=leaves) for name, parent, level in rows
    ]


def _quota(
    name: str, parent: str, level: int, dimensions: tuple[str, ...], *, is_parent: bool, leaves: int
) -> QuotaSpec:
    # A leaf is promised two units; a parent more than its leaves, so that mins scale as they do in a full cluster.
    low = dict.fromkeys(dimensions, 2 * _UNIT if not is_parent else 4 * _UNIT * leaves // 10**level + _UNIT)
    high = dict.fromkeys(dimensions, 1_000 * _UNIT)
    weight = {dimension: 1 + (hash_of(name) + at) % 7 for at, dimension in enumerate(dimensions)}
    return QuotaSpec(name, "default", low, high, weight, parent=parent, is_parent=is_parent)


def hash_of(name: str) -> int:
    """The same in every process, unlike ``hash``."""
    return sum((at + 1) * byte for at, byte in enumerate(name.encode()))


def full_book(specs: list[QuotaSpec]) -> QuotaBook:
    """Every leaf has pods, some more than it is promised; the cluster holds about what is used."""
    book = QuotaBook()
    book.set_quotas(specs)
    leaves = [spec for spec in specs if not spec.is_parent]
    for index in range(_RUNNING_PODS):
        book.set_pod(_pod(index, leaves[index * 31 % len(leaves)], assigned=True))
    dimensions = specs[0].max
    book.set_cluster(dict.fromkeys(dimensions, 2 * _RUNNING_PODS * _UNIT))
    book.refresh()
    return book


def _pod(index: int, spec: QuotaSpec, *, assigned: bool) -> PodFacts:
    amount = _UNIT * (1 + index % 3)
    return PodFacts(f"pod-{index}", "jobs", spec.name, dict.fromkeys(spec.max, amount), assigned)


def recompute(shape: Shape, changes: int) -> dict[str, Any]:
    """Milliseconds from one leaf's changed demand to every share, by the wall and by the process's own CPU clock, and
    to the bytes that are published."""
    specs = tree_of(shape)
    book, writer = full_book(specs), StatusWriter()
    _publish(book.view("default"), writer)
    leaves = [spec for spec in specs if not spec.is_parent]
    shares_ms: list[float] = []
    cpu_ms: list[float] = []
    published_ms: list[float] = []
    size = 0
    gc.collect()
    for index in range(changes):
        book.set_pod(_pod(_RUNNING_PODS + index, leaves[index * 37 % len(leaves)], assigned=False))
        began, cpu_began = time.perf_counter(), time.process_time()
        views = book.refresh()
        shared = time.perf_counter()
        cpu_ms.append(1000 * (time.process_time() - cpu_began))
        size = _publish(views[0], writer)
        published_ms.append(1000 * (time.perf_counter() - began))
        shares_ms.append(1000 * (shared - began))
    _check_exact(book, specs)
    return {
        "quotas": len(specs),
        "recompute_ms": sorted(shares_ms),
        "recompute_cpu_ms": sorted(cpu_ms),
        "publish_ms": sorted(published_ms),
        "message_bytes": size,
    }


def _publish(view: TreeView, writer: StatusWriter) -> int:
    status = writer.status(view, (), generation=1, revisions=_REVISIONS, over_since={}, now_ms=0)
    return len(writer.encode(status))


def _check_exact(book: QuotaBook, specs: list[QuotaSpec]) -> None:
    """A fast answer that is wrong would be no figure."""
    fresh = QuotaBook()
    fresh.set_quotas(specs)
    fresh.set_cluster(book.total("default"))
    for pod in book.pods().values():
        fresh.set_pod(pod)
    if fresh.view("default") != book.view("default"):
        raise AssertionError("kept shares differ from a full rebuild")


def admissions(shape: Shape, count: int) -> dict[str, Any]:
    """Pods that arrive, are placed and end, with shares redone and packed as often as they would be published.

    ``admissions_per_s`` is per second and core, by the process's own CPU clock: on a machine with other work only that
    says what the code costs.
    """
    specs = tree_of(shape)
    book, writer = full_book(specs), StatusWriter()
    leaves = [spec for spec in specs if not spec.is_parent]
    gc.collect()
    began, cpu_began = time.perf_counter(), time.process_time()
    next_publication = cpu_began + _PUBLICATION_S
    publications = 0
    for index in range(_RUNNING_PODS, _RUNNING_PODS + count):
        spec = leaves[index * 31 % len(leaves)]
        book.set_pod(_pod(index, spec, assigned=False))
        book.set_pod(_pod(index, spec, assigned=True))
        book.remove_pod(f"pod-{index - _RUNNING_PODS}")
        if (at := time.process_time()) >= next_publication:
            _publish(book.refresh()[0], writer)
            publications += 1
            cost_s = time.process_time() - at
            next_publication = at + cost_s + min(max(_PUBLICATION_S, cost_s), _LONGEST_GAP_S)
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    return {
        "admissions_per_s": round(count / cpu_s),
        "admissions_per_wall_s": round(count / elapsed_s),
        "publications": publications,
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
