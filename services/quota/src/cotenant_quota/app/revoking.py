"""Carries revocations and drains to the eviction gate, and remembers what it answered."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from cotenant_common.bus.protocol import BusClosedError, BusError
from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import EvictReply, EvictRequest
from cotenant_common.contracts.subjects import POD_EVICT
from cotenant_common.model.ids import object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime import requests
from cotenant_common.runtime.service import ServiceContext
from cotenant_quota.app.world import World
from cotenant_quota.config import QuotaSettings
from cotenant_quota.core.drain import drains
from cotenant_quota.core.pods import PodFacts
from cotenant_quota.core.revoke import RevokePlanner
from cotenant_quota.core.timers import OverTimers

_SERVICE: Final = "quota"
_MARK_SEEN_WITHIN_MS: Final = 30_000
"""What the gate granted counts as leaving until its mark arrives by way of the specs, at the latest so long."""
_DEADLINE_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Ask:
    kind: Literal["reclaim", "drain"]
    pods: tuple[PodFacts, ...]
    reason: ReasonCode
    message: str
    numbers: Mapping[str, Any]
    beneficiary: str | None = None


class Revoker:
    """``granted`` counts pods. A refused pod rests for a while, so that others are looked at in its place."""

    def __init__(self, context: ServiceContext, settings: QuotaSettings, world: World, timers: OverTimers) -> None:
        self.granted = 0
        self._context = context
        self._settings = settings
        self._world = world
        self._timers = timers
        self._leaving: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._apart: dict[str, None] = {}
        """Members of drained gangs that are too large to go as one."""
        self._asked = context.metrics.counter("cotenant_quota_revocations_total", "Evictions asked for, by answer")

    async def run(self, leads: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(self._settings.revoke_interval_s)
            self._context.health.beat("revoke", within_s=60 + 3 * self._settings.revoke_interval_s)
            if leads():
                for ask in self._asks(self._context.clock.now_ms()):
                    if not await self._carry_out(ask) or not leads():
                        break

    def _asks(self, now_ms: int) -> list[_Ask]:
        self._leaving = {uid: until for uid, until in self._leaving.items() if until > now_ms}
        self._resting = {uid: until for uid, until in self._resting.items() if until > now_ms}
        self._apart = {uid: None for uid in self._apart if uid in self._world.book.pods()}
        found: list[_Ask] = []
        for tree_id in self._world.book.forest.trees:
            found.extend(self._drains(tree_id))
            found.extend(self._revocations(tree_id, now_ms))
        return found

    def _drains(self, tree_id: str) -> Iterable[_Ask]:
        book = self._world.book.tree(tree_id)
        if not book.drained:
            return
        for removal in drains(book, self._pods_of(tree_id), self._apart):
            if any(pod.uid in self._resting for pod in removal.pods):
                continue
            message = f"quota {removal.quota} is held and drained"
            yield _Ask("drain", removal.pods, ReasonCode.QUOTA_HELD, message, {"quota": removal.quota})

    def _revocations(self, tree_id: str, now_ms: int) -> Iterable[_Ask]:
        settings = self._settings
        due = self._timers.due(tree_id, now_ms, round(1000 * settings.delay_evict_s))
        if not (settings.monitor_all_quotas and settings.enable_runtime_quota and due):
            return
        planner = RevokePlanner(
            self._world.book.tree(tree_id),
            self._world.book.total(tree_id),
            self._pods_of(tree_id),
            now_ms,
            unclaimed=settings.revoke_unclaimed,
        )
        for one in planner.plan(due):
            beneficiary = object_key("ElasticQuota", None, one.beneficiary)
            yield _Ask("reclaim", one.pods, ReasonCode.QUOTA_RECLAIMED, one.message, one.numbers, beneficiary)

    def _pods_of(self, tree_id: str) -> list[tuple[str, PodFacts]]:
        """What runs and waits under the quotas of a tree, in the light of the gate's latest answers."""
        book = self._world.book
        found = []
        for uid, pod in book.pods().items():
            quota = book.quota_of(uid)
            if quota is not None and book.forest.tree_of.get(quota) == tree_id:
                found.append((quota, self._as_answered(pod)))
        return found

    def _as_answered(self, pod: PodFacts) -> PodFacts:
        if pod.leaving_until_ms is None and pod.uid in self._leaving:
            return replace(pod, leaving_until_ms=self._leaving[pod.uid])
        return replace(pod, evictable=False) if pod.uid in self._resting else pod

    async def _carry_out(self, ask: _Ask) -> bool:
        """False when the gate cannot be reached: the others would not fare better."""
        now_ms = self._context.clock.now_ms()
        uids = [pod.uid for pod in ask.pods]
        request = EvictRequest(
            id=f"{_SERVICE}/{ask.kind}/{uids[0]}/{now_ms}",
            kind=ask.kind,
            victims=_victims(ask.pods),
            requested_by=_SERVICE,
            reason=ask.reason,
            message=ask.message,
            numbers=dict(ask.numbers),
            beneficiary=ask.beneficiary,
            deadline_ms=now_ms + _DEADLINE_MS,
        )
        try:
            reply = await requests.call(self._context.bus, POD_EVICT, request, EvictReply, retries=1)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("eviction_unanswered", pods=uids, error=str(error))
            return False
        self._note(ask, reply)
        return True

    def _note(self, ask: _Ask, reply: EvictReply) -> None:
        now_ms, uids = self._context.clock.now_ms(), [pod.uid for pod in ask.pods]
        self._asked.add(len(ask.pods), {"kind": ask.kind, "granted": str(reply.granted).lower()})
        self._context.log.info(
            "eviction_asked",
            kind=ask.kind,
            pods=[pod.key for pod in ask.pods],
            beneficiary=ask.beneficiary,
            granted=reply.granted,
            reason=reply.reason,
            answer=reply.message,
        )
        if reply.granted:
            self.granted += len(ask.pods)
            self._leaving.update(dict.fromkeys(uids, now_ms + _MARK_SEEN_WITHIN_MS))
            return
        if ask.kind == "drain" and reply.reason == ReasonCode.BUDGET_EXCEEDED and reply.retry_after_ms is None:
            # No retry helps a gang that is larger than a budget or the gate's pace, and all of it is to go anyway.
            self._apart.update(dict.fromkeys(uids))
        # Of several victims only the named ones are at fault; without names the whole request was.
        faulty = [one.pod.uid for one in reply.victims if not one.granted] or uids
        pause_ms = reply.retry_after_ms or round(1000 * self._settings.refused_pause_s)
        self._resting.update(dict.fromkeys(faulty, now_ms + pause_ms))


def _victims(pods: Sequence[PodFacts]) -> list[PodRef]:
    return [PodRef(uid=pod.uid, namespace=pod.namespace, name=pod.name, node=pod.node) for pod in pods]
