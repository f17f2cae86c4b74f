"""An event loop whose time jumps to the next timer when nothing is ready: an hour of timeouts in a moment.

There is no input or output on it: whatever would wait for the outside world waits for ever, and that is reported.
"""

import asyncio
import functools
import heapq
import inspect
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

MAX_TURNS_AT_ONE_INSTANT: Final = 1_000_000
# Timers this close together fire in one turn, as on asyncio's own loop.
SAME_INSTANT_S: Final = 1e-9
_MANY_CANCELLED: Final = 1_000


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the main task waits: in real life this would hang for ever."""


class LivelockError(RuntimeError):
    """The loop turned a million times without time passing: something polls without a pause."""


class _NoInputOutput(selectors.BaseSelector):
    """Remembers the loop's own wake-up pipe; nobody waits on it."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` starts at 0 and moves only when every task waits for a timer.

    Of one instant, the timer that was set first fires first: a heap of times alone keeps no such order. There is no
    input to poll, so a turn of this loop is a few lines; asyncio's own costs more than most callbacks of a simulation.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        self._now = 0.0
        self._turns = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        super().__init__(_NoInputOutput())

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as the loop's own call_at does
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:  # noqa: ARG002 - called by the handle
        """Most timeouts are cancelled long before they are due; they must not pile up until then."""
        self._timers_cancelled += 1
        if self._timers_cancelled > _MANY_CANCELLED and 2 * self._timers_cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _run_once(self) -> None:
        ready = self._ready
        if ready or self._stopping:
            self._count_turn()
        else:
            self._jump()
        timers, until = self._timers, self._now + SAME_INSTANT_S
        while timers and timers[0][0] < until:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 - a cancel no longer counts
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 - as the loop's own turn does

    def _count_turn(self) -> None:
        self._turns += 1
        if self._turns > MAX_TURNS_AT_ONE_INSTANT:
            # Starting over lets the runner cancel what is left.
            self._turns = 0
            raise LivelockError(f"a million turns at {self._now:.3f} s: {_waiting(self)}")

    def _jump(self) -> None:
        """Landing on the timer itself, not on now + timeout, keeps times exact over a simulated week."""
        self._turns = 0
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
            self._timers_cancelled -= 1
        if not self._timers:
            raise DeadlockError(f"at {self._now:.3f} s nothing is ready and no timer is set: {_waiting(self)}")
        self._now = max(self._now, self._timers[0][0])

    @property
    def next_timer_s(self) -> float | None:
        """When the first timer is due, a cancelled one included."""
        return self._timers[0][0] if self._timers else None

    def close(self) -> None:
        super().close()
        self._timers.clear()


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    names = sorted(task.get_name() for task in asyncio.all_tasks(loop))
    return ", ".join(names[:20]) or "no task is left"


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time. Raise DeadlockError or LivelockError where real time would hang."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Make an async test a plain one that runs in virtual time; pytest fixtures work as arguments."""

    @functools.wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        run(main())

    # pytest-asyncio would look through the wrapper and run the coroutine on its own loop.
    delattr(wrapper, "__wrapped__")
    setattr(wrapper, "__signature__", inspect.signature(test))  # noqa: B010 - a function has no such attribute yet
    return wrapper
