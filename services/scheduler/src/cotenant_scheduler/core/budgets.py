"""Disruption budgets as far as the choice of victims needs them. What they allow in the end, the eviction gate says."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.neighbours import Neighbours
from cotenant_scheduler.core.request import PodTerm
from cotenant_scheduler.core.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class Budget:
    """Amounts are pods, or percentages such as ``50%`` that round up; None is unset."""

    namespace: str
    name: str
    selector: LabelSelector | None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def allowed(self, expected: int, healthy: int) -> int:
        """How many may go now."""
        if self.min_available is not None:
            wanted = _scaled(self.min_available, expected)
        else:
            wanted = expected - _scaled(self.max_unavailable or 0, expected)
        return max(0, healthy - wanted)


def _scaled(value: int | str, total: int) -> int:
    return value if isinstance(value, int) else -(-int(value.removesuffix("%")) * total // 100)


class Budgets:
    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._budgets: tuple[Budget, ...] = ()

    def set(self, budgets: Iterable[Budget]) -> None:
        self._budgets = tuple(sorted(budgets, key=lambda each: (each.namespace, each.name)))

    def covered(self, name: str) -> list[str]:
        """uids of the placed pods under one budget, given as ``namespace/name``."""
        terms = [PodTerm(b.selector, "", (b.namespace,)) for b in self._budgets if f"{b.namespace}/{b.name}" == name]
        return [charge.uid for term in terms for charge in self._neighbours.matching(term)]

    def breaking(self, pods: Sequence[Charge], leaving: Collection[str]) -> dict[str, None]:
        """uids of those that would be one too many, if all went in this order."""
        broken: dict[str, None] = {}
        for budget in self._budgets:
            term = PodTerm(budget.selector, "", (budget.namespace,))
            covered = [each for each in pods if term.matches(each.namespace, dict(each.labels))]
            if covered:
                # The victims may be lifted from the cluster already, so they are counted by themselves.
                others = {each.uid: each for each in (*self._neighbours.matching(term), *covered)}
                healthy = sum(uid not in leaving for uid in others)
                allowed = budget.allowed(len(others), healthy)
                broken.update((each.uid, None) for each in covered[allowed:])
        return broken
