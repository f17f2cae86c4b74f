"""Over-use revoke: who has to give back what others are owed, and to whom it is promised.

A quota that uses more than its share is not touched for that alone: somebody entitled to the difference has to wait for
it, and what is idle is taken first. What is on its way out already counts as given.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant_common.model import resources
from cotenant_common.model.quota.spec import ROOT, StopPolicy
from cotenant_common.model.resources import ResourceList
from cotenant_quota.core.choose import Slack, Unit, choose, choose_part
from cotenant_quota.core.pods import PodFacts
from cotenant_quota.core.tree_book import QuotaView, TreeBook

Placed = tuple[PodFacts, tuple[str, ...]]
"""A pod with the chain of its quota, that one first."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """One request to the eviction gate: all of these pods or none."""

    pods: tuple[PodFacts, ...]
    quota: str
    beneficiary: str
    message: str
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What a quota is entitled to and waits for. ``below_min``: part of its very guarantee is missing."""

    quota: str
    amount: int
    below_min: bool


class RevokePlanner:
    """Plans for one tree at one moment. Decisions follow from the arguments alone, so that a copy of the live state
    gives the same answer."""

    def __init__(
        self,
        book: TreeBook,
        total: ResourceList,
        pods: Iterable[tuple[str, PodFacts]],
        now_ms: int,
        *,
        unclaimed: bool = False,
    ) -> None:
        """``pods`` are those of the tree with their quotas. ``unclaimed``: revoke also what nobody waits for."""
        self._book = book
        self._total = total
        self._views = book.views
        self._unclaimed = unclaimed
        self._chains = {name: book.tree.chain(name) for name in self._views}
        self._left = {name: dict(view.used) for name, view in self._views.items()}
        self._pods: list[tuple[str, PodFacts]] = []
        queues: dict[str, list[PodFacts]] = {}
        for quota, pod in pods:
            if not pod.assigned:
                queues.setdefault(quota, []).append(pod)
            elif pod.leaving_until_ms is not None and now_ms < pod.leaving_until_ms:
                self._give(quota, pod.request)
            elif pod.leaving_until_ms is None:
                self._pods.append((quota, pod))
        takes = {quota: _would_take(self._views[quota], queues[quota]) for quota in sorted(queues)}
        self._waiting = {name: self._who_waits(name, takes) for name in book.tree.dimensions}

    def plan(self, due: Iterable[str]) -> tuple[Revocation, ...]:
        """Revocations for the quotas that have been over for long enough, deepest first: what a child gives back its
        parents have given back too. A quota that was deleted since it was over has nothing to give back."""
        found: list[Revocation] = []
        known = [name for name in due if name in self._chains]
        for quota in sorted(known, key=lambda name: (-len(self._chains[name]), name)):
            found.extend(self._revoke(quota))
        return tuple(found)

    def _give(self, quota: str, amounts: ResourceList) -> None:
        for name in self._chains[quota]:
            left = self._left[name]
            for key in left:
                left[key] -= amounts.get(key, 0)

    def _who_waits(self, dimension: str, takes: Mapping[str, ResourceList]) -> tuple[_Waiting, ...]:
        """Those whose pods would take it, those below their min first."""
        found = []
        for name, amounts in takes.items():
            amount = amounts.get(dimension, 0)
            if amount > 0 and self._book.policy(name) is StopPolicy.NONE:
                low = self._book.counted_min(name).get(dimension, 0)
                found.append(_Waiting(name, amount, self._views[name].used.get(dimension, 0) < low))
        return tuple(sorted(found, key=lambda one: (not one.below_min, one.quota)))

    def _revoke(self, quota: str) -> Iterable[Revocation]:
        needed = {
            name: amount for name in sorted(self._views[quota].spec.max) if (amount := self._needed(quota, name)) > 0
        }
        if not needed:
            return
        chosen = self._choose(quota, needed)
        for unit in chosen:
            yield self._revocation(quota, unit, needed)
        for unit in chosen:
            for pod in unit.pods:
                self._give(unit.floors[0], pod.request)
        gone = {pod.uid for unit in chosen for pod in unit.pods}
        self._pods = [entry for entry in self._pods if entry[1].uid not in gone]

    def _over(self, quota: str, dimension: str) -> int:
        return max(0, self._left[quota][dimension] - _limit(self._views[quota], dimension))

    def _needed(self, quota: str, dimension: str) -> int:
        """What the quota uses too much and others wait for, beyond what is idle where they meet."""
        over = self._over(quota, dimension)
        if not over or self._unclaimed:
            return over
        most = 0
        for meeting in (*self._chains[quota][1:], ROOT):
            waiting = sum(one.amount for one in self._claims(quota, dimension) if self._is_below(one.quota, meeting))
            most = max(most, waiting - self._idle(meeting, dimension))
        return min(over, most)

    def _claims(self, quota: str, dimension: str) -> list[_Waiting]:
        """Of those outside: what a quota gives back does not help its own."""
        return [one for one in self._waiting[dimension] if quota not in self._chains[one.quota]]

    def _is_below(self, quota: str, ancestor: str) -> bool:
        return ancestor == ROOT or ancestor in self._chains[quota]

    def _idle(self, ancestor: str, dimension: str) -> int:
        if ancestor == ROOT:
            tops = self._book.tree.children.get(ROOT, ())
            used = sum(self._left[name].get(dimension, 0) for name in tops)
            return self._total.get(dimension, 0) - used
        view = self._views[ancestor]
        return _limit(view, dimension) - self._left[ancestor].get(dimension, 0)

    def _choose(self, quota: str, needed: ResourceList) -> tuple[Unit, ...]:
        units = units_of([(pod, self._chains[name]) for name, pod in self._pods if quota in self._chains[name]])
        slack = self._slack(quota, needed)
        chosen = choose(units, needed, slack)
        if chosen:
            return chosen
        if self._somebody_is_below_min(quota, needed):
            # Nothing smaller exists, and what is owed elsewhere is somebody's guarantee.
            chosen = choose(units, needed) or choose_part(units, needed, {})
        return chosen or choose_part(units, needed, slack)

    def _somebody_is_below_min(self, quota: str, needed: ResourceList) -> bool:
        return any(one.below_min for name in needed for one in self._claims(quota, name))

    def _slack(self, quota: str, needed: ResourceList) -> Slack:
        """What each quota concerned uses beyond the min that counts, in the dimensions that are short."""
        return {
            name: {key: self._left[name].get(key, 0) - self._book.counted_min(name).get(key, 0) for key in needed}
            for name in self._views
            if quota in self._chains[name]
        }

    def _revocation(self, quota: str, unit: Unit, needed: ResourceList) -> Revocation:
        dimension = next(name for name in needed if unit.amounts.get(name, 0) > 0)
        claims = self._claims(quota, dimension)
        beneficiary = claims[0] if claims else _Waiting(self._views[quota].spec.parent, 0, below_min=False)
        view = self._views[quota]
        used, limit = view.used[dimension], _limit(view, dimension)
        shown = f"{resources.render(dimension, used)} > {resources.render(dimension, limit)}"
        waits = (
            f"{beneficiary.quota} waits for {resources.render(dimension, beneficiary.amount)}"
            if claims
            else "nobody waits for it"
        )
        return Revocation(
            pods=unit.pods,
            quota=quota,
            beneficiary=beneficiary.quota,
            message=f"quota {quota} uses more {dimension} than its share ({shown}), and {waits}",
            numbers={
                "quota": quota,
                "dimension": dimension,
                "used": used,
                "runtime": limit,
                "min": view.spec.min.get(dimension, 0),
                "needed": needed[dimension],
                "claim": beneficiary.amount,
            },
        )


def _limit(view: QuotaView, dimension: str) -> int:
    return min(view.runtime.get(dimension, 0), view.spec.max.get(dimension, 0))


def _would_take(view: QuotaView, queue: Sequence[PodFacts]) -> dict[str, int]:
    """What the waiting pods of a quota could have now: whole ones within its share, those that cannot be preempted
    within its min. Nobody is evicted for a pod that may not run all the same."""
    used, bound = dict(view.used), dict(view.non_preemptible_used)
    for pod in sorted(queue, key=lambda one: (-one.priority, -one.sub_priority, one.since_ms, one.uid)):
        request = {name: amount for name, amount in pod.request.items() if amount > 0 and name in view.spec.max}
        fits = all(used.get(name, 0) + amount <= _limit(view, name) for name, amount in request.items())
        if not pod.preemptible:
            low = view.spec.min
            fits = fits and all(bound.get(name, 0) + amount <= low.get(name, 0) for name, amount in request.items())
        if fits:
            used = resources.add(used, request)
            bound = bound if pod.preemptible else resources.add(bound, request)
    return {name: amount - view.used.get(name, 0) for name, amount in used.items()}


def units_of(pods: Sequence[Placed]) -> list[Unit]:
    """Pods that may go: one by one, but the members that a gang cannot do without together. Its surplus, newest first,
    comes one by one and before them."""
    units: list[Unit] = []
    gangs: dict[tuple[str, str], list[Placed]] = {}
    for pod, chain in pods:
        if pod.gang is not None:
            gangs.setdefault((pod.namespace, pod.gang.name), []).append((pod, chain))
        elif _may_go(pod):
            units.append(_unit([pod], chain, whole_gang=False))
    for members in gangs.values():
        units.extend(_units_of_gang(members))
    return units


def _units_of_gang(members: list[Placed]) -> Iterable[Unit]:
    needed = max(pod.gang.min_member for pod, _ in members if pod.gang is not None)
    # Members that must stay are part of what the gang cannot do without.
    newest_first = sorted(members, key=lambda one: (not _may_go(one[0]), -one[0].since_ms, one[0].uid))
    surplus = newest_first[: max(0, len(members) - needed)]
    core = newest_first[len(surplus) :]
    for pod, chain in surplus:
        if _may_go(pod):
            yield _unit([pod], chain, whole_gang=False)
    if core and all(_may_go(pod) for pod, _ in core):
        yield _unit([pod for pod, _ in core], core[0][1], whole_gang=True)


def _may_go(pod: PodFacts) -> bool:
    return pod.preemptible and pod.evictable


def _unit(pods: list[PodFacts], chain: tuple[str, ...], *, whole_gang: bool) -> Unit:
    amounts: dict[str, int] = {}
    for pod in pods:
        amounts = resources.add(amounts, pod.request)
    priority, sub_priority = max((pod.priority, pod.sub_priority) for pod in pods)
    newest = max(pod.since_ms for pod in pods)
    rank = (priority, sub_priority, int(whole_gang), -newest, min(pod.uid for pod in pods))
    return Unit(tuple(sorted(pods, key=lambda pod: pod.uid)), amounts, chain, rank)
