"""Resource fit: requested + request ≤ allocatable for native, batch, mid and extended resources and the pod count."""

from typing import Final

import numpy as np

from cotenant_common.model import resources
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import PODS, render
from cotenant_scheduler.core.columns import UNSET, Bools, Rows
from cotenant_scheduler.core.plugins import kernels
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.plugins.interface import Kernel, Parked, PluginSet, ShapeFilter, Wake
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import OVERCOMMITTED, Snapshot

_HOLDERS_SHOWN: Final = 3


class NodeFit(ShapeFilter):
    name = "NodeResourcesFit"
    wakes = Wake.NODE | Wake.ROOM

    def kernel(self, plugins: PluginSet) -> Kernel | None:
        return kernels.offer(plugins)

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        found: Bools = np.ones(len(rows), dtype=np.bool_)
        for name, amount in shape.requests:
            if amount > 0:
                found &= _fits(name, amount, cluster, rows)
        return found

    def hint(self, parked: Parked, cluster: Snapshot, row: int) -> Bools:
        """The same for many shapes and one node."""
        able: Bools = np.ones(len(parked), dtype=np.bool_)
        for name, amounts in parked.requests.items():
            line = cluster.resources.lines.get(name)
            allocatable = UNSET if line is None else cluster.resources.allocatable.item(line, row)
            if allocatable == UNSET and name == PODS:
                continue
            requested = 0 if line is None else cluster.resources.requested.item(line, row)
            able &= (amounts <= allocatable - requested) | (amounts <= 0)
        return able

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        """The dimension that is missing altogether first, then the one that is short."""
        single = np.array([row])
        short = [
            (name, amount)
            for name, amount in shape.requests
            if amount > 0 and not _fits(name, amount, cluster, single)[0]
        ]
        allocatable = cluster.allocatable_of(row)
        name, amount = min(short, key=lambda each: each[0] in allocatable)
        if name not in allocatable:
            return _not_offered(name, amount, cluster, row)
        return _short(name, amount, allocatable[name], cluster, row)

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        """Per dimension: how many nodes lack it, and the one that lacks least. A node is counted under one of them."""
        groups: list[RefusalGroup] = []
        left = rows
        for name, amount in shape.requests:
            if amount <= 0 or not len(left):
                continue
            fits = _fits(name, amount, cluster, left)
            groups.extend(_groups(name, amount, cluster, left[np.logical_not(fits)]))
            left = left[fits]
        return tuple(groups)


def _fits(name: str, amount: int, cluster: Snapshot, rows: Rows) -> Bools:
    allocatable = cluster.allocatable(name, rows)
    room: Bools = cluster.requested(name, rows) + amount <= allocatable
    if name == PODS:
        # A node that states no pod count sets no limit on it; every other dimension must be stated to be given away.
        room |= allocatable == UNSET
    return room


def _groups(name: str, amount: int, cluster: Snapshot, rows: Rows) -> list[RefusalGroup]:
    allocatable = cluster.allocatable(name, rows)
    missing, short = rows[allocatable == UNSET], rows[allocatable != UNSET]
    groups: list[RefusalGroup] = []
    if len(missing):
        groups.extend(alike(cluster, missing, lambda row: _not_offered(name, amount, cluster, row)))
    if len(short):
        lacking = cluster.requested(name, short) + amount - cluster.allocatable(name, short)
        nearest = int(lacking.min())
        node = cluster.first_by_name(short[lacking == nearest])
        limit = int(cluster.allocatable(name, np.array([node]))[0])
        groups.append(_group(_short(name, amount, limit, cluster, node), cluster, node, len(short)))
    return groups


def _group(refusal: Refusal, cluster: Snapshot, row: int, nodes: int) -> RefusalGroup:
    return RefusalGroup(refusal.code, nodes, refusal.message, cluster.name(row), refusal.helps)


def _not_offered(name: str, amount: int, cluster: Snapshot, row: int) -> Refusal:
    facts = cluster.node(row)
    numbers = {"resource": name, "request": amount, "allocatable": None}
    if name in OVERCOMMITTED:
        why = (facts.sold and (facts.sold.message or facts.sold.degraded)) or "nothing was published for it yet"
        return Refusal(
            ReasonCode.INSUFFICIENT_RESOURCE,
            f"{name}: needs {show(name, amount)}, node {facts.name} sells none: {why}",
            {**numbers, "degraded": facts.sold.degraded if facts.sold else None},
            f"fresh metrics of node {facts.name}, or colocation enabled there",
        )
    return Refusal(
        ReasonCode.INSUFFICIENT_RESOURCE,
        f"{name}: needs {show(name, amount)}, node {facts.name} has no such resource",
        numbers,
        f"a node that offers {name}",
    )


def _short(name: str, amount: int, allocatable: int, cluster: Snapshot, row: int) -> Refusal:
    requested = int(cluster.requested(name, np.array([row]))[0])
    free, node = allocatable - requested, cluster.name(row)
    lacking = amount - free
    offered = "sold" if name in OVERCOMMITTED else "allocatable"
    left = show(name, free) if free >= 0 else f"−{show(name, -free)}"
    return Refusal(
        ReasonCode.INSUFFICIENT_RESOURCE,
        f"{name}: needs {show(name, amount)}, node {node} has {left} left of {show(name, allocatable)} {offered}",
        {"resource": name, "request": amount, "allocatable": allocatable, "requested": requested, "lacking": lacking},
        _what_would_help(name, amount, allocatable, lacking, cluster, row),
    )


def _what_would_help(name: str, amount: int, allocatable: int, lacking: int, cluster: Snapshot, row: int) -> str:
    if amount > allocatable:
        return f"a smaller request ({show(name, allocatable)} at most on {cluster.name(row)}) or a bigger node"
    holders = sorted(
        ((charge.requests.get(name, 0), charge.key) for charge in cluster.placed[row].values()),
        key=lambda each: (-each[0], each[1]),
    )
    shown = ", ".join(f"{key} {show(name, held)}" for held, key in holders[:_HOLDERS_SHOWN] if held)
    more = f", {len(holders) - _HOLDERS_SHOWN} more" if len(holders) > _HOLDERS_SHOWN else ""
    return f"{show(name, lacking)} of {name} freed on {cluster.name(row)} (held by {shown}{more})"


def show(name: str, amount: int) -> str:
    """Batch and mid CPU are published in milli-cores; print them the way people read CPU."""
    return f"{amount}m" if resources.NATIVE_OF.get(name) == resources.CPU else render(name, amount)
