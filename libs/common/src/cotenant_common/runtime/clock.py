"""Wall and monotonic time as an argument, so that a simulated day and a real one run the same code."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class LoopClock:
    """Time of the running event loop, from a fixed epoch: a loop whose time jumps makes this clock jump with it."""

    def __init__(self, epoch_ms: int = 0) -> None:
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        return self._epoch_ms + round(asyncio.get_running_loop().time() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()
