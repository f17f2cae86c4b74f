"""The scheduler's decisions: reality goes in, placements and refusals come out, one at a time.

Nothing here waits or knows the time; whoever calls passes it in and carries the decisions out.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.budgets import Budgets
from cotenant_scheduler.core.charge import Charge, charge_of
from cotenant_scheduler.core.cycle import Choice, Cycle, NoChoice, Plugins
from cotenant_scheduler.core.decisions import Decision, Placement, Preemption, Refused
from cotenant_scheduler.core.estimate import LoadPolicy, NodeMetric
from cotenant_scheduler.core.holds import is_for, is_quota
from cotenant_scheduler.core.ledger import Drift, Ledger, Released
from cotenant_scheduler.core.news import News
from cotenant_scheduler.core.queue import GroupKey, Queue
from cotenant_scheduler.core.quota import (
    DEFAULT,
    Admission,
    Admitted,
    NotCovered,
    QuotaBook,
    QuotaObject,
    QuotaRefusal,
    QuotaTree,
)
from cotenant_scheduler.core.refusals import Refusal
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.room import Nomination, Room
from cotenant_scheduler.core.snapshot import NodeFacts, Snapshot
from cotenant_scheduler.core.verdict import Verdict
from cotenant_scheduler.core.victims import Plan, VictimSearch
from cotenant_scheduler.core.words import choice_verdict, gated_verdict, quota_verdict, stale_verdict, with_preemption

QUOTA_WAIT_MS: Final = 200
TELL_AGAIN_MS: Final = 5_000
"""A busy node changes its numbers all the time; thousands of waiting pods need not hear each of them."""


class Engine:
    """``fused`` allows machine code where plugins offer it; what is decided is the same without."""

    def __init__(
        self, plugins: Plugins, policy: LoadPolicy | None = None, *, seed: int = 0, fused: bool = False
    ) -> None:
        self.annotations = frozenset(
            name for plugin in (*plugins.filters, *plugins.scores) for name in plugin.annotations
        )
        self.cluster = Snapshot(policy)
        self.quotas = QuotaBook()
        self.ledger = Ledger(self.cluster, self.quotas)
        self.queue = Queue()
        self._cycle = Cycle(self.cluster, plugins, seed, fused=fused)
        self.budgets = Budgets(self.cluster.neighbours)
        search = VictimSearch(self.cluster, self.quotas, self.ledger, self._cycle, self.budgets, seed)
        self.room = Room(self.ledger, search, self._note_release, self.submit, self._chain_of, self._highest_waiting)
        self._news = News(self._cycle.wakers(), self._cycle.filters, self._cycle.takes)
        self._uncovered: dict[str, tuple[PodRequest, int | None]] = {}
        self._deadlines: deque[tuple[int, str]] = deque()
        self._gated: dict[str, PodRequest] = {}
        self._excluded: dict[str, dict[str, int]] = {}
        self._answers: deque[Refused] = deque()
        self._verdicts: dict[str, Verdict] = {}

    @property
    def fused(self) -> bool:
        """Whether a kernel does the work of several plugins."""
        return self._cycle.fused

    def set_node(self, facts: NodeFacts) -> None:
        known = self.cluster.rows.get(facts.name)
        before = self.cluster.node(known) if known is not None else None
        if before == facts:
            return
        row = self.cluster.set_node(facts)
        if before is not None and facts.differs_in_amounts_only(before):
            self._news.room(row)
        else:
            self._news.node(row)

    def remove_node(self, name: str) -> None:
        """A topology domain may have gone with it, and then the others are no longer too full."""
        self.cluster.remove_node(name)
        self._news.neighbour()

    def set_metric(self, node: str, metric: NodeMetric | None) -> None:
        row = self.cluster.set_metric(node, metric)
        if row is not None:
            self._news.load(row)

    def set_signal(self, name: str, node: str, value: int | None) -> None:
        """A number that plugins read by name, such as ``interference/prod`` in percent; None takes it back."""
        row = self.cluster.set_signal(name, node, value)
        if row is not None:
            self._news.load(row)

    def set_quota_tree(self, tree: QuotaTree) -> None:
        """One message per tree, applied whole: a cut can never be seen without the raise it pays for."""
        self._news.quotas(self.quotas.set_tree(tree))
        self._recheck_coverage()

    def remove_quota_tree(self, tree: str) -> None:
        self.quotas.remove_tree(tree)

    def set_quota_objects(self, objects: Iterable[QuotaObject]) -> None:
        """Charges may have moved to another quota, and then there is room in the one they left."""
        self.quotas.set_homes(objects)
        self._news.quotas(tuple(self.quotas.quotas()))
        self._group_again()
        self._recheck_coverage()

    def _group_again(self) -> None:
        """Something that tells groups apart has changed."""
        for pod in sorted(self.queue.pods(), key=lambda each: each.order):
            self._enqueue(pod)

    def _recheck_coverage(self) -> None:
        for uid, (pod, _) in sorted(self._uncovered.items()):
            if not isinstance(self.quotas.admit(pod), NotCovered):
                del self._uncovered[uid]
                self._enqueue(pod)

    def submit(self, pod: PodRequest) -> None:
        """A pod that waits, new or changed. What is already placed is left alone."""
        if self.ledger.get(pod.uid) is not None:
            return
        known = self.waiting(pod.uid)
        if known is not None:
            if known == pod:
                return
            self._forget_waiting(pod.uid)
        if pod.gates:
            self._gated[pod.uid] = pod
            self._answer((pod,), gated_verdict(pod))
        else:
            self._enqueue(pod)

    def withdraw(self, uid: str) -> None:
        """The pod asks for nothing any more: deleted, or gone."""
        self._forget_waiting(uid)
        self.room.withdraw(uid)
        self._excluded.pop(uid, None)
        self._verdicts.pop(uid, None)

    def hold(self, uid: str) -> None:
        """Out of the queue until it is submitted again; which nodes refused it is remembered."""
        self._forget_waiting(uid)

    def _forget_waiting(self, uid: str) -> None:
        self.queue.remove(uid)
        self._uncovered.pop(uid, None)
        self._gated.pop(uid, None)
        self.room.forget(uid)

    def waiting(self, uid: str) -> PodRequest | None:
        held, nominated = self._uncovered.get(uid), self.room.nominations.get(uid)
        found = self.queue.get(uid) or self._gated.get(uid) or (held[0] if held else None)
        return found or (nominated.pod if nominated is not None else None)

    def verdict(self, uid: str) -> Verdict | None:
        group = self.queue.group_of(uid)
        shared = group.verdict if group is not None else None
        return shared or self._verdicts.get(uid)

    def waiting_count(self) -> int:
        return len(self.queue) + len(self._uncovered) + len(self._gated) + len(self.room.nominations)

    def put_charge(self, charge: Charge) -> None:
        """What a binding says is so, assumed or read back. A pod that is placed waits no longer."""
        self._forget_waiting(charge.uid)
        self._charge(charge)

    def _charge(self, charge: Charge) -> None:
        self._verdicts.pop(charge.uid, None)
        before = self.ledger.get(charge.uid)
        labels_mattered = bool(self.cluster.neighbours.repelling)
        released = self.ledger.put(charge)
        if released is not None and before is not None and before.holds != charge.holds:
            self._note_release(released)
        self._news.neighbour()
        if charge.anti_affinity and not labels_mattered:
            self._group_again()

    def release(self, uid: str) -> Released | None:
        """The binding went, or the pod ended. Idempotent."""
        released = self.ledger.release(uid)
        if released is not None:
            self._note_release(released)
            self.room.left(released.charge)
        return released

    def _note_release(self, released: Released) -> None:
        if released.row is not None:
            self._news.room(released.row)
        if released.quota is not None:
            self._news.quotas(self.quotas.chain(released.quota))
        self._news.neighbour()

    def exclude(self, uid: str, node: str, until_ms: int) -> None:
        """The node refused this very pod: try others first, this one again after a while."""
        self._excluded.setdefault(uid, {})[node] = until_ms
        pod = self.queue.get(uid)
        if pod is not None:
            self._enqueue(pod)

    def audit(self, actual: Mapping[str, Charge]) -> tuple[Drift, ...]:
        return tuple(drift for drift in self.ledger.audit(actual) if drift.uid not in self.room.holds)

    def decide(self, now_ms: int) -> Decision | None:
        """The next decision, or None when nothing can be decided before something happens or time passes."""
        self._advance(now_ms)
        while True:
            if self._answers:
                return self._answers.popleft()
            if (nomination := self.room.pop_ready()) is not None:
                if (placed := self._try_nominated(nomination, now_ms)) is not None:
                    return placed
                continue
            pod = self.queue.pop()
            if pod is None:
                return None
            decision = self._attempt(pod, now_ms)
            if decision is not None:
                return decision

    def next_wake_ms(self) -> int | None:
        """When ``decide`` may have something new to say though nothing happens."""
        waited = self._deadlines[0][0] if self._deadlines else None
        times = (waited, self.queue.next_timer_ms(), self.cluster.load.expires_ms, self.room.next_ms())
        return min((each for each in times if each is not None), default=None)

    def _advance(self, now_ms: int) -> None:
        load = self.cluster.load
        if load.expires_ms is not None and load.expires_ms <= now_ms:
            for row in self.cluster.expire_metrics(now_ms):
                self._news.load(int(row))
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            self._give_up_waiting(*self._deadlines.popleft())
        self.room.advance(now_ms)
        self.queue.tick(now_ms)
        if self.room.claims:
            claims, self.room.claims = self.room.claims, {}
            for uid in claims:
                if (pod := self.queue.get(uid)) is not None:
                    # In a group with others one of those might be the one that tries, and is refused for all.
                    self._enqueue(pod)
            self.queue.wake_those(lambda pod: any(self._claims(each, pod) for each in claims), now_ms)
        if self.room.given_up:
            # No room became free by it, so the news of rows would wake nobody.
            self.room.given_up = False
            self.queue.wake_those(lambda pod: pod.preempts, now_ms, at_once=False)
        if not self._news.quiet:
            if self.room.nominations:
                rows = self._news.roomier()
                self.room.look_again(lambda pod: any(self._cycle.takes(pod.shape, row) for row in rows))
            self._news.spread(self.queue, self.cluster, now_ms)

    def _give_up_waiting(self, until_ms: int, uid: str) -> None:
        pod, until = self._uncovered.get(uid, (None, None))
        if pod is None or until != until_ms:
            return
        self._uncovered[uid] = (pod, None)
        gap = self.quotas.admit(pod)
        if isinstance(gap, NotCovered):
            self._answer((pod,), stale_verdict(gap, QUOTA_WAIT_MS))

    def _attempt(self, pod: PodRequest, now_ms: int) -> Decision | None:
        if (known := self.queue.answered(pod.uid)) is not None:
            return Refused((pod,), known)
        excluded = self._excluded_now(pod.uid, now_ms)
        own = self.room.own(pod)
        admission, choice = self._look(pod, excluded, own)
        if isinstance(admission, NotCovered):
            self.queue.remove(pod.uid)
            self._uncovered[pod.uid] = (pod, now_ms + QUOTA_WAIT_MS)
            self._deadlines.append((now_ms + QUOTA_WAIT_MS, pod.uid))
            return None
        if isinstance(admission, Admitted) and isinstance(choice, Choice):
            return self._place(pod, choice, admission, now_ms)
        if outranked := self.room.outranked(pod):
            again, better = self._look(pod, excluded, [*own, *outranked])
            if isinstance(again, Admitted) and isinstance(better, Choice):
                self.room.overrule(pod, better.node, quota=None if isinstance(admission, Admitted) else again.quota)
                return self._place(pod, better, again, now_ms)
        return self._make_room(pod, admission, excluded, own, now_ms)

    def _look(
        self, pod: PodRequest, excluded: Mapping[str, int], free: Sequence[str]
    ) -> tuple[Admission, Choice | NoChoice | None]:
        """``free``: holds that count as free room for this pod. No node is looked for when the quota says no."""
        if not free:
            admission = self.quotas.admit(pod)
            return admission, self._cycle.choose(pod, excluded) if isinstance(admission, Admitted) else None
        with self.ledger.without(free):
            return self._look(pod, excluded, ())

    def _make_room(
        self,
        pod: PodRequest,
        admission: Admitted | QuotaRefusal,
        excluded: Mapping[str, int],
        own: Sequence[str],
        now_ms: int,
    ) -> Refused | Preemption:
        plan: Plan | str = ""
        quota = admission.quota if isinstance(admission, QuotaRefusal) else None
        if isinstance(admission, Admitted) or _can_be_won(admission):
            plan = self.room.plan(pod, excluded, quota, now_ms)
        if isinstance(plan, Plan):
            self.queue.placed(pod.uid)
            nomination = self.room.nominate(pod, plan, quota, now_ms)
            self._verdicts[pod.uid] = nomination.verdict
            return Preemption(nomination) if plan.victims else Refused((pod,), nomination.verdict)
        return self._park(pod, self._refusal(pod, admission, excluded, own, plan, now_ms), now_ms)

    def _refusal(
        self,
        pod: PodRequest,
        admission: Admitted | QuotaRefusal,
        excluded: Mapping[str, int],
        own: Sequence[str],
        why_not: str,
        now_ms: int,
    ) -> Verdict:
        group = self.queue.group_of(pod.uid)
        rests_ms = self.room.asks_again_ms(pod, now_ms) if why_not else None
        if group is not None:
            for until_ms in (*excluded.values(), *([rests_ms] if rests_ms is not None else [])):
                self.queue.at(until_ms, group.key)
        if isinstance(admission, QuotaRefusal):
            return with_preemption(quota_verdict(admission, self.quotas.chain(admission.quota)), why_not)
        with self.ledger.without(own):
            return with_preemption(choice_verdict(self._cycle.explain(pod, excluded)), why_not)

    def _try_nominated(self, nomination: Nomination, now_ms: int) -> Decision | None:
        """On its own node first; where the room appeared elsewhere sooner, there."""
        pod = nomination.pod
        own = [*self.room.own(pod), *self.room.behind(nomination)]
        excluded, outranked = self._excluded_now(pod.uid, now_ms), self.room.outranked(pod)
        for free in (own, list(dict.fromkeys((*own, *outranked)))) if outranked else (own,):
            with self.ledger.without(free):
                here = self._cycle.only(pod, nomination.node)
            admission, anywhere = self._look(pod, excluded, self.room.own(pod) if here is None else free)
            choice = here or anywhere
            if isinstance(admission, Admitted) and isinstance(choice, Choice):
                if free is not own:
                    self.room.overrule(pod, choice.node, quota=admission.quota)
                return self._place(pod, choice, admission, now_ms)
        if not self.room.awaited(nomination):
            self.room.give_up(pod.uid)
        return None

    def _place(self, pod: PodRequest, choice: Choice, admission: Admitted, now_ms: int) -> Placement:
        charge = charge_of(pod, choice.node, now_ms)
        if pod.uid in self.queue:
            self.queue.placed(pod.uid)
        self.room.took(pod, choice.node)
        self._charge(charge)
        return Placement(pod, charge, choice.score, choice.feasible, admission.quota, admission.chain, choice.best)

    def _park(self, pod: PodRequest, verdict: Verdict, now_ms: int) -> Refused:
        """Those parked earlier hear of new reasons at once, of new numbers now and then."""
        group = self.queue.park(pod.uid, verdict, now_ms)
        told = group.told
        if told is None:
            group.told, group.told_ms = verdict, now_ms
        elif told.message != verdict.message:
            if told.signature != verdict.signature or now_ms - group.told_ms >= TELL_AGAIN_MS:
                group.told, group.told_ms = verdict, now_ms
                members = [self.queue.get(uid) for uid in group.uids]
                return Refused(tuple(each for each in members if each is not None), verdict)
            self.queue.at(group.told_ms + TELL_AGAIN_MS, group.key)
        return Refused((pod,), verdict)

    def _answer(self, pods: tuple[PodRequest, ...], verdict: Verdict) -> None:
        for pod in pods:
            self._verdicts[pod.uid] = verdict
        self._answers.append(Refused(pods, verdict))

    def _enqueue(self, pod: PodRequest) -> None:
        known = self.queue.add(pod, self._group_key(pod))
        if known is not None:
            self._answers.append(Refused((pod,), known))

    def _group_key(self, pod: PodRequest) -> GroupKey:
        """Pods whose answers cannot differ. Labels join in only where somebody looks at them."""
        seen = pod.shape.looks_around or bool(self.cluster.neighbours.repelling)
        around = (pod.namespace, pod.labels) if seen else None
        own = pod.uid if pod.uid in self._excluded or self.room.holds.names(pod) else None
        rank = (pod.priority, pod.preempts)
        return pod.shape, self.quotas.home(pod.namespace, pod.quota_label), pod.preemptible, rank, around, own

    def _excluded_now(self, uid: str, now_ms: int) -> dict[str, int]:
        if uid not in self._excluded:
            return {}
        found = {node: until for node, until in self._excluded[uid].items() if until > now_ms}
        self._excluded[uid] = found
        return found

    def diagnose(self, pod: PodRequest, now_ms: int) -> Verdict | None:
        """What an attempt would answer now; None when the pod would be placed."""
        if pod.gates:
            return gated_verdict(pod)
        if (nomination := self.room.nominations.get(pod.uid)) is not None:
            return nomination.verdict
        excluded, own = self._excluded_now(pod.uid, now_ms), self.room.own(pod)
        admission, choice = self._look(pod, excluded, own)
        if isinstance(admission, NotCovered):
            return stale_verdict(admission, QUOTA_WAIT_MS)
        if isinstance(choice, Choice):
            return None
        plan = self.room.plan(pod, excluded, admission.quota if isinstance(admission, QuotaRefusal) else None, now_ms)
        return self._refusal(pod, admission, excluded, own, plan if isinstance(plan, str) else "", now_ms)

    def _chain_of(self, who: PodRequest | Charge) -> tuple[str, ...]:
        home = self.quotas.home(who.namespace, who.quota_label)
        return self.quotas.chain(home) if home is not None else ()

    def _claims(self, beneficiary: str, pod: PodRequest) -> bool:
        return is_for(beneficiary, pod.uid, pod.key, self._chain_of(pod))

    def _highest_waiting(self, beneficiary: str) -> int | None:
        if not is_quota(beneficiary) and "/" not in beneficiary:
            known = self.waiting(beneficiary)
            return known.priority if known is not None else None
        return max((pod.priority for pod in self.queue.pods() if self._claims(beneficiary, pod)), default=None)

    def used_by_pods(self) -> dict[str, dict[str, int]]:
        """Per quota, what is held for nominees left out."""
        with self.ledger.without(self.room.holds.uids()):
            return {name: self.quotas.used(name) for name in self.quotas.quotas()}

    def why_not(self, pod: PodRequest, node: str, now_ms: int) -> tuple[Refusal, ...]:
        """Every objection to one node; the quota's too while the pod waits. Raise LookupError for an unknown node."""
        if node not in self.cluster.rows:
            raise LookupError(f"no node {node}; known are {', '.join(sorted(self.cluster.rows)[:10]) or 'none'}")
        found = list(self._cycle.why_not(pod, node))
        until = self._excluded_now(pod.uid, now_ms).get(node)
        if until is not None:
            text = f"node {node} refused this pod lately and is tried again in {until - now_ms} ms"
            found.append(Refusal(ReasonCode.BIND_REJECTED, text, {"until_ms": until}))
        if self.ledger.get(pod.uid) is not None:
            return tuple(found)
        admission = self.quotas.admit(pod)
        if isinstance(admission, QuotaRefusal):
            found.append(Refusal(admission.code, admission.message, admission.numbers, admission.helps))
        elif isinstance(admission, NotCovered):
            found.append(Refusal(ReasonCode.QUOTA_STATUS_STALE, admission.message, admission.numbers))
        return tuple(found)


def _can_be_won(refusal: QuotaRefusal) -> bool:
    """A held quota, and a min that is used up by what cannot be evicted, are not changed by evicting anybody."""
    return refusal.code is ReasonCode.QUOTA_EXCEEDED and refusal.quota != DEFAULT
