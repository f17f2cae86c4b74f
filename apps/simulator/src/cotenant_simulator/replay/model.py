"""What every trace comes down to: machines, services whose demand changes, jobs that arrive. Times in milliseconds of
the trace, from wherever it counts; CPU in milli-cores, memory in bytes, everything else in units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Band = Literal["prod", "mid", "batch"]


class TraceError(Exception):
    """The trace cannot be replayed; the text says which file, what was expected and what came."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    capacity: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Series:
    """``values[i]`` is wanted from ``times_ms[i]`` on; None: the trace does not say."""

    times_ms: Sequence[int]
    values: Sequence[int | None]
    end_ms: int


@dataclass(frozen=True, slots=True)
class Service:
    """It runs all the time. A resource without a series is used as requested."""

    name: str
    requests: Mapping[str, int]
    demand: Mapping[str, Series]
    """By resource: cpu, memory."""
    band: Band = "prod"


@dataclass(frozen=True, slots=True)
class Job:
    """``requests`` are those of one member. ``duration_ms`` None: it was still there when the trace ended."""

    name: str
    submit_ms: int
    duration_ms: int | None
    requests: Mapping[str, int]
    members: int = 1
    gang: bool = False
    """All members or none; else each may start when it fits."""
    band: Band = "batch"
    one_of_labels: tuple[str, Sequence[str]] | None = None
    """A node label, and the values that will do."""
    told_wait_ms: int | None = None
    """How long it waited where the trace was taken."""


Item = Machine | Service | Job


@dataclass(slots=True)
class LeftOut:
    """Why something of the trace is not in the replay, how often, and where first."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: str, reason: str, count: int = 1) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + count
        shown = self.places.setdefault(reason, [])
        if len(shown) < SHOWN_PLACES:
            shown.append(place)

    def clear(self) -> None:
        self.counts.clear()
        self.places.clear()


SHOWN_PLACES = 3


@dataclass(frozen=True, slots=True)
class Site:
    """What a machine is like where the trace does not say, and what the user wants of the importers."""

    node_cpu_milli: int
    node_memory_bytes: int
    left_out: LeftOut
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of the trace's columns by field, where the user says them."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Sizes that give a result in a minute. ``from_ms`` None: from the first arrival on. A job with more members than
    ``most_members`` is cut to so many.
    """

    nodes: int
    node_cpu_milli: int
    node_memory_bytes: int
    limit: int
    from_ms: int | None = None
    for_ms: int | None = None
    most_members: int = 50
    devices: Mapping[str, int] = field(default_factory=dict)
    """Of a node, where the trace names no machines."""
    backlog: bool = False
    """Whether endless batch work is put beside it."""
