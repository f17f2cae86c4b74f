"""Summaries for many nodes from one example, since a sentence per node would cost more than the filter itself."""

from collections.abc import Callable

from cotenant_scheduler.core.columns import Rows
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.snapshot import Snapshot


def alike(cluster: Snapshot, rows: Rows, refuse: Callable[[int], Refusal]) -> tuple[RefusalGroup, ...]:
    """Rows that refuse for the same reason; the first by name is the example."""
    if not len(rows):
        return ()
    row = cluster.first_by_name(rows)
    refusal = refuse(row)
    return (RefusalGroup(refusal.code, len(rows), refusal.message, cluster.name(row), refusal.helps),)
