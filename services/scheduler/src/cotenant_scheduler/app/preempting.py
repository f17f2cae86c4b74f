"""Asks the eviction gate for room: the nomination is on record first, then all victims are asked for, or none."""

import asyncio
import hashlib
from typing import Final

from cotenant_common.bus.protocol import BusClosedError, BusError
from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import EvictReply, EvictRequest
from cotenant_common.contracts.subjects import POD_EVICT
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime import requests
from cotenant_scheduler.app.leader import Leader
from cotenant_scheduler.core.decisions import Preemption
from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.room import Nomination

_SERVICE: Final = "scheduler"
_DEADLINE_MS: Final = 10_000
_REFUSED_MS: Final = 10_000
_UNREACHABLE_MS: Final = 1_000
_HANGS_AFTER_MS: Final = 60_000
_LEAST_PAUSE_MS: Final = 500


class Preempting:
    """One after the other: what the gate answers for one is what the next one's budgets are judged by."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._waiting: dict[str, Nomination] = {}
        self._came = asyncio.Event()
        self._asked = leader.context.metrics.counter(
            "cotenant_scheduler_preemptions_total", "Requests for the eviction of less important pods, by answer"
        )

    def clear(self) -> None:
        self._waiting.clear()

    def add(self, preemption: Preemption) -> None:
        nomination = preemption.nomination
        leader, pod = self._leader, nomination.pod
        leader.records.refused((pod,), nomination.verdict)
        victims = [each.key for each in nomination.victims]
        leader.stories.tell(pod.uid, leader.now_ms(), "nominated", node=nomination.node, victims=victims)
        self._waiting[pod.uid] = nomination
        self._came.set()

    async def run(self) -> None:
        while True:
            while not self._waiting:
                self._came.clear()
                await self._came.wait()
            uid = next(iter(self._waiting))
            nomination = self._waiting.pop(uid)
            await self._leader.records.flushed(uid)
            if self._stands(nomination):
                await self._ask(nomination)

    def _stands(self, nomination: Nomination) -> bool:
        engine = self._leader.state.engine
        return engine is not None and engine.room.nominations.get(nomination.pod.uid) is nomination

    async def _ask(self, nomination: Nomination) -> None:
        request = self._request(nomination)
        try:
            reply = await requests.call(self._leader.context.bus, POD_EVICT, request, EvictReply, retries=1)
        except BusClosedError:
            raise
        except BusError as error:
            self._leader.context.log.warning("preemption_unanswered", pod=nomination.pod.key, error=str(error))
            reply = None
        if self._stands(nomination):
            self._note(nomination, reply)

    def _request(self, nomination: Nomination) -> EvictRequest:
        now_ms, pod, quota = self._leader.now_ms(), nomination.pod, nomination.quota
        where = f"in quota {quota}" if quota is not None else f"on {nomination.node}"
        priorities = sorted(each.priority for each in nomination.victims)
        return EvictRequest(
            id=_command_id(nomination),
            kind="preempt",
            victims=[PodRef(uid=v.uid, namespace=v.namespace, name=v.name, node=v.node) for v in nomination.victims],
            requested_by=_SERVICE,
            reason=ReasonCode.PREEMPTED,
            message=f"makes room {where} for {pod.key}, priority {pod.priority}",
            numbers={
                "preemptor": pod.key,
                "preemptor_priority": pod.priority,
                "victim_priorities": priorities,
                "nominated_node": nomination.node,
                **({"quota": quota} if quota is not None else {}),
            },
            beneficiary=pod.uid,
            deadline_ms=now_ms + _DEADLINE_MS,
        )

    def _note(self, nomination: Nomination, reply: EvictReply | None) -> None:
        leader, pod, engine = self._leader, nomination.pod, self._leader.state.engine
        if engine is None:
            return
        now_ms = leader.now_ms()
        answer = "unreachable" if reply is None else "granted" if reply.granted else "refused"
        self._asked.add(1, {"answer": answer})
        if reply is None:
            engine.room.refused(pod.uid, (), now_ms + _UNREACHABLE_MS)
        elif reply.granted:
            engine.room.granted(pod.uid, now_ms + self._promised_ms(reply))
        else:
            pause_ms = max(_LEAST_PAUSE_MS, reply.retry_after_ms or _REFUSED_MS)
            blamed = [*self._to_blame(nomination, reply), *_under_a_spent_budget(engine, reply)]
            engine.room.refused(pod.uid, blamed, now_ms + pause_ms)
        reason = reply.reason if reply is not None else None
        leader.stories.tell(pod.uid, now_ms, "preemption", node=nomination.node, answer=answer, reason=reason)
        leader.context.log.info(
            "preemption_asked",
            pod=pod.key,
            uid=pod.uid,
            node=nomination.node,
            victims=[each.key for each in nomination.victims],
            answer=answer,
            reason=reason,
            why=reply.message if reply is not None else "the eviction gate did not answer",
        )
        leader.work.set()

    @staticmethod
    def _promised_ms(reply: EvictReply) -> int:
        """Until the victims' marks say it exactly."""
        return int(reply.numbers.get("promise_ms") or 0) + _HANGS_AFTER_MS

    @staticmethod
    def _to_blame(nomination: Nomination, reply: EvictReply) -> list[str]:
        """Of several victims those whose own reason it was; nobody where the reason is not about pods."""
        if reply.reason in (ReasonCode.FROZEN, ReasonCode.COOL_DOWN):
            return []
        refused = [each for each in reply.victims if not each.granted]
        own = [each.pod.uid for each in refused if not each.message.startswith("all or none")]
        return own or [each.uid for each in nomination.victims[:1]]


def _under_a_spent_budget(engine: Engine, reply: EvictReply) -> list[str]:
    """Where a budget lets not even one go, the gate need not be asked for each of its pods."""
    spent = reply.reason == ReasonCode.BUDGET_EXCEEDED and reply.numbers.get("victims") == 1
    return engine.budgets.covered(str(reply.numbers.get("budget"))) if spent else []


def _command_id(nomination: Nomination) -> str:
    """One per nomination: the gate answers a known id as it did before, and a refusal must not be answered for ever.

    Asking for the same victims under another id evicts nobody twice: who is leaving for this pod is granted at no cost.
    """
    names = " ".join(sorted(each.uid for each in nomination.victims))
    digest = hashlib.blake2b(names.encode(), digest_size=8).hexdigest()
    return f"{_SERVICE}/preempt/{nomination.pod.uid}/{digest}/{nomination.since_ms}"
