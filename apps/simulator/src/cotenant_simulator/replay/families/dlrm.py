"""Recommendation models of Alibaba, 2025: instances with a CPU or a GPU role and a share of an RDMA card."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cotenant_common.model.quantity import ceil
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.gpus import GPU
from cotenant_simulator.replay.model import Defaults, Item, Job, Site
from cotenant_simulator.replay.tables import LeftOutError, Row, converted, label

COLUMNS: Final = (
    "instance_sn", "app_name", "cpu_request", "gpu_request", "rdma_request", "memory_request", "creation_time",
    "deletion_time",
)  # fmt: skip
RDMA: Final = "koordinator.sh/rdma"
"""In percent of a card; a counted resource."""
_RDMA_PER_NODE: Final = 200


def read(path: Path, site: Site) -> Iterator[Item]:
    yield from converted(path, COLUMNS, site.left_out, _instance)


def _instance(row: Row) -> Job:
    created_ms, deleted_ms = row.optional_ms("creation_time"), row.optional_ms("deletion_time")
    if created_ms is not None and deleted_ms is not None and deleted_ms < created_ms:
        raise LeftOutError("deleted before it was created")
    # Empty: it was there before the trace, or still there after it.
    submit_ms = created_ms or 0
    devices = {GPU: row.whole("gpu_request"), RDMA: row.whole("rdma_request")}
    return Job(
        name=f"{label(row.text('app_name'), 'app')}-{label(row.text('instance_sn'), str(row.line))}",
        submit_ms=submit_ms,
        duration_ms=None if deleted_ms is None else deleted_ms - submit_ms,
        requests={
            CPU: ceil(row.amount("cpu_request") * 1_000),
            MEMORY: ceil(row.amount("memory_request") * (1 << 30)),
            **{name: amount for name, amount in devices.items() if amount},
        },
        band="prod",
    )


FAMILY: Final = Family(
    "alibaba-dlrm-2025",
    (frozenset(COLUMNS),),
    read,
    Defaults(
        nodes=16,
        node_cpu_milli=128_000,
        node_memory_bytes=1 << 40,
        limit=100,
        from_ms=86_400_000,  # a third of them was there before the trace
        devices={GPU: 8, RDMA: _RDMA_PER_NODE},
    ),
    notes=("max_instance_per_node is not carried over: instances of one service may share a node",),
)
