"""SchedulingHint: an annotation names the nodes a pod may go to, and those it should try first."""

from collections.abc import Hashable, Sequence

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import Bools, Rows
from cotenant_scheduler.core.plugins.interface import Preference, Reads, ShapeFilter, Wake
from cotenant_scheduler.core.refusals import Refusal
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot


class SchedulingHint(ShapeFilter, Preference):
    """``nodeNames`` restricts; the first feasible of ``preferredNodeNames`` is taken without counting points."""

    name = "SchedulingHint"
    reads = Reads.FACTS
    wakes = Wake.NODE

    def __init__(self, most_nodes: int = 100) -> None:
        self.most_nodes = most_nodes

    def part(self, shape: Shape) -> Hashable:
        return shape.only_nodes

    def applies(self, shape: Shape, cluster: Snapshot) -> bool:  # noqa: ARG002 - the interface's
        return shape.only_nodes is not None

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        named = [cluster.rows[name] for name in shape.only_nodes or () if name in cluster.rows]
        inside: Bools = np.isin(rows, named)
        return inside

    def prefer(self, shape: Shape, cluster: Snapshot) -> Sequence[str]:  # noqa: ARG002 - the interface's
        return shape.preferred_nodes[: self.most_nodes]

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        wanted = ", ".join(shape.only_nodes or ()) or "no node at all"
        return Refusal(
            ReasonCode.SCHEDULING_HINT_MISMATCH,
            f"the scheduling hint names {wanted}; this is node {cluster.name(row)}",
            {"wanted": wanted},
            "another scheduling hint, or none",
        )
