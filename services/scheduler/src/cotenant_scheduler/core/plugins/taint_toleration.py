"""Taints: NoSchedule and NoExecute keep a pod away, PreferNoSchedule costs points."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from cotenant_common.model import labels as names
from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import Bools, Ints, Rows
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.plugins.interface import Reads, ShapeFilter, ShapeScore, Wake
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot
from cotenant_scheduler.core.taints import untolerated


class TaintToleration(ShapeFilter, ShapeScore):
    """Nodes share taint sets, so each set is judged once per shape rather than once per node."""

    name = "TaintToleration"
    reads = Reads.FACTS
    wakes = Wake.NODE

    def __init__(self, weight: int = 3) -> None:
        self.weight = weight

    def part(self, shape: Shape) -> Hashable:
        return shape.tolerations

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        verdicts = [not untolerated(taints, shape.tolerations, forbidding=True) for taints in cluster.taint_sets]
        found: Bools = np.array(verdicts, dtype=np.bool_)[cluster.taint_set[rows]]
        return found

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        counts = [len(untolerated(taints, shape.tolerations, forbidding=False)) for taints in cluster.taint_sets]
        found: Ints = np.array([100 // (1 + count) for count in counts], dtype=np.int64)[cluster.taint_set[rows]]
        return found

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        facts = cluster.node(row)
        taint = untolerated(facts.taints, shape.tolerations, forbidding=True)[0]
        if taint.key == names.TAINT_NOT_READY:
            return Refusal(
                ReasonCode.NODE_NOT_READY,
                f"node {facts.name} is not ready: its heartbeats stopped",
                {"taint": str(taint)},
                f"restart the agent of {facts.name}",
            )
        return Refusal(
            ReasonCode.TAINT_NOT_TOLERATED,
            f"node {facts.name} has the taint {taint}, which the pod does not tolerate",
            {"taint": str(taint)},
            f"a toleration for {taint}, or remove the taint",
        )

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        sets = cluster.taint_set[rows]
        groups: dict[str, RefusalGroup] = {}
        for index in np.unique(sets):
            (group,) = alike(cluster, rows[sets == index], lambda row: self.refuse(shape, cluster, row))
            same = groups.get(group.code)
            groups[group.code] = group if same is None else replace(same, nodes=same.nodes + group.nodes)
        return tuple(groups[code] for code in sorted(groups))
