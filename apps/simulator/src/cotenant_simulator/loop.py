"""Virtual time in which one can wait until an instant is over."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from cotenant_common.testing.virtual_loop import VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# Timers this close together fire in one turn of asyncio's loop.
_SAME_INSTANT_S = 1e-9


class _Timer(asyncio.TimerHandle):
    """Of one instant, the timer that was set first fires first. A heap alone keeps no such order, and which one it
    keeps would depend on timers of tasks that die in the order of their addresses.
    """

    __slots__ = ("serial",)
    serial: int

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        mine: float = self._when  # type: ignore[attr-defined]
        others: float = other._when  # type: ignore[attr-defined]
        return mine < others or (mine == others and self.serial < other.serial)


class SimulationLoop(VirtualLoop):
    def __init__(self) -> None:
        super().__init__()
        self._waiting_for_quiet: list[object] = []
        self._timers_set = 0

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.serial = self._timers_set = self._timers_set + 1
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        heapq.heappush(scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as the loop's own call_at does
        return timer

    async def quiet(self) -> None:
        """Return when nothing is left to do at this instant but what the caller does next.

        Whoever began to wait last returns first, for the others wait for what it does next.
        """
        ticket = object()
        self._waiting_for_quiet.append(ticket)
        try:
            while True:
                await asyncio.sleep(0)
                if ticket is self._waiting_for_quiet[-1] and not self._busy():
                    return
        finally:
            self._waiting_for_quiet.remove(ticket)

    def _busy(self) -> bool:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) >= len(self._waiting_for_quiet):
            return True
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return bool(timers) and timers[0].when() <= self.time() + _SAME_INSTANT_S

    async def sleep_until_ms(self, at_ms: int) -> None:
        """Nothing happens when that is now, or past."""
        at_s = at_ms / 1_000
        if at_s <= self.time():
            return
        waiter: asyncio.Future[None] = self.create_future()
        self.call_at(at_s, waiter.set_result, None)
        await waiter


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(main)


def current() -> SimulationLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)  # noqa: S101 - only ``run`` above starts a simulation
    return loop
