"""Removals for want of memory: asked of the gate, and decided alone, under a leased allowance, when nobody answers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cotenant_agent.app.placed import Placed
from cotenant_agent.core.evict import Allowance, MemoryDecision, Victim
from cotenant_common.bus.protocol import Bus, BusError, RemoteError
from cotenant_common.contracts import subjects
from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import EmergencyUsed, EvictReply, EvictRequest
from cotenant_common.runtime import requests
from cotenant_common.runtime.clock import Clock
from cotenant_common.telemetry.logging import Logger

_ASK_TIMEOUT_S = 1.0


@dataclass(slots=True)
class Emergencies:
    """`remove` ends a pod on the spot. One removal at a time: the next waits until the last one shows."""

    bus: Bus
    clock: Clock
    log: Logger
    node: str
    agent_id: str
    allowance: Allowance
    remove: Callable[[Placed, Victim], None]
    busy: bool = False
    used: int = 0
    unreported: list[EmergencyUsed] = field(default_factory=list)
    _asked: int = 0
    _next_ms: int = 0

    def due(self, decision: MemoryDecision | None, now_ms: int) -> Victim | None:
        if decision is None or not decision.victims or self.busy or now_ms < self._next_ms:
            return None
        return decision.victims[0]

    async def evict(self, placed: Placed, victim: Victim, decision: MemoryDecision, *, frozen: bool) -> None:
        self.busy = True
        try:
            await self._evict(placed, victim, decision, frozen=frozen)
        finally:
            self.busy = False
            self._next_ms = self.clock.now_ms() + self.allowance.cool_down_ms

    async def _evict(self, placed: Placed, victim: Victim, decision: MemoryDecision, *, frozen: bool) -> None:
        self._asked += 1
        pod = placed.plan.pod
        request = EvictRequest(
            id=f"{self.agent_id}-emergency-{self._asked}",
            kind="emergency",
            victims=[PodRef(uid=pod.uid, namespace=pod.namespace, name=pod.name, node=self.node)],
            requested_by="agent",
            reason=victim.reason.value,
            message=victim.message,
            numbers={"used_percent": decision.used_percent, "release_bytes": decision.release_bytes},
        )
        try:
            reply = await requests.call(
                self.bus, subjects.POD_EVICT, request, EvictReply, timeout_s=_ASK_TIMEOUT_S, retries=1
            )
        except RemoteError as error:
            self.log.warning("eviction_failed", pod=pod.key, error=str(error))
        except BusError:
            self._decide_alone(placed, victim, request, frozen=frozen)
        else:
            self.allowance = self.allowance.renew()
            placed.leaving = reply.granted
            self.log.info("eviction_asked", pod=pod.key, granted=reply.granted, answer=reply.message)

    def _decide_alone(self, placed: Placed, victim: Victim, request: EvictRequest, *, frozen: bool) -> None:
        now_ms = self.clock.now_ms()
        pod = placed.plan.pod
        if frozen or not self.allowance.may_spend(now_ms):
            self.log.warning("emergency_not_allowed", pod=pod.key, left=self.allowance.left, frozen=frozen)
            return
        self.allowance = self.allowance.spend(now_ms)
        self.used += 1
        placed.leaving = True
        self.unreported.append(
            EmergencyUsed(
                id=request.id,
                node=self.node,
                victim=request.victims[0],
                reason=request.reason,
                message=request.message,
                numbers=request.numbers,
                at_ms=now_ms,
            )
        )
        self.log.warning("emergency_used", pod=pod.key, left=self.allowance.left, message=victim.message)
        self.remove(placed, victim)

    async def report(self) -> None:
        """Tell the gate of every removal it did not decide, until it has answered. Raise BusError."""
        while self.unreported:
            await requests.call(
                self.bus, subjects.EMERGENCY_USED, self.unreported[0], EvictReply, timeout_s=_ASK_TIMEOUT_S, retries=0
            )
            self.unreported.pop(0)
            self.allowance = self.allowance.renew()
