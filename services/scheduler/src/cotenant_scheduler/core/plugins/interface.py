"""What a plugin is. Filters and scores see whole vectors of nodes; reasons are made only when somebody needs them."""

from typing import Protocol

from cotenant_scheduler.core.columns import Bools, Ints, Rows
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import PodRequest, Shape
from cotenant_scheduler.core.snapshot import Snapshot


class ShapeFilter(Protocol):
    """Depends on the shape and on the node's own row alone, so its verdict holds until that row changes."""

    name: str

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools: ...

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        """Say why; called only for a row that did not pass."""
        ...

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        """The same for many rows, at most one group per reason and dimension."""
        ...


class ShapeScore(Protocol):
    """0 to 100 by integer division, higher is better; cached like a ``ShapeFilter``."""

    name: str
    weight: int

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints: ...


class PodFilter(Protocol):
    """Looks at other pods, so it is asked again for every attempt; ``applies`` keeps that rare."""

    name: str

    def applies(self, pod: PodRequest, cluster: Snapshot) -> bool: ...

    def passes(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Bools: ...

    def refuse(self, pod: PodRequest, cluster: Snapshot, row: int) -> Refusal: ...


class PodScore(Protocol):
    """As ``ShapeScore``, for what other pods decide."""

    name: str
    weight: int

    def applies(self, pod: PodRequest, cluster: Snapshot) -> bool: ...

    def score(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Ints: ...
