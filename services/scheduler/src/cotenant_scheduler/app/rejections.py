"""Binds that an agent refused: on record first, tried again after."""

import asyncio
from typing import Final

from cotenant_scheduler.adapters.state import Rejection
from cotenant_scheduler.app.leader import Leader

_MOST_BACK_OFF_S: Final = 300


class Rejections:
    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._waiting: dict[tuple[str, int], Rejection] = {}
        self._came = asyncio.Event()

    def add(self, rejection: Rejection) -> None:
        self._waiting.setdefault((rejection.binding.uid, rejection.binding.attempt), rejection)
        self._came.set()

    def clear(self) -> None:
        self._waiting.clear()

    async def run(self) -> None:
        """A refused bind is tried again only after the refusal is on record."""
        leader = self._leader
        while True:
            while not self._waiting:
                self._came.clear()
                await self._came.wait()
            batch, self._waiting = self._waiting, {}
            for rejection in batch.values():
                self._record(rejection)
            for rejection in batch.values():
                await leader.records.flushed(rejection.binding.uid)
                leader.state.requeue(rejection, leader.now_ms() + 1000 * self._back_off_s(rejection))

    def _back_off_s(self, rejection: Rejection) -> int:
        doublings = min(rejection.binding.attempt - 1, 10)
        return min(_MOST_BACK_OFF_S, self._leader.settings.rejected_back_off_s << doublings)

    def _record(self, rejection: Rejection) -> None:
        """Once per attempt, though a restart finds the same refusal again."""
        binding, leader = rejection.binding, self._leader
        pod = leader.state.request(binding.uid)
        if pod is None or leader.records.knows_rejection(binding.uid, binding.node, rejection.reason):
            return
        leader.records.rejected(pod, binding.node, rejection.reason, rejection.message)
        leader.stories.tell(binding.uid, leader.now_ms(), "rejected", node=binding.node, reason=rejection.reason)
        leader.context.log.warning(
            "bind_rejected", pod=pod.key, uid=pod.uid, node=binding.node, reason=rejection.reason, why=rejection.message
        )
