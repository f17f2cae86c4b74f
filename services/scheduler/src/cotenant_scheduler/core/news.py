"""What happened since the last decision, and which parked pods it can help."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import PODS
from cotenant_scheduler.core.columns import UNSET, Bools, Ints, Rows
from cotenant_scheduler.core.queue import Group, Queue
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot
from cotenant_scheduler.core.verdict import NODES_TOPIC, quota_topic

_LOAD: Final = (ReasonCode.LOAD_THRESHOLD_EXCEEDED, ReasonCode.METRICS_EXPIRED)
_AROUND: Final = (ReasonCode.POD_AFFINITY_MISMATCH, ReasonCode.TOPOLOGY_SPREAD_EXCEEDED)
_ROOM: Final = (ReasonCode.INSUFFICIENT_RESOURCE, ReasonCode.HOST_PORT_CONFLICT)


@dataclass(slots=True)
class News:
    """Dictionaries serve as ordered sets: what is woken first must not depend on hashing."""

    _nodes: dict[int, None] = field(default_factory=dict)
    _rooms: dict[int, None] = field(default_factory=dict)
    _loads: dict[int, None] = field(default_factory=dict)
    _quotas: dict[str, None] = field(default_factory=dict)
    _neighbours: bool = False
    _needs: "_Needs | None" = None

    def node(self, row: int) -> None:
        """A node came, changed, or sells more."""
        self._nodes[row] = None

    def room(self, row: int) -> None:
        self._rooms[row] = None

    def load(self, row: int) -> None:
        self._loads[row] = None

    def quotas(self, names: tuple[str, ...]) -> None:
        """Their limit rose, or something in them was released."""
        self._quotas.update(dict.fromkeys(names))

    def neighbour(self) -> None:
        """A pod was placed or went: only those that look around care."""
        self._neighbours = True

    def spread(self, queue: Queue, cluster: Snapshot, now_ms: int) -> None:
        """Wake whom it can help, and nobody else."""
        for group in _parked_on(queue, (quota_topic(name) for name in self._quotas)):
            queue.wake(group, now_ms, at_once=True)
        if self._rooms or self._nodes:
            self._spread_room(queue, cluster, now_ms)
        topics: list[str] = []
        topics += [NODES_TOPIC] if self._nodes else []
        topics += _LOAD if self._loads or self._rooms else ()
        topics += _AROUND if self._neighbours else ()
        for group in _parked_on(queue, topics):
            queue.wake(group, now_ms, at_once=False)
        self._nodes, self._rooms, self._loads, self._quotas, self._neighbours = {}, {}, {}, {}, False

    def _spread_room(self, queue: Queue, cluster: Snapshot, now_ms: int) -> None:
        """Whether the freed room is enough is cheap to tell, and then there is nothing to wait for."""
        rows = [row for row in {**self._rooms, **self._nodes} if cluster.alive[row]]
        topics = (NODES_TOPIC,) if self._nodes else _ROOM
        if self._needs is None or (self._needs.version, self._needs.topics) != (queue.version, topics):
            self._needs = _Needs.of(queue, topics)
        for group in self._needs.that_fit(cluster, rows):
            queue.wake(group, now_ms, at_once=True)


@dataclass(frozen=True, slots=True)
class _Needs:
    """Requests of the parked groups as columns: thousands that do not fit are passed over in one comparison."""

    version: int
    topics: tuple[str, ...]
    groups: list[Group]
    columns: dict[str, Ints]

    @classmethod
    def of(cls, queue: Queue, topics: tuple[str, ...]) -> "_Needs":
        groups = _parked_on(queue, topics)
        columns: dict[str, Ints] = {}
        for index, group in enumerate(groups):
            for name, amount in _shape(group).requests:
                if name not in columns:
                    columns[name] = np.zeros(len(groups), dtype=np.int64)
                columns[name][index] = amount
        return cls(queue.version, topics, groups, columns)

    def that_fit(self, cluster: Snapshot, rows: Iterable[int]) -> list[Group]:
        found: Bools = np.zeros(len(self.groups), dtype=np.bool_)
        for row in rows:
            found |= self._fit(cluster, np.array([row]))
        return [self.groups[index] for index in np.flatnonzero(found)]

    def _fit(self, cluster: Snapshot, row: Rows) -> Bools:
        able: Bools = np.ones(len(self.groups), dtype=np.bool_)
        for name, needs in self.columns.items():
            allocatable = int(cluster.allocatable(name, row)[0])
            if allocatable == UNSET and name == PODS:
                continue
            able &= (needs <= allocatable - int(cluster.requested(name, row)[0])) | (needs <= 0)
        return able


def _parked_on(queue: Queue, topics: Iterable[str]) -> list[Group]:
    groups = {id(group): group for topic in topics for group in queue.parked_on(topic)}
    return list(groups.values())


def _shape(group: Group) -> Shape:
    key = group.key
    if isinstance(key, tuple) and isinstance(key[0], Shape):
        return key[0]
    raise TypeError(f"expected a group key that starts with a shape, got {key!r}")
