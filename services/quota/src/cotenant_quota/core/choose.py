"""Which of several units to give up, so that enough is freed and as much as possible stays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant_common.model.resources import ResourceList
from cotenant_quota.core.pods import PodFacts

_STEPS: Final = 10_000
"""Choices looked at before settling for less than the best: importance orders the search, so good ones come first."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What leaves together: one pod, or the members of a gang that are worth nothing apart.

    ``floors`` name the quotas whose min it counts against, its own and those above. Units compare by ``rank``, the
    least important first.
    """

    pods: tuple[PodFacts, ...]
    amounts: ResourceList
    floors: tuple[str, ...]
    rank: tuple[int, int, int, int, str]


Slack = Mapping[str, ResourceList]
"""By quota, then dimension: how much may go before its min is touched. A dimension that is not named is not watched."""


def choose(units: Sequence[Unit], needed: ResourceList, slack: Slack | None = None) -> tuple[Unit, ...]:
    """The least important units that together free what is needed, without one that could stay (Koordinator's
    over-use revoke: drop the least important first, then give back from the most important).

    With ``slack`` no min is touched. Empty when no choice frees enough.
    """
    ordered = sorted(units, key=lambda unit: unit.rank)
    taken = _Search(ordered, needed, slack or {}).run()
    return _with_smaller(_without_surplus(taken, needed), ordered, needed, slack or {})


def choose_part(units: Sequence[Unit], needed: ResourceList, slack: Slack) -> tuple[Unit, ...]:
    """What can go without touching a min, though it does not free all that is needed."""
    search = _Search(sorted(units, key=lambda unit: unit.rank), needed, slack)
    for index in range(len(search.units)):
        search.take(index)
    return tuple(search.units[index] for index in search.taken)


class _Search:
    """Depth first in order of importance; the first choice found is the least important one."""

    def __init__(self, units: Sequence[Unit], needed: ResourceList, slack: Slack) -> None:
        self.units = units
        self.taken: list[int] = []
        self._open = dict(needed)
        self._slack = {quota: dict(amounts) for quota, amounts in slack.items()}
        self._rest = _sums_of_the_rest(units, needed)

    def run(self) -> tuple[Unit, ...]:
        index = 0
        for _ in range(_STEPS):
            if self._satisfied():
                return tuple(self.units[one] for one in self.taken)
            if not self._reachable(index):
                if not self.taken:
                    return ()
                index = self._put_back() + 1
            else:
                self.take(index)
                index += 1
        return ()

    def _satisfied(self) -> bool:
        return all(amount <= 0 for amount in self._open.values())

    def _reachable(self, index: int) -> bool:
        return all(amount <= self._rest[index].get(name, 0) for name, amount in self._open.items())

    def take(self, index: int) -> None:
        unit = self.units[index]
        useful = any(amount > 0 and unit.amounts.get(name, 0) > 0 for name, amount in self._open.items())
        if useful and self._affordable(unit):
            self.taken.append(index)
            self._book(unit, +1)

    def _affordable(self, unit: Unit) -> bool:
        return all(
            unit.amounts.get(name, 0) <= max(left, 0)
            for quota in unit.floors
            for name, left in self._slack.get(quota, {}).items()
        )

    def _put_back(self) -> int:
        index = self.taken.pop()
        self._book(self.units[index], -1)
        return index

    def _book(self, unit: Unit, sign: int) -> None:
        for name in self._open:
            self._open[name] -= sign * unit.amounts.get(name, 0)
        for quota in unit.floors:
            left = self._slack.get(quota, {})
            for name in left:
                left[name] -= sign * unit.amounts.get(name, 0)


def _sums_of_the_rest(units: Sequence[Unit], needed: ResourceList) -> list[dict[str, int]]:
    """What all units from each place on free together."""
    sums = [dict.fromkeys(needed, 0)]
    for unit in reversed(units):
        sums.append({name: amount + unit.amounts.get(name, 0) for name, amount in sums[-1].items()})
    return sums[::-1]


def frees(units: Sequence[Unit], needed: ResourceList) -> bool:
    return all(sum(unit.amounts.get(name, 0) for unit in units) >= amount for name, amount in needed.items())


def _without_surplus(taken: Sequence[Unit], needed: ResourceList) -> tuple[Unit, ...]:
    """Give back from the most important on what the others make unnecessary."""
    kept = list(taken)
    for unit in reversed(taken):
        rest = [one for one in kept if one is not unit]
        if frees(rest, needed):
            kept = rest
    return tuple(kept)


def _with_smaller(
    taken: tuple[Unit, ...], units: Sequence[Unit], needed: ResourceList, slack: Slack
) -> tuple[Unit, ...]:
    """Of equally important units the smallest that suffices: the rest of a larger one would have gone for nothing."""
    chosen = list(taken)
    for place, unit in enumerate(taken):
        equals = [
            one
            for one in units
            if one.rank[:2] == unit.rank[:2] and one not in chosen and _size(one, needed) < _size(unit, needed)
        ]
        for one in sorted(equals, key=lambda each: _size(each, needed)):
            swapped = [*chosen[:place], one, *chosen[place + 1 :]]
            if frees(swapped, needed) and _within(swapped, slack):
                chosen = swapped
                break
    return tuple(chosen)


def _size(unit: Unit, needed: ResourceList) -> tuple[int, ...]:
    return tuple(unit.amounts.get(name, 0) for name in sorted(needed))


def _within(units: Sequence[Unit], slack: Slack) -> bool:
    return all(
        sum(unit.amounts.get(name, 0) for unit in units if quota in unit.floors) <= max(left, 0)
        for quota, amounts in slack.items()
        for name, left in amounts.items()
    )
