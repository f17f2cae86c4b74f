"""The loop that asks the engine, a few milliseconds at a time."""

import asyncio
from contextlib import suppress
from typing import Final

from cotenant_scheduler.app.binding import BindingDesk
from cotenant_scheduler.app.leader import Leader
from cotenant_scheduler.app.preempting import Preempting
from cotenant_scheduler.app.profiles import Profiles
from cotenant_scheduler.core.decisions import Decision, Placement, Preemption
from cotenant_scheduler.core.engine import Engine

_SLICE_S: Final = 0.008
_SLICE_DECISIONS: Final = 256
_IDLE_S: Final = 20.0


class Deciding:
    def __init__(self, leader: Leader, desk: BindingDesk, preempting: Preempting, profiles: Profiles) -> None:
        self._leader = leader
        self._desk = desk
        self._preempting = preempting
        self._profiles = profiles
        metrics = leader.context.metrics
        self._seconds = metrics.histogram("cotenant_scheduler_decision_seconds", "One attempt of one pod")
        self._refused_total = metrics.counter("cotenant_scheduler_refusals_total", "Attempts that ended in a refusal")
        self._waiting = metrics.gauge("cotenant_scheduler_waiting_pods", "Pods without a node")

    async def run(self) -> None:
        leader = self._leader
        while leader.lease.held:
            leader.context.health.beat("decide")
            engine = self._engine_to_ask()
            try:
                busy = engine is not None and self._slice(engine)
            except Exception:
                # The pod at fault left the queue when its turn came: it waits for a change, the others go on.
                leader.context.log.exception("decision_failed")
                busy = True
            if busy:
                await asyncio.sleep(0)
            else:
                await self._rest()
        leader.deposed.set()

    def _engine_to_ask(self) -> Engine | None:
        """None while the bus lags, and while a profile is about to change: what is on its way is written first."""
        profiles, state = self._profiles, self._leader.state
        if profiles.wanted is not None and not state.in_flight:
            state.rebuild(profiles.wanted)
            profiles.wanted = None
        return None if self._desk.lags or profiles.wanted is not None else state.engine

    def _slice(self, engine: Engine) -> bool:
        """A few milliseconds of decisions, so that leases, mirrors and answers get their turn; False: all is said."""
        clock = self._leader.context.clock
        began = before = clock.monotonic()
        for _ in range(_SLICE_DECISIONS):
            decision = engine.decide(clock.now_ms())
            if decision is None:
                return False
            after = clock.monotonic()
            self._seconds.record(after - before)
            self._carry_out(decision)
            before = after
            if after - began >= _SLICE_S or self._desk.lags:
                break
        return True

    async def _rest(self) -> None:
        """Until something happens, or until the engine has something to say about time having passed."""
        leader = self._leader
        engine = leader.state.engine
        due_ms = engine.next_wake_ms() if engine is not None else None
        self._waiting.set(engine.waiting_count() if engine is not None else 0)
        delay_s = _IDLE_S if due_ms is None else max(0.001, (due_ms - leader.now_ms()) / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(delay_s, _IDLE_S)):
                await leader.work.wait()
        leader.work.clear()

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Placement):
            self._desk.place(decision)
            return
        if isinstance(decision, Preemption):
            self._preempting.add(decision)
            return
        verdict, leader = decision.verdict, self._leader
        self._refused_total.add(1, {"reason": verdict.reason.value})
        leader.records.refused(decision.pods, verdict)
        now_ms = leader.now_ms()
        for pod in decision.pods:
            codes = sorted(code.value for code in verdict.codes)
            leader.stories.tell(pod.uid, now_ms, "refused", reason=verdict.reason.value, codes=codes)
