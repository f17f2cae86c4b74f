"""Who has to go so that a pod can start: as few as possible, the least important, and nobody without need.

On one node: all pods that may go are thought away; if the pod then fits, they are put back one by one, those whose
disruption budget would break first, then the most important first, and who can stay stays (the reprieve of the
Kubernetes preemption). Room that is free already, or is leaving anyway, counts before anybody is asked to go.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotenant_scheduler.core.beneath import Beneath
from cotenant_scheduler.core.budgets import Budgets
from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.columns import Rows
from cotenant_scheduler.core.cycle import Choice, Cycle
from cotenant_scheduler.core.ledger import Ledger
from cotenant_scheduler.core.quota import DEFAULT, Admitted, QuotaBook
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.snapshot import Snapshot, stable_hash

_BEST: Final = 8
"""Nodes per level of priority on which the reprieve is played through; of those that fail, as many as there are."""
_OFFSET: Final = 1 << 31

Cost = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Ask:
    """``gone``: charges that count as freed for this pod. ``quota``: victims have to be charged to it; None: any."""

    excluded: Collection[str] = ()
    gone: Collection[str] = ()
    leaving: Collection[str] = ()
    spared: Collection[str] = ()
    quota: str | None = None
    gone_nodes: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """``victims`` from the least important on; none where what is leaving already is enough."""

    node: str
    victims: tuple[Charge, ...]
    waits: tuple[str, ...] = ()
    """uids of those that leave anyway, whose room the plan counts on."""
    breaking: int = 0
    """How many of them a disruption budget would miss."""
    cost: Cost = field(default=(0, 0, 0, 0, 0, 0))


class VictimSearch:
    """Costs are compared in this order: broken budgets, the most important victim, the sum of priorities, the number of
    victims, the youngest of the most important ones; the seed breaks ties."""

    def __init__(
        self, cluster: Snapshot, quotas: QuotaBook, ledger: Ledger, cycle: Cycle, budgets: Budgets, seed: int = 0
    ) -> None:
        self._cluster = cluster
        self._quotas = quotas
        self._ledger = ledger
        self._cycle = cycle
        self._budgets = budgets
        self._beneath = Beneath(cluster)
        self._seed = seed

    def find(self, pod: PodRequest, ask: Ask) -> Plan | None:
        with self._ledger.without(ask.gone):
            return self._in_quota(pod, ask, ask.quota) if ask.quota is not None else self._by_priority(pod, ask)

    def _by_priority(self, pod: PodRequest, ask: Ask) -> Plan | None:
        """Level by level from the least important on: the first level that has an answer has the cheapest victims."""
        rows = self._cycle.open_rows(pod.shape, ask.excluded)
        waiting = [self._cluster.rows[name] for name in ask.gone_nodes if name in self._cluster.rows]
        for row in (each for each in waiting if each in rows):
            if self._cycle.fits(pod, row):
                return Plan(self._cluster.name(row), ())
        best: Plan | None = None
        judged: dict[int, None] = {}
        count = self._cycle.counts_resources
        for level in self._ledger.priorities_beneath(pod.priority):
            found = self._beneath.candidates(pod.shape, level + 1, rows, count_resources=count)
            fresh = [row for row in self._ordered(found, pod) if row not in judged]
            best = _cheaper(best, self._best_of(pod, ask, fresh, judged, level + 1))
            if best is not None and not best.breaking:
                break
        return best

    def _ordered(self, rows: Rows, pod: PodRequest) -> list[int]:
        mine = np.uint64(stable_hash(f"{self._seed}/{pod.uid}"))
        found: list[int] = rows[np.argsort(self._cluster.row_hash[rows] ^ mine)].tolist()
        return found

    def _best_of(
        self, pod: PodRequest, ask: Ask, rows: Sequence[int], judged: dict[int, None], beneath: int
    ) -> Plan | None:
        best, answers = None, 0
        for row in rows:
            pool = [
                each
                for each in self._cluster.placed[row].values()
                if _may_go(each, beneath, ask) and self._same_owner(pod, each)
            ]
            plan = self._on_node(pod, row, pool, ask) if pool else None
            if plan is None:
                continue
            if not plan.breaking:
                # With a budget broken, more important pods may be the better choice: looked at again a level higher.
                judged[row] = None
            best, answers = _cheaper(best, plan), answers + 1
            if answers >= _BEST:
                break
        return best

    def _same_owner(self, pod: PodRequest, victim: Charge) -> bool:
        """What another quota borrowed comes back by reclaim, which keeps its min; a preemption would not."""
        mine = self._quotas.home(pod.namespace, pod.quota_label)
        theirs = self._quotas.home(victim.namespace, victim.quota_label)
        return mine == theirs or mine in (None, DEFAULT) or theirs in (None, DEFAULT)

    def _on_node(self, pod: PodRequest, row: int, pool: Sequence[Charge], ask: Ask) -> Plan | None:
        """The same minimal set whatever the order of the pool; None when not even all of them would be enough."""
        breaking = self._budgets.breaking(sorted(pool, key=_importance), ask.leaving)
        order = sorted(pool, key=lambda each: (each.uid not in breaking, *_importance(each)))
        here = self._cluster.name(row)
        victims: list[Charge] = []
        with self._ledger.without(each.uid for each in order):
            if not self._fits(pod, row):
                return None
            for charge in order:
                self._ledger.put(charge)
                enough = self._fits(pod, row) if charge.node == here else self._admits(pod)
                if not enough:
                    self._ledger.release(charge.uid)
                    victims.append(charge)
        victims.sort(key=_importance, reverse=True)
        broken = sum(each.uid in self._budgets.breaking(victims, ask.leaving) for each in victims)
        return Plan(here, tuple(victims), (), broken, self._cost(pod, here, victims, broken))

    def _fits(self, pod: PodRequest, row: int) -> bool:
        return self._admits(pod) and self._cycle.fits(pod, row)

    def _admits(self, pod: PodRequest) -> bool:
        return isinstance(self._quotas.admit(pod), Admitted)

    def _cost(self, pod: PodRequest, node: str, victims: Sequence[Charge], broken: int) -> Cost:
        highest = max((each.priority for each in victims), default=-_OFFSET)
        # The offset makes each victim count, also where priorities are zero or less.
        total = sum(each.priority + _OFFSET for each in victims)
        began = max((each.load.placed_ms for each in victims if each.priority == highest), default=0)
        tie = stable_hash(node) ^ stable_hash(f"{self._seed}/{pod.uid}")
        return broken, highest, total, len(victims), -began, tie

    def _in_quota(self, pod: PodRequest, ask: Ask, quota: str) -> Plan | None:
        """The quota says no, so only its own pods can help, wherever they are; the node is free or theirs."""
        pool = [each for _, each in sorted(self._quotas.holders(quota).items()) if _may_go(each, pod.priority, ask)]
        names = self._where(pod, pool, ask)
        plans = [self._on_node(pod, self._cluster.rows[name], pool, ask) for name in names]
        best: Plan | None = None
        for plan in plans:
            best = _cheaper(best, plan)
        return best

    def _where(self, pod: PodRequest, pool: Sequence[Charge], ask: Ask) -> list[str]:
        """A node that is free now costs nobody his place; else the best of those that pods of the quota could free."""
        free = self._cycle.choose(pod, ask.excluded)
        if isinstance(free, Choice) and self._admits(pod):
            return [free.node]
        with self._ledger.without(each.uid for each in pool):
            if not self._admits(pod):
                return []
            if isinstance(free, Choice):
                return [free.node]
            found = self._cycle.choose(pod, ask.excluded)
        return [name for name, _ in found.best] if isinstance(found, Choice) else []


def _may_go(charge: Charge, beneath: int, ask: Ask) -> bool:
    return (
        charge.evictable
        and charge.priority < beneath
        and charge.uid not in ask.leaving
        and charge.uid not in ask.spared
    )


def _importance(charge: Charge) -> tuple[int, int, str]:
    """Most important first: by priority, then who has run for longest."""
    return -charge.priority, charge.load.placed_ms, charge.uid


def _cheaper(one: Plan | None, other: Plan | None) -> Plan | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda each: each.cost)
