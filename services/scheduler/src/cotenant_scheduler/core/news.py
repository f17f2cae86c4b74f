"""What happened since the last decision, and which parked pods it can help."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotenant_scheduler.core.columns import Bools, Ints
from cotenant_scheduler.core.estimate import FACTOR_RESOURCES
from cotenant_scheduler.core.plugins.interface import ShapeFilter, Wake
from cotenant_scheduler.core.queue import Group, Queue
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot
from cotenant_scheduler.core.verdict import NODES_TOPIC, quota_topic

_MOST_ROWS: Final = 256
"""Of one kind of event between two decisions; beyond that the hints cost more than the attempts they save."""

_ASKED_AT_ONCE: Final = 64
_REMINDED_AFTER_MS: Final = 5_000

Takes = Callable[[Shape, int], bool]


@dataclass(slots=True)
class News:
    """Dictionaries serve as ordered sets: what is woken first must not depend on hashing.

    A change of one node can only help a pod that this very node would take. Hints of the plugins rule out most of
    the parked at one stroke, a look at the node settles the rest.
    """

    wakers: Mapping[Wake, tuple[str, ...]]
    filters: Sequence[ShapeFilter]
    takes: Takes
    hinting: Sequence[ShapeFilter] = field(init=False)
    _rows: dict[Wake, dict[int, None]] = field(default_factory=lambda: {Wake.NODE: {}, Wake.ROOM: {}, Wake.LOAD: {}})
    _quotas: dict[str, None] = field(default_factory=dict)
    _neighbours: bool = False
    quiet: bool = True
    _parked: "dict[Wake, _Parked]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hinting = [each for each in self.filters if type(each).hint is not ShapeFilter.hint]

    def node(self, row: int) -> None:
        """A node came, changed, or sells more."""
        self._rows[Wake.NODE][row] = None
        self.quiet = False

    def room(self, row: int) -> None:
        self._rows[Wake.ROOM][row] = None
        self.quiet = False

    def load(self, row: int) -> None:
        self._rows[Wake.LOAD][row] = None
        self.quiet = False

    def quotas(self, names: tuple[str, ...]) -> None:
        """Their limit rose, or something in them was released."""
        self._quotas.update(dict.fromkeys(names))
        self.quiet = False

    def neighbour(self) -> None:
        """A pod was placed or went: only those that look around care."""
        self._neighbours = True
        self.quiet = False

    def roomier(self) -> list[int]:
        """Rows of nodes that came, changed or have room again; of very many the first ones."""
        return list({**self._rows[Wake.NODE], **self._rows[Wake.ROOM]})[:_MOST_ROWS]

    def spread(self, queue: Queue, cluster: Snapshot, now_ms: int) -> None:
        """Wake whom it can help, and nobody else."""
        if self._quotas:
            for group in _parked_on(queue, (quota_topic(name) for name in self._quotas)):
                queue.wake(group, now_ms, at_once=True)
            self._quotas = {}
        for event, rows in self._rows.items():
            if rows:
                self._spread_rows(event, rows, queue, cluster, now_ms)
                self._rows[event] = {}
        if self._neighbours:
            topics = [topic for topic in self.wakers[Wake.NEIGHBOUR] if queue.any_parked_on(topic)]
            for group in _parked_on(queue, topics):
                queue.wake(group, now_ms, at_once=False)
        self._neighbours, self.quiet = False, True

    def _spread_rows(self, event: Wake, rows: dict[int, None], queue: Queue, cluster: Snapshot, now_ms: int) -> None:
        topics = (NODES_TOPIC,) if event is Wake.NODE else self.wakers[event]
        if not any(queue.any_parked_on(topic) for topic in topics):
            return
        parked = self._parked.get(event)
        if parked is None or parked.version != queue.version:
            parked = self._parked[event] = _Parked.of(queue, topics)
        alive = [row for row in rows if cluster.alive[row]]
        able = np.ones(len(parked), dtype=np.bool_)
        for group in parked.groups if len(alive) > _MOST_ROWS else ():
            queue.wake(group, now_ms, at_once=False)
        for row in alive[:_MOST_ROWS]:
            for index in np.flatnonzero(able & self._hints(parked, cluster, row)):
                group, shape = parked.groups[index], parked.shapes[index]
                if self.takes(shape, row):
                    able[index] = False
                    queue.wake(group, now_ms, at_once=not shape.looks_around)
        if event is Wake.NODE:
            _ask_for_new_reasons(parked, queue, now_ms)

    def _hints(self, parked: "_Parked", cluster: Snapshot, row: int) -> Bools:
        able: Bools = np.ones(len(parked), dtype=np.bool_)
        for plugin in self.hinting:
            able &= plugin.hint(parked, cluster, row)
            if not able.any():
                break
        return able


@dataclass(frozen=True, slots=True)
class _Parked:
    """Shapes of the parked groups as columns: thousands that do not fit are passed over in one comparison."""

    version: int
    groups: list[Group]
    shapes: list[Shape]
    requests: dict[str, Ints]
    asks: Ints
    estimates: Ints

    def __len__(self) -> int:
        return len(self.groups)

    @classmethod
    def of(cls, queue: Queue, topics: Iterable[str]) -> "_Parked":
        groups = _parked_on(queue, topics)
        shapes = [_shape(group) for group in groups]
        requests: dict[str, Ints] = {}
        for index, shape in enumerate(shapes):
            for name, amount in shape.requests:
                if name not in requests:
                    requests[name] = np.zeros(len(groups), dtype=np.int64)
                requests[name][index] = amount
        asks = np.array([2 if shape.is_daemon else int(shape.is_prod) for shape in shapes], dtype=np.int64)
        estimates = np.array([shape.estimate.used for shape in shapes], dtype=np.int64)
        by_resource = np.ascontiguousarray(estimates.reshape(len(groups), len(FACTOR_RESOURCES)).T)
        return cls(queue.version, groups, shapes, requests, asks, by_resource)


def _ask_for_new_reasons(parked: _Parked, queue: Queue, now_ms: int) -> None:
    """A node that changed refuses for another reason now. A few hear of it soon, thousands in their own time."""
    asked = 0
    for group, shape in zip(parked.groups, parked.shapes, strict=True):
        if shape.looks_around or asked < _ASKED_AT_ONCE:
            queue.wake(group, now_ms, at_once=False)
            asked += not shape.looks_around
        else:
            queue.remind(group, now_ms + _REMINDED_AFTER_MS)


def _parked_on(queue: Queue, topics: Iterable[str]) -> list[Group]:
    groups = {id(group): group for topic in topics for group in queue.parked_on(topic)}
    return list(groups.values())


def _shape(group: Group) -> Shape:
    key = group.key
    if isinstance(key, tuple) and isinstance(key[0], Shape):
        return key[0]
    raise TypeError(f"expected a group key that starts with a shape, got {key!r}")
