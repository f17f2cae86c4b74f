"""What a plugin is. Filters and scores see whole vectors of nodes; reasons are made only when somebody needs them.

Everything here is public: built-in plugins use nothing else, and plugins outside the package import it from
``cotenant_scheduler.plugin_api``.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from enum import Enum, Flag, auto
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cotenant_scheduler.core.columns import Bools, Ints, Rows
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import PodRequest, Shape
from cotenant_scheduler.core.snapshot import Snapshot

PASSED = -1
"""In a vector of verdicts; other values are the index of the filter that refused."""
OUT = -1
"""Points of a node that may not be chosen; real points are never negative."""


class Reads(Enum):
    """What of a node's row an answer depends on, and so how long it holds."""

    FACTS = "labels, taints, readiness: until the node itself changes; shared by shapes with the same ``part``"
    ALL = "also charges, reports and signals: until anything about the node changes"


class Wake(Flag):
    """Events that can turn a refusal into a pass."""

    NODE = auto()
    """A node came or changed."""
    ROOM = auto()
    """A pod ended, or a node offers more."""
    LOAD = auto()
    """A usage report came, or expired."""
    NEIGHBOUR = auto()
    """Some pod somewhere was placed or ended."""


class ShapePlugin(ABC):
    """Depends on the shape and on the node's own row alone."""

    name: str
    reads: Reads = Reads.ALL
    annotations: tuple[str, ...] = ()
    """Annotations of pods that the plugin wants to find in ``Shape.extras``."""

    def part(self, shape: Shape) -> Hashable:
        """All that a plugin which reads FACTS looks at in a shape; by default everything."""
        return shape

    def applies(self, shape: Shape, cluster: Snapshot) -> bool:  # noqa: ARG002 - for those who override it
        """False: passes every node, adds no points; then it costs nothing."""
        return True

    def kernel(self, plugins: "PluginSet") -> "Kernel | None":  # noqa: ARG002 - for those who override it
        """One piece of machine code for several plugins of the set, this one among them."""
        return None


class ShapeFilter(ShapePlugin):
    wakes: Wake = Wake.NODE | Wake.ROOM | Wake.LOAD

    @abstractmethod
    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools: ...

    @abstractmethod
    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        """Say why; called only for a row that did not pass."""

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        """The same for many rows, at most one group per reason and dimension."""
        return alike(cluster, rows, lambda row: self.refuse(shape, cluster, row))

    def hint(self, parked: "Parked", cluster: Snapshot, row: int) -> Bools:  # noqa: ARG002 - for those who override it
        """For each parked shape: can the row be of help at all? Never False for one that would pass."""
        return np.ones(len(parked), dtype=np.bool_)


class ShapeScore(ShapePlugin):
    """0 to 100 by integer division, higher is better."""

    weight: int = 1

    @abstractmethod
    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints: ...


class PodFilter(ABC):
    """Looks at other pods, so it is asked again for every attempt; ``applies`` keeps that rare."""

    name: str
    wakes: Wake = Wake.NODE | Wake.NEIGHBOUR

    @abstractmethod
    def applies(self, pod: PodRequest, cluster: Snapshot) -> bool: ...

    @abstractmethod
    def passes(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Bools: ...

    @abstractmethod
    def refuse(self, pod: PodRequest, cluster: Snapshot, row: int) -> Refusal: ...


class PodScore(ABC):
    """Sees only rows that passed every filter, all at once, so it may compare them with each other."""

    name: str
    weight: int = 1

    @abstractmethod
    def applies(self, pod: PodRequest, cluster: Snapshot) -> bool: ...

    @abstractmethod
    def score(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Ints: ...


class Preference(ABC):
    """Nodes to be taken before any points are counted: the first of them that passes every filter."""

    name: str

    @abstractmethod
    def prefer(self, shape: Shape, cluster: Snapshot) -> Sequence[str]: ...


Plugin = ShapePlugin | PodFilter | PodScore | Preference


class PluginSet(Protocol):
    @property
    def filters(self) -> Sequence[ShapeFilter]: ...

    @property
    def scores(self) -> Sequence[ShapeScore]: ...


class Parked(Protocol):
    """Shapes that wait, as columns."""

    def __len__(self) -> int: ...

    @property
    def shapes(self) -> Sequence[Shape]: ...

    @property
    def requests(self) -> dict[str, Ints]:
        """What each asks for, by resource; 0 where it does not."""
        ...

    @property
    def asks(self) -> Ints:
        """0 any pod, 1 a prod pod, 2 a daemon's."""
        ...

    @property
    def estimates(self) -> Ints:
        """Two lines, as in ``FACTOR_RESOURCES``."""
        ...


class Kernel(Protocol):
    """Does for the plugins it covers what they do one by one, to the same bit, faster."""

    covers: frozenset[str]

    def exact(self, cluster: Snapshot) -> bool:
        """Whether amounts are small enough to be calculated without rounding; if not, the plugins do it themselves."""
        ...

    def prepare(self, shape: Shape, cluster: Snapshot, first: int) -> Any:
        """What the shape alone decides. ``first`` is the index of the first covered filter in verdicts."""
        ...

    def refresh(
        self,
        job: Any,
        rows: Rows | None,
        base: tuple[NDArray[np.int8], Ints],
        found: tuple[NDArray[np.int8], Ints],
    ) -> None:
        """Write verdict and points of the rows, all of them for None, on top of those in ``base``."""
        ...

    def select(self, points: Ints, hashes: NDArray[np.uint64], mine: np.uint64) -> tuple[int, list[int]]:
        """How many nodes are feasible, and the best five rows: by points, then by ``hash ^ mine``."""
        ...
