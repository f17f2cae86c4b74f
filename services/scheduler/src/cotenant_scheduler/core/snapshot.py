"""The cluster as structure of arrays: one row per node, charges on top, a log of which rows changed.

A change marks only its own row; whoever keeps something derived from rows reads the log and redoes just those.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.columns import UNSET, Bools, Hashes, Ints, LabelColumns, RowLog, Rows, grown, widened
from cotenant_scheduler.core.estimate import LoadPolicy, NodeMetric, Thresholds
from cotenant_scheduler.core.load_columns import LoadColumns
from cotenant_scheduler.core.neighbours import Neighbours
from cotenant_scheduler.core.request import Port
from cotenant_scheduler.core.resource_columns import ResourceColumns
from cotenant_scheduler.core.taints import Taint

_FIRST_SIZE: Final = 16
OVERCOMMITTED: Final = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)


@dataclass(frozen=True, slots=True)
class Sold:
    """Batch and mid resources of one node; a missing name is *not sold*. ``message`` says why, or how much."""

    resources: Mapping[str, int] = field(default_factory=dict)
    degraded: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as its inventory, its object and its overcommit record describe it.

    ``registered`` False: an object without an agent behind it, or the other way round; ``absent`` says which.
    """

    name: str
    allocatable: Mapping[str, int] = field(default_factory=dict)
    load_capacity: Mapping[str, int] = field(default_factory=dict)
    """Real CPU and memory that load is judged against; amplified nodes carry it in ``raw-allocatable``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    registered: bool = True
    absent: str = ""
    described: bool = True
    """False for a row that only charges keep."""
    thresholds: Thresholds | None = None
    """``usage-thresholds`` of the node itself; None when it has none."""
    sold: Sold | None = None

    def differs_in_amounts_only(self, other: "NodeFacts") -> bool:
        """Then only pods that wait for just these amounts can profit, not all that the node ever refused."""
        same = replace(
            other, allocatable=self.allocatable, load_capacity=self.load_capacity, sold=_at(other.sold, self.sold)
        )
        return self == same


def _at(old: Sold | None, new: Sold | None) -> Sold | None:
    """The old offer with the new amounts; what was not sold at all before stays that way."""
    if old is None or new is None or old.resources.keys() != new.resources.keys():
        return old
    return replace(old, resources=new.resources, message=new.message)


class Snapshot:
    """Rows exist for every node ever named by facts or by a charge, until nothing names it any more."""

    def __init__(self, policy: LoadPolicy | None = None) -> None:
        size = _FIRST_SIZE
        self.load = LoadColumns(size, policy or LoadPolicy())
        self.resources = ResourceColumns(size)
        self.neighbours = Neighbours(size)
        self.size = size
        self.changes = RowLog()
        """Every change. Rows that went away are among them: whoever derived something from one must forget it."""
        self.fact_changes = RowLog()
        """Changes of what the node itself is: labels, taints, readiness. Charges and reports are not among them."""
        self.charge_changes = RowLog()
        """Charges alone, for who adds them up in another way."""
        self.signals: dict[str, Ints] = {}
        self.rows: dict[str, int] = {}
        self.facts: list[NodeFacts | None] = [None] * size
        self.placed: list[dict[str, Charge]] = [{} for _ in range(size)]
        self.ports: list[dict[Port, str]] = [{} for _ in range(size)]
        self.alive: Bools = np.zeros(size, dtype=np.bool_)
        self.registered: Bools = np.zeros(size, dtype=np.bool_)
        self.unschedulable: Bools = np.zeros(size, dtype=np.bool_)
        self.taint_set: Ints = np.zeros(size, dtype=np.int64)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self.labels = LabelColumns(size)
        self.row_hash: Hashes = np.zeros(size, dtype=np.uint64)
        self._free_rows: list[int] = []
        self._name_rank: Ints | None = None
        self._alive_rows: Rows | None = None
        self._taint_set_of: dict[tuple[Taint, ...], int] = {(): 0}

    def row(self, name: str) -> int:
        """The row of a node, made when it is new."""
        found = self.rows.get(name)
        if found is not None:
            return found
        row = self._free_rows.pop() if self._free_rows else len(self.rows)
        if row >= self.size:
            self._grow(2 * self.size)
        self.rows[name] = row
        self._name_rank = None
        self.facts[row] = _undescribed(name)
        self.alive[row] = True
        self._alive_rows = None
        self.row_hash[row] = stable_hash(name)
        self._touch_facts(row)
        return row

    def _grow(self, size: int) -> None:
        extra = size - self.size
        self.facts.extend([None] * extra)
        self.placed.extend({} for _ in range(extra))
        self.ports.extend({} for _ in range(extra))
        self.alive = grown(self.alive, size, 0)
        self.registered = grown(self.registered, size, 0)
        self.unschedulable = grown(self.unschedulable, size, 0)
        self.taint_set = grown(self.taint_set, size, 0)
        self.row_hash = grown(self.row_hash, size, 0)
        self.labels.grow(size)
        self.load.grow(size)
        self.resources.grow(size)
        self.neighbours.grow(size)
        self.signals = {name: widened(column, size, UNSET) for name, column in self.signals.items()}
        self.size = size

    def _touch_facts(self, row: int) -> None:
        self.changes.add(row)
        self.fact_changes.add(row)

    @property
    def extent(self) -> int:
        """No row from here on was ever used: columns have room to grow, and looking at that costs as much."""
        return len(self.rows) + len(self._free_rows)

    def alive_rows(self) -> Rows:
        if self._alive_rows is None:
            self._alive_rows = np.flatnonzero(self.alive)
        return self._alive_rows

    def name(self, row: int) -> str:
        return self.node(row).name

    def first_by_name(self, rows: Rows) -> int:
        """Which of several equals stands for them must not depend on the order in which nodes came."""
        if self._name_rank is None:
            self._name_rank = np.zeros(self.size, dtype=np.int64)
            for rank, name in enumerate(sorted(self.rows)):
                self._name_rank[self.rows[name]] = rank
        return int(rows[np.argmin(self._name_rank[rows])])

    def node(self, row: int) -> NodeFacts:
        facts = self.facts[row]
        if facts is None:
            raise LookupError(f"row {row} holds no node")
        return facts

    def set_node(self, facts: NodeFacts) -> int:
        row = self.row(facts.name)
        before = self.node(row)
        for key in sorted({*before.labels, *facts.labels}):
            self.labels.set(row, key, facts.labels.get(key))
        self._set_allocatable(row, facts)
        self.facts[row] = facts
        self.registered[row] = facts.registered
        self.unschedulable[row] = facts.unschedulable
        self.taint_set[row] = self._taint_set(facts.taints)
        self.load.set_capacity(row, facts.load_capacity or facts.allocatable, facts.thresholds)
        self._touch_facts(row)
        return row

    def _set_allocatable(self, row: int, facts: NodeFacts) -> None:
        amounts = {name: value for name, value in facts.allocatable.items() if name not in OVERCOMMITTED}
        if facts.sold is not None:
            amounts.update(facts.sold.resources)
        self.resources.offer(row, amounts)

    def _taint_set(self, taints: tuple[Taint, ...]) -> int:
        if taints not in self._taint_set_of:
            self._taint_set_of[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return self._taint_set_of[taints]

    def remove_node(self, name: str) -> None:
        """Charges keep the row: pods of a lost node are charged until their bindings go."""
        row = self.rows.get(name)
        if row is None:
            return
        self.set_node(_undescribed(name))
        self._drop_if_empty(row)

    def _drop_if_empty(self, row: int) -> None:
        facts = self.node(row)
        if self.placed[row] or facts.described:
            return
        del self.rows[facts.name]
        self._name_rank = None
        self.load.set_metric(row, None, ())
        for column in self.signals.values():
            column[row] = UNSET
        self.facts[row] = None
        self.alive[row] = False
        self._alive_rows = None
        self._free_rows.append(row)
        self._touch_facts(row)

    def charge(self, charge: Charge) -> int:
        row = self.row(charge.node)
        self.placed[row][charge.uid] = charge
        self.neighbours.add(charge, row)
        self.resources.move(row, charge.requests, +1)
        self.load.add(row, charge.load)
        for port in charge.ports:
            self.ports[row].setdefault(port, charge.uid)
        self.changes.add(row)
        self.charge_changes.add(row)
        return row

    def discharge(self, charge: Charge) -> int:
        row = self.rows[charge.node]
        del self.placed[row][charge.uid]
        self.neighbours.remove(charge, row)
        self.resources.move(row, charge.requests, -1)
        self.load.remove(row, charge.load)
        if charge.ports:
            self._reclaim_ports(row, charge)
        self.changes.add(row)
        self.charge_changes.add(row)
        self._drop_if_empty(row)
        return row

    def _reclaim_ports(self, row: int, leaving: Charge) -> None:
        """Two pods may both claim a port after a repair; the one that stays keeps it."""
        for port in leaving.ports:
            if self.ports[row].get(port) == leaving.uid:
                del self.ports[row][port]
        for uid in sorted(self.placed[row]):
            for port in self.placed[row][uid].ports:
                self.ports[row].setdefault(port, uid)

    def set_metric(self, name: str, metric: NodeMetric | None) -> int | None:
        """None when no such node is known: usage may arrive before the node does, and the next report comes soon."""
        row = self.rows.get(name)
        if row is None:
            return None
        self.load.set_metric(row, metric, [charge.load for charge in self.placed[row].values()])
        self.changes.add(row)
        return row

    def set_signal(self, name: str, node: str, value: int | None) -> int | None:
        """A number that somebody outside knows of a node, such as how much its pods disturb each other in percent.

        None for the row when no such node is known; None as value takes the number back.
        """
        row = self.rows.get(node)
        if row is None:
            return None
        if name not in self.signals:
            self.signals[name] = np.full(self.size, UNSET, dtype=np.int64)
        self.signals[name][row] = UNSET if value is None else value
        self.changes.add(row)
        return row

    def signal(self, name: str, rows: Rows) -> Ints:
        """``UNSET`` where nobody said anything."""
        column = self.signals.get(name)
        return np.full(len(rows), UNSET, dtype=np.int64) if column is None else column[rows]

    def expire_metrics(self, now_ms: int) -> Rows:
        rows = self.load.expire(now_ms)
        for row in rows:
            self.changes.add(int(row))
        return rows

    def allocatable(self, name: str, rows: Rows) -> Ints:
        return self.resources.allocatable_at(name, rows)

    def requested(self, name: str, rows: Rows) -> Ints:
        return self.resources.requested_at(name, rows)

    def allocatable_of(self, row: int) -> dict[str, int]:
        return self.resources.allocatable_of(row)

    def requested_of(self, row: int) -> dict[str, int]:
        return self.resources.requested_of(row)

    def charges(self) -> Iterable[Charge]:
        for name in sorted(self.rows):
            yield from self.placed[self.rows[name]].values()


def _undescribed(name: str) -> NodeFacts:
    return NodeFacts(
        name, registered=False, absent="nothing describes it; it was removed or never joined", described=False
    )


def stable_hash(text: str) -> int:
    """64 bits that depend on nothing but the text: order of arrival and process do not matter."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
