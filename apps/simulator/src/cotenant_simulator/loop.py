"""Virtual time in which one can wait until an instant is over."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from cotenant_common.testing.virtual_loop import SAME_INSTANT_S, VirtualLoop

T = TypeVar("T")


class SimulationLoop(VirtualLoop):
    def __init__(self) -> None:
        super().__init__()
        self._waiting_for_quiet: list[object] = []

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
        if len(self._ready) >= len(self._waiting_for_quiet):
            return True
        next_s = self.next_timer_s
        return next_s is not None and next_s <= self.time() + SAME_INSTANT_S

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
