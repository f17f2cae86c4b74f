"""A host port belongs to one pod per node."""

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import Bools, Rows
from cotenant_scheduler.core.plugins.interface import ShapeFilter, Wake
from cotenant_scheduler.core.refusals import Refusal
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot


class NodePorts(ShapeFilter):
    name = "NodePorts"
    wakes = Wake.NODE | Wake.ROOM

    def applies(self, shape: Shape, cluster: Snapshot) -> bool:  # noqa: ARG002 - the interface's
        return bool(shape.ports)

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        wanted = shape.ports
        return np.array([not any(port in cluster.ports[row] for port in wanted) for row in rows], dtype=np.bool_)

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        taken = cluster.ports[row]
        protocol, port = next(each for each in shape.ports if each in taken)
        holder = cluster.placed[row][taken[protocol, port]].key
        return Refusal(
            ReasonCode.HOST_PORT_CONFLICT,
            f"host port {port}/{protocol} of node {cluster.name(row)} belongs to {holder}",
            {"port": port, "protocol": protocol, "holder": holder},
            f"{holder} ending, or another hostPort",
        )
