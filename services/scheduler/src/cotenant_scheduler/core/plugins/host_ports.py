"""A host port belongs to one pod per node."""

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import Bools, Rows
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot


class HostPorts:
    name = "HostPorts"

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        if not shape.ports:
            return np.ones(len(rows), dtype=np.bool_)
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

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        return alike(cluster, rows, lambda row: self.refuse(shape, cluster, row))
