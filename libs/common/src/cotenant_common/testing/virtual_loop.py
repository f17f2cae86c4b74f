"""An event loop whose time jumps to the next timer when nothing is ready: an hour of timeouts in a moment.

There is no input or output on it: whatever would wait for the outside world waits for ever, and that is reported.
"""

import asyncio
import functools
import inspect
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

MAX_TURNS_AT_ONE_INSTANT: Final = 1_000_000


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the main task waits: in real life this would hang for ever."""


class LivelockError(RuntimeError):
    """The loop turned a million times without time passing: something polls without a pause."""


class _NoInputOutput(selectors.BaseSelector):
    """Remembers the loop's own wake-up pipe; never waits for anything."""

    def __init__(self) -> None:
        self.on_idle: Callable[[float | None], None] = lambda _: None
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.on_idle(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` starts at 0 and moves only when every task waits for a timer."""

    def __init__(self) -> None:
        selector = _NoInputOutput()
        self._now = 0.0
        self._turns = 0
        super().__init__(selector)
        selector.on_idle = self._jump

    def time(self) -> float:
        return self._now

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise DeadlockError(f"at {self._now:.3f} s nothing is ready and no timer is set: {_waiting(self)}")
        if timeout <= 0:
            self._turns += 1
            if self._turns > MAX_TURNS_AT_ONE_INSTANT:
                # Starting over lets the runner cancel what is left.
                self._turns = 0
                raise LivelockError(f"a million turns at {self._now:.3f} s: {_waiting(self)}")
            return
        self._turns = 0
        # Landing on the timer itself, not on now + timeout, keeps times exact over a simulated week.
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self._now = max(self._now, timers[0].when())


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
