"""Making room: who is nominated, who is leaving, what is promised to whom, and who was asked in vain.

The victims' own charges hold the room until they are gone; a hold in the nominee's name keeps it from then on. So the
room is never free for others in between, and a search that comes meanwhile finds nothing to win there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.holds import Hold, Holds, held_charge, is_for, is_quota
from cotenant_scheduler.core.ledger import Ledger, Released
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.verdict import Verdict
from cotenant_scheduler.core.victims import Ask, Plan, VictimSearch
from cotenant_scheduler.core.words import nominated_verdict

_UNKNOWN_PRIORITY: Final = (1 << 31) - 1
"""Nobody outranks a quota of which no pod waits at the moment."""
_UNANSWERED_MS: Final = 30_000
"""Who asks the gate answers for it; this is for the case that nobody does."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that was told to go. Its room counts as freed until ``until_ms``; one that hangs counts no longer."""

    until_ms: int
    beneficiary: str | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """Room that a pod left behind before this engine was there to see it."""

    uid: str
    name: tuple[str, str]
    node: str
    requests: Mapping[str, int]
    beneficiary: str
    at_ms: int
    until_ms: int


@dataclass(slots=True)
class Nomination:
    """A pod that waits for room to become free on one node."""

    pod: PodRequest
    plan: Plan
    quota: str | None
    since_ms: int
    until_ms: int

    @property
    def node(self) -> str:
        return self.plan.node

    @property
    def victims(self) -> tuple[Charge, ...]:
        return self.plan.victims

    @property
    def awaited(self) -> tuple[str, ...]:
        """uids; when none of them is there any more and the pod still has no room, it looks again."""
        return (*(each.uid for each in self.victims), *self.plan.waits)

    @property
    def verdict(self) -> Verdict:
        return nominated_verdict(self.node, tuple(each.key for each in self.victims), self.quota, self.since_ms)


class Room:
    """``released`` is told of room that is free again, ``submit`` gets pods back that wait for nothing any more.

    ``waiting``: the highest priority of the pods that wait and are the beneficiary, or belong to it; None for none.
    """

    def __init__(
        self,
        ledger: Ledger,
        search: VictimSearch,
        released: Callable[[Released], None],
        submit: Callable[[PodRequest], None],
        chain: Callable[[PodRequest | Charge], Sequence[str]],
        waiting: Callable[[str], int | None],
    ) -> None:
        self.holds = Holds(ledger)
        self.nominations: dict[str, Nomination] = {}
        self.claims: dict[str, None] = {}
        """Beneficiaries whose room became free since somebody last looked."""
        self.given_up = False
        """Somebody's nomination came to nothing since: what it stood in the way of can be won by others."""
        self._ledger = ledger
        self._search = search
        self._released = released
        self._submit = submit
        self._chain = chain
        self._waiting = waiting
        self._leaving: dict[str, Leaving] = {}
        self._spared: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._ready: dict[str, None] = {}

    def own(self, pod: PodRequest) -> list[str]:
        """Holds that this pod may use up."""
        return self.holds.of(pod, self._chain(pod)) if len(self.holds) else []

    def outranked(self, pod: PodRequest) -> list[str]:
        return self.holds.beneath(pod.priority) if len(self.holds) else []

    def plan(self, pod: PodRequest, excluded: Iterable[str], quota: str | None, now_ms: int) -> Plan | str:
        """How room can be made, or in words why not; an empty text where there is nobody to go."""
        if not pod.preempts and not self._promised(pod):
            return "it may not preempt (preemption policy Never)" if self._anyone_beneath(pod) else ""
        if (until_ms := self._resting.get(pod.uid, 0)) > now_ms:
            return f"the eviction gate said no, it is asked again in {until_ms - now_ms} ms"
        if not self._anyone_beneath(pod) and not self._promised(pod):
            return ""
        self._spared = {uid: until for uid, until in self._spared.items() if until > now_ms}
        leaving = {uid: each for uid, each in self._leaving.items() if self._ledger.get(uid) is not None}
        freed = [uid for uid, each in leaving.items() if each.until_ms > now_ms and self._gives_way(each, pod)]
        spoken_for = self._victims()
        gone = list(dict.fromkeys((*freed, *spoken_for, *self.own(pod), *self.outranked(pod))))
        nodes = dict.fromkeys(charge.node for uid in gone if (charge := self._ledger.get(uid)) is not None)
        ask = Ask(tuple(excluded), gone, {**leaving, **spoken_for}, self._spared, quota, tuple(nodes))
        found = self._search.find(pod, ask)
        waits = tuple(uid for uid in (*freed, *spoken_for) if self._ledger.get(uid) is not None)
        if found is None or (found.victims and not pod.preempts) or not (found.victims or waits):
            return self._in_vain(quota)
        return found if found.victims else replace(found, waits=waits)

    def _in_vain(self, quota: str | None) -> str:
        spared = f" ({len(self._spared)} are spared for now: the eviction gate said no)" if self._spared else ""
        whom = f"pods of lower priority in quota {quota}" if quota is not None else "pods of lower priority"
        return f"evicting {whom} would not help{spared}"

    def _anyone_beneath(self, pod: PodRequest) -> bool:
        return bool(self._ledger.priorities_beneath(pod.priority))

    def _promised(self, pod: PodRequest) -> bool:
        return any(
            each.beneficiary is not None and is_for(each.beneficiary, pod.uid, pod.key, self._chain(pod))
            for each in self._leaving.values()
        )

    def _gives_way(self, leaving: Leaving, pod: PodRequest) -> bool:
        """To its beneficiary, and to anybody where there is none; where it is a nominee, the hold keeps its part."""
        owner = leaving.beneficiary
        if owner is None or owner in self.nominations or is_for(owner, pod.uid, pod.key, self._chain(pod)):
            return True
        return not is_quota(owner) and self._waiting(owner) is None

    def _victims(self) -> dict[str, str]:
        """Of all nominations, with their nodes: on their way out, though not all of them may have been told."""
        return {
            victim.uid: victim.node
            for nomination in self.nominations.values()
            for victim in nomination.victims
            if self._ledger.get(victim.uid) is not None
        }

    def nominate(self, pod: PodRequest, plan: Plan, quota: str | None, now_ms: int) -> Nomination:
        for uid in self.holds.of(pod, ()):
            self.holds.drop(uid)
        requests = pod.shape.request
        uid = f"hold/{pod.uid}"
        label = (pod.namespace, pod.name)
        charge = held_charge(uid, label, plan.node, requests, pod.priority, pod.quota_label, counted=True)
        self.holds.put(Hold(charge, pod.uid, None))
        until_ms = now_ms + _UNANSWERED_MS
        if not plan.victims:
            times = (self._leaving[each].until_ms for each in plan.waits if each in self._leaving)
            until_ms = max(times, default=until_ms)
        found = Nomination(pod, plan, quota, now_ms, until_ms)
        self.nominations[pod.uid] = found
        return found

    def withdraw(self, pod_uid: str) -> None:
        """Nothing is held for a pod that is gone."""
        self.forget(pod_uid)
        for uid in self.holds.uids():
            if self.holds[uid].beneficiary == pod_uid:
                self._drop(uid)

    def forget(self, uid: str) -> None:
        """The pod asks for nothing any more, or for something else."""
        self.given_up |= self._end(uid)

    def _end(self, uid: str) -> bool:
        """Whether it was nominated."""
        self._resting.pop(uid, None)
        self._ready.pop(uid, None)
        if self.nominations.pop(uid, None) is None:
            return False
        self._drop(f"hold/{uid}")
        return True

    def give_up(self, uid: str) -> None:
        nomination = self.nominations.get(uid)
        if nomination is not None:
            self.forget(uid)
            self._submit(nomination.pod)

    def _drop(self, uid: str) -> None:
        released = self.holds.drop(uid)
        if released is not None:
            self._released(released)

    def granted(self, uid: str, until_ms: int) -> None:
        """The victims are on their way; after that time the pod looks for another way."""
        nomination = self.nominations.get(uid)
        if nomination is not None:
            nomination.until_ms = until_ms
            for victim in nomination.victims:
                # Who was gone before the answer came is released no second time, and would stay in here for ever.
                if self._ledger.get(victim.uid) is not None:
                    self._leaving.setdefault(victim.uid, Leaving(until_ms, uid))

    def refused(self, uid: str, spared: Iterable[str], until_ms: int) -> None:
        """Others are tried; where nobody is to blame, the pod itself rests."""
        nomination = self.nominations.get(uid)
        if nomination is None:
            return
        names = list(spared)
        self._spared.update(dict.fromkeys(names, until_ms))
        self.give_up(uid)
        staying = {victim.uid for victim in nomination.victims if victim.uid not in self._leaving}
        for other in [each for each in self.nominations.values() if not staying.isdisjoint(each.plan.waits)]:
            self.give_up(other.pod.uid)
        if not names:
            self._resting[uid] = until_ms

    def asks_again_ms(self, pod: PodRequest, now_ms: int) -> int | None:
        """When time alone may change what ``plan`` says; None when it will not. Never a moment that has passed."""
        spared = self._spared.values() if pod.preempts else ()
        times = (self._resting.get(pod.uid, 0), *spared)
        return min((each for each in times if each > now_ms), default=None)

    def set_leaving(self, uid: str, leaving: Leaving) -> None:
        """As its mark says."""
        self._leaving[uid] = leaving
        nomination = self.nominations.get(leaving.beneficiary or "")
        if nomination is not None:
            nomination.until_ms = max(nomination.until_ms, leaving.until_ms)

    def left(self, charge: Charge) -> None:
        """A charge was released: who waits for it looks again, and what is promised stays held."""
        leaving = self._leaving.pop(charge.uid, None)
        for uid, nomination in self.nominations.items():
            if nomination.node == charge.node or charge.uid in nomination.awaited:
                self._ready[uid] = None
        if leaving is None or leaving.beneficiary is None or leaving.beneficiary in self.nominations:
            return
        name = (charge.namespace, charge.name)
        self._keep(
            Promise(charge.uid, name, charge.node, charge.requests, leaving.beneficiary, 0, leaving.until_ms), None
        )

    def promise(self, promise: Promise, placed: Iterable[Charge]) -> None:
        """What pods of the beneficiary have taken since is off it."""
        self._keep(promise, [each for each in placed if each.load.placed_ms >= promise.at_ms])

    def _keep(self, promise: Promise, since: Sequence[Charge] | None) -> None:
        rest = dict(promise.requests)
        for charge in since or ():
            if is_for(promise.beneficiary, charge.uid, charge.key, self._chain(charge)):
                rest = {name: max(0, amount - charge.requests.get(name, 0)) for name, amount in rest.items()}
        uid = f"promise/{promise.uid}"
        priority = self._waiting(promise.beneficiary)
        if priority is None and not is_quota(promise.beneficiary):
            return
        if any(rest.values()) and uid not in self.holds and promise.beneficiary not in self.nominations:
            charge = held_charge(
                uid, promise.name, promise.node, rest, _UNKNOWN_PRIORITY if priority is None else priority
            )
            self.holds.put(Hold(charge, promise.beneficiary, promise.until_ms))
            self.claims[promise.beneficiary] = None

    def behind(self, nomination: Nomination) -> list[str]:
        """Holds of nominees on its node that wait for others to go: who is still there keeps their room already.

        All that is free or being freed there is the sum of the holds, so whoever takes no more than its own leaves
        enough for the others.
        """
        return [
            f"hold/{uid}"
            for uid, each in self.nominations.items()
            if each is not nomination and each.node == nomination.node and self.awaited(each)
        ]

    def took(self, pod: PodRequest, node: str) -> None:
        """The pod has a place: what was held for it is used up, first by what was promised to it alone."""
        taken: Mapping[str, int] = pod.shape.request
        own = self.own(pod)
        self._end(pod.uid)
        for uid in own:
            if uid in self.holds and self.holds[uid].charge.node == node:
                taken = self.holds.consume(uid, taken)
            elif uid in self.holds and self.holds[uid].beneficiary in (pod.uid, pod.key, f"Pod/{pod.key}"):
                self._drop(uid)

    def overrule(self, pod: PodRequest, node: str, *, quota: str | None) -> None:
        """A more important pod took the room: those that it was held for look again."""
        for uid in self.outranked(pod):
            if uid not in self.holds:
                continue
            hold = self.holds[uid]
            same_quota = quota is not None and quota in self._chain(hold.charge)
            if hold.charge.node == node or same_quota:
                if hold.beneficiary in self.nominations:
                    self.give_up(hold.beneficiary)
                else:
                    self._drop(uid)

    def look_again(self, wanted: Callable[[PodRequest], bool]) -> None:
        """Room appeared: nominees that it would do for need not wait for their victims to end."""
        self._ready.update((uid, None) for uid, each in self.nominations.items() if wanted(each.pod))

    def pop_ready(self) -> Nomination | None:
        while self._ready:
            uid = min(self._ready, key=self._order_of)
            del self._ready[uid]
            if (found := self.nominations.get(uid)) is not None:
                return found
        return None

    def _order_of(self, uid: str) -> tuple[int, int, int, str, str]:
        nomination = self.nominations.get(uid)
        return nomination.pod.order if nomination is not None else (0, 0, 0, "", uid)

    def awaited(self, nomination: Nomination) -> bool:
        """Whether anybody is still there whose room it may get: of nominees that share a node any may come first."""
        going = (*nomination.awaited, *self._victims(), *self._leaving)
        return any(
            (held := self._ledger.get(uid)) is not None and held.node == nomination.node for uid in going
        ) or any(self._ledger.get(uid) is not None for uid in nomination.awaited)

    def advance(self, now_ms: int) -> None:
        for uid in [uid for uid, each in self.nominations.items() if each.until_ms <= now_ms]:
            self.give_up(uid)
        for uid in self.holds.due(now_ms):
            self._drop(uid)

    def next_ms(self) -> int | None:
        times = [each.until_ms for each in self.nominations.values()]
        held = self.holds.next_ms()
        return min([*times, *([held] if held is not None else [])], default=None)
