"""A node takes pods only when an agent has registered it and nobody cordoned it."""

import numpy as np

from cotenant_common.model import labels as names
from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import Bools, Rows
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.plugins.interface import Reads, ShapeFilter, Wake
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot
from cotenant_scheduler.core.taints import NO_SCHEDULE, Taint

_CORDONED = Taint(names.TAINT_UNSCHEDULABLE, effect=NO_SCHEDULE)


class NodeUnschedulable(ShapeFilter):
    name = "NodeUnschedulable"
    reads = Reads.FACTS
    wakes = Wake.NODE

    def part(self, shape: Shape) -> bool:
        """Whether it tolerates a cordon."""
        return any(each.tolerates(_CORDONED) for each in shape.tolerations)

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        registered: Bools = cluster.registered[rows]
        if self.part(shape):
            return registered
        open_: Bools = np.logical_not(cluster.unschedulable[rows])
        return registered & open_

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:  # noqa: ARG002 - the interface's
        facts = cluster.node(row)
        if not facts.registered:
            return Refusal(
                ReasonCode.NODE_NOT_READY,
                f"node {facts.name} has not registered: {facts.absent}",
                helps=f"start the agent of {facts.name}",
            )
        return Refusal(
            ReasonCode.NODE_UNSCHEDULABLE,
            f"node {facts.name} is cordoned",
            helps=f"cotenant uncordon {facts.name}",
        )

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        registered = cluster.registered[rows]
        absent, cordoned = rows[np.logical_not(registered)], rows[registered]
        return alike(cluster, absent, lambda row: self.refuse(shape, cluster, row)) + alike(
            cluster, cordoned, lambda row: self.refuse(shape, cluster, row)
        )
