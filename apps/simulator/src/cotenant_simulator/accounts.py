"""Keeps count while a simulation runs: who used what, and which services were pressed. It looks and touches nothing.

It looks once per cell of a second, in the middle, because most of what happens falls on whole and tenth seconds. What
it sees stands for the cell. Between two looks it costs nothing, and a machine whose rates did not change since the
last look costs one comparison.
"""

import asyncio
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant_agent.core.guard import GuardSettings
from cotenant_agent.core.usage import BE, LS
from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.buckets import is_bookkeeping
from cotenant_common.contracts.messages.state import QuotaTreeStatus, SpecRecord
from cotenant_common.model import labels
from cotenant_common.model.ids import spec_key
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_gateway.adapters.records import to_spec
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.core import annotations
from cotenant_simulator.core.series import Point, Series
from cotenant_simulator.core.summary import (
    BATCH_BANDS,
    CLASSES,
    RESOURCES,
    Integrals,
    Json,
    PodFacts,
    RunOfPod,
    summarise,
)
from cotenant_simulator.node.host import SimulatedNode
from cotenant_simulator.node.machine import PodRate, Rates
from cotenant_simulator.recorder import Recorder

_CELL_MS: Final = 1_000
_FEWEST_CELLS: Final = 20
_LINE: Final = GuardSettings()
"""The lines at which an agent calls a service disturbed, as they ship: a policy must not move what it is judged by."""
_UNMET_MILLI: Final = 1.0
_GONE: Final = ("Succeeded", "Failed", "Deleted")


def pressed(rate: PodRate) -> bool:
    """Whether a service gets less than it wants, or waits for it longer than an agent's guard lets pass."""
    if rate.demand.cpu_milli is not None and rate.given_milli + _UNMET_MILLI < rate.demand.cpu_milli:
        return True
    enough = rate.slices >= _LINE.min_slices
    waits = enough and rate.wait_us / rate.slices > _LINE.wait_ms_per_slice
    return waits or rate.pressure > _LINE.pressure_percent


@dataclass(slots=True)
class _Run:
    key: str
    facts: PodFacts
    started_ms: int
    work: float = 0.0
    ended_ms: int | None = None


@dataclass(slots=True)
class _Book:
    """One machine since its rates last changed."""

    node: SimulatedNode
    rates: Rates
    since_ms: int
    used: dict[str, dict[str, float]]
    pressed: int
    runs: Mapping[str, tuple[_Run, float]]
    """By uid, with what it is given."""


@dataclass(slots=True)
class Accounts:
    """``sample_ms`` None: no series is kept."""

    cluster: Cluster
    recorder: Recorder
    duration_ms: int
    sample_ms: int | None = None
    series: Series | None = None
    _books: dict[str, _Book] = field(default_factory=dict)
    _sums: Integrals = field(default_factory=Integrals)
    _runs: list[_Run] = field(default_factory=list)
    _used_nodes: int = 0
    _specs: dict[str, bytes] = field(default_factory=dict)
    _facts: dict[str, tuple[bytes, PodFacts]] = field(default_factory=dict)
    _trees: dict[str, bytes] = field(default_factory=dict)
    _trees_changed: bool = False
    _lent_milli: int = 0
    _quotas: Sequence[QuotaTreeStatus] = ()
    _cells: int = 0

    def start(self) -> None:
        """Call at time 0, before anything happens."""
        self._sums.cell_ms = min(_CELL_MS, max(1, self.duration_ms // _FEWEST_CELLS))
        if self.sample_ms is not None:
            self.series = Series(max(1, self.sample_ms // self._sums.cell_ms) * self._sums.cell_ms)
        self.cluster.server.store(buckets.SPECS).listeners.append(self._on_spec)
        self.cluster.server.store(buckets.QUOTASTATUS).listeners.append(self._on_quotas)
        self._wait()

    def _wait(self) -> None:
        middle_ms = (self._cells + 0.5) * self._sums.cell_ms
        asyncio.get_running_loop().call_at(middle_ms / 1_000, self._look)

    def _on_spec(self, entry: Entry) -> None:
        if entry.value is not None and entry.key.startswith("Pod."):
            self._specs[entry.key] = entry.value

    def _on_quotas(self, entry: Entry) -> None:
        if is_bookkeeping(entry.key):
            return
        if entry.value is None:
            self._trees.pop(entry.key, None)
        else:
            self._trees[entry.key] = entry.value
        self._trees_changed = True

    def facts_of(self, key: str) -> PodFacts | None:
        """What the newest manifest of that name says; None when there never was one."""
        namespace, _, name = key.partition("/")
        raw = self._specs.get(spec_key("Pod", namespace, name))
        if raw is None:
            return None
        known = self._facts.get(key)
        if known is None or known[0] is not raw:
            known = (raw, _facts(codec.decode(SpecRecord, raw)))
            self._facts[key] = known
        return known[1]

    # Looking

    def _look(self) -> None:
        cell_ms = self._sums.cell_ms
        start_ms = self._cells * cell_ms
        changed = False
        nodes = self.cluster.nodes
        for name, node in nodes.items():
            book = self._books.get(name)
            rates = node.machine.rates
            if book is None or book.rates is not rates or book.node is not node:
                changed = True
                self._turn_page(name, book, node, rates, start_ms)
        if len(self._books) > len(nodes):
            changed = True
            for name in [name for name in self._books if name not in nodes]:
                self._close(self._books.pop(name), start_ms)
        if changed:
            self._used_nodes = sum(1 for book in self._books.values() if book.runs)
            self._sums.nodes_used_max = max(self._sums.nodes_used_max, self._used_nodes)
        self._look_at_loans()
        self._sums.nodes_used_ms += self._used_nodes * cell_ms
        if self._trees:
            self._sums.lent_milli_ms = (self._sums.lent_milli_ms or 0.0) + self._lent_milli * cell_ms
        if self.series is not None and start_ms % self.series.step_ms == 0:
            self.series.points.append(self._point(start_ms + cell_ms // 2))
        self._cells += 1
        if (self._cells + 0.5) * cell_ms < self.duration_ms:
            self._wait()

    def _look_at_loans(self) -> None:
        if self._trees_changed:
            self._trees_changed = False
            self._quotas = [codec.decode(QuotaTreeStatus, raw) for _, raw in sorted(self._trees.items())]
            self._lent_milli = sum(_lent(self._quotas).values())

    def _turn_page(self, name: str, old: _Book | None, node: SimulatedNode, rates: Rates, now_ms: int) -> None:
        same = old if old is not None and old.node is node else None
        if old is not None:
            self._settle(old, now_ms)
            if same is None:
                self._end_runs(old, (), now_ms)
        used: dict[str, dict[str, float]] = {resource: dict.fromkeys(CLASSES[:-1], 0.0) for resource in RESOURCES}
        runs: dict[str, tuple[_Run, float]] = {}
        pressed_here = 0
        for uid, rate in rates.pods.items():
            run = self._run(uid, rate, same, now_ms)
            runs[uid] = (run, rate.given_milli)
            band = run.facts.band
            if band in used[CPU]:
                used[CPU][band] += rate.given_milli
                used[MEMORY][band] += rate.demand.memory_bytes or 0
            if rate.tenant.class_name == LS and pressed(rate):
                pressed_here += 1
        system = node.machine.system_demand
        if system.cpu_milli is not None:
            used[CPU]["system"] = rates.system_milli
        if system.memory_bytes is not None:
            used[MEMORY]["system"] = system.memory_bytes
        if same is not None:
            self._end_runs(same, runs, now_ms)
        self._books[name] = _Book(node, rates, now_ms, used, pressed_here, runs)

    def _run(self, uid: str, rate: PodRate, book: _Book | None, now_ms: int) -> _Run:
        if book is not None and uid in book.runs:
            return book.runs[uid][0]
        tenant = rate.tenant
        facts = self.facts_of(tenant.key) or PodFacts(BATCH_BANDS[0] if tenant.class_name == BE else "prod")
        run = _Run(tenant.key, facts, now_ms)
        self._runs.append(run)
        return run

    def _end_runs(self, book: _Book, staying: Container[str], now_ms: int) -> None:
        for uid, (run, _) in book.runs.items():
            if uid not in staying:
                run.ended_ms = now_ms

    def _close(self, book: _Book, now_ms: int) -> None:
        self._settle(book, now_ms)
        self._end_runs(book, (), now_ms)

    def _settle(self, book: _Book, now_ms: int) -> None:
        """Add up what held since the last page."""
        elapsed_ms, book.since_ms = now_ms - book.since_ms, now_ms
        if elapsed_ms <= 0:
            return
        sums, machine = self._sums, book.node.machine
        sums.capacity[CPU] += machine.cpu_milli * elapsed_ms
        sums.capacity[MEMORY] += machine.memory_bytes * elapsed_ms
        for resource, by_class in book.used.items():
            total = sums.used[resource]
            for name, amount in by_class.items():
                total[name] = total.get(name, 0.0) + amount * elapsed_ms
        sums.pressure_ms += book.pressed * elapsed_ms
        for run, given_milli in book.runs.values():
            run.work += given_milli * elapsed_ms

    # Telling

    def summary(self, outcome: Json) -> Json:
        """Up to now."""
        now_ms = self._cells * self._sums.cell_ms
        for book in self._books.values():
            self._settle(book, now_ms)
        self._sums.runs = [RunOfPod(run.key, run.facts, run.started_ms, run.ended_ms, run.work) for run in self._runs]
        unfinished = [key for key, pod in outcome["pods"].items() if pod["phase"] not in _GONE]
        return summarise(self._sums, outcome["events"], self.facts(outcome), unfinished)

    def facts(self, outcome: Json) -> dict[str, PodFacts]:
        return {key: facts for key in outcome["pods"] if (facts := self.facts_of(key)) is not None}

    def finish(self, outcome: Json) -> None:
        if self.series is not None:
            self.series.finish(outcome["events"], self.facts(outcome))

    def _point(self, t_ms: int) -> Point:
        books = self._books.values()
        requested: dict[str, dict[str, int]] = {name: dict.fromkeys(CLASSES[:-1], 0) for name in RESOURCES}
        for binding in self.recorder.charged():
            band = binding.band.removeprefix("koord-")
            for resource, by_class in requested.items():
                if band in by_class:
                    by_class[band] += sum(
                        amount for name, amount in binding.requests.items() if name.rpartition("-")[2] == resource
                    )
        return Point(
            t_ms=t_ms,
            nodes=len(self._books),
            nodes_used=self._used_nodes,
            capacity={
                CPU: sum(book.node.machine.cpu_milli for book in books),
                MEMORY: sum(book.node.machine.memory_bytes for book in books),
            },
            used={resource: _summed([book.used[resource] for book in books]) for resource in RESOURCES},
            requested=requested,
            pressed_pods=sum(book.pressed for book in books),
            borrowed_cpu_milli={
                quota.name: max(0, quota.used.get(CPU, 0) - quota.min[CPU])
                for tree in self._quotas
                for quota in tree.quotas
                if CPU in quota.min and not quota.is_parent
            },
            lent_cpu_milli=_lent(self._quotas),
        )


def _facts(record: SpecRecord) -> PodFacts:
    pod = to_spec(record).pod()
    return PodFacts(pod.band.short, annotations.read_duration_ms(pod.annotations, labels.SIM_DURATION))


def _summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """None where nobody knows."""
    found: dict[str, float | None] = {}
    for name in CLASSES:
        known = [part[name] for part in parts if name in part]
        found[name] = sum(known) if known else None
    return found


def _lent(trees: Sequence[QuotaTreeStatus]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tree in trees:
        for loan in tree.loans:
            if loan.resource == CPU:
                found[loan.lender] = found.get(loan.lender, 0) + loan.amount
    return dict(sorted(found.items()))
