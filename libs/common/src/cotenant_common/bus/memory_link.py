"""The wire between one service and the in-memory server, and what can happen to it."""

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from cotenant_common.bus.protocol import BusClosedError, BusUnavailableError

T = TypeVar("T")


class LinkState(StrEnum):
    UP = "up"
    PARTITIONED = "partitioned"
    """Nothing passes; core messages are lost, streams are caught up with afterwards."""
    PAUSED = "paused"
    """Nothing passes until the link is up again; nothing is lost."""
    CUT = "cut"
    """For good: the service behind it has crashed."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What an unkind network does to every message that may repeat or overtake: core messages and events."""

    duplicate: bool = False
    reorder: bool = False
    delay_s: float = 0.0


CALM: Final = Disturbance()


class Link:
    def __init__(self) -> None:
        self.state = LinkState.UP
        self.disturbance = CALM
        self._inboxes: dict[int, Inbox[object]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._awaiting_return: deque[asyncio.Future[None]] = deque()
        self._serial = 0

    @property
    def up(self) -> bool:
        return self.state is LinkState.UP

    @property
    def cut(self) -> bool:
        return self.state is LinkState.CUT

    def change(self, state: LinkState) -> None:
        if self.cut:
            return
        returns = state is LinkState.UP and not self.up
        self.state = state
        for inbox in tuple(self._inboxes.values()):
            inbox.wake()
        if self.up or self.cut:
            while self._waiting:
                _release(self._waiting.popleft())
        if returns:
            while self._awaiting_return:
                _release(self._awaiting_return.popleft())

    async def passage(self, timeout_s: float) -> None:
        """Wait until an operation can pass. Raise BusUnavailableError or BusClosedError."""
        # One turn of the loop stands for the round trip, so that races of the real bus can happen here too.
        await asyncio.sleep(0)
        if self.state is LinkState.UP:
            return  # no timer: a simulated day has millions of these
        limit = None if self.state is LinkState.PAUSED else timeout_s
        try:
            async with asyncio.timeout(limit):
                while not self.up:
                    self._raise_if_cut()
                    await self._next_change()
        except TimeoutError:
            raise BusUnavailableError(f"no answer from the server within {timeout_s:g} s") from None

    def _raise_if_cut(self) -> None:
        if self.cut:
            raise BusClosedError("this connection was closed")

    async def _next_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def wait_reconnected(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting_return.append(future)
        try:
            await future
        finally:
            if future in self._awaiting_return:
                self._awaiting_return.remove(future)

    def add(self, inbox: "Inbox[object]") -> int:
        self._serial += 1
        self._inboxes[self._serial] = inbox
        return self._serial

    def remove(self, serial: int) -> None:
        self._inboxes.pop(serial, None)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Inbox(Generic[T]):
    """Messages for one reader, in order. ``durable`` ones wait out a partition, the others are lost in it."""

    def __init__(self, link: Link, *, durable: bool, ordered: bool) -> None:
        self._link = link
        self._durable = durable
        self._ordered = ordered
        self._items: deque[T] = deque()
        self._delayed: deque[T] = deque()
        self._held: T | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._serial = link.add(self)  # type: ignore[arg-type]  # the link only wakes it

    def close(self) -> None:
        self._link.remove(self._serial)
        self._items.clear()
        self._delayed.clear()

    def put(self, item: T) -> None:
        link = self._link
        disturbance = link.disturbance
        if link.state is LinkState.UP and disturbance is CALM and self._held is None:
            self._items.append(item)
            if self._waiter is not None:
                _release(self._waiter)
            return
        lost = link.state is LinkState.PARTITIONED and not self._durable
        if lost or link.cut:
            return
        if disturbance.delay_s:
            # The loop's heap does not keep the order of equal timers, so each takes the oldest item, not its own.
            self._delayed.append(item)
            asyncio.get_running_loop().call_later(disturbance.delay_s, self._arrive_late)
        else:
            self._arrive(item)

    def _arrive_late(self) -> None:
        if self._delayed:
            self._arrive(self._delayed.popleft())

    def _arrive(self, item: T) -> None:
        disturbance = self._link.disturbance
        if self._ordered:
            self._append(item)
            return
        if disturbance.reorder and self._held is None:
            self._held = item
            asyncio.get_running_loop().call_later(0.05, self._let_go, item)
            return
        self._append(item, twice=disturbance.duplicate)
        if self._held is not None:
            self._let_go(self._held)

    def _let_go(self, item: T) -> None:
        if self._held is item:
            self._held = None
            self._append(item, twice=self._link.disturbance.duplicate)

    def _append(self, item: T, *, twice: bool = False) -> None:
        self._items.append(item)
        if twice:
            self._items.append(item)
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None:
            _release(self._waiter)

    async def get(self) -> T:
        """The next message. Raise BusClosedError once the link is cut."""
        while True:
            state = self._link.state
            if state is LinkState.CUT:
                raise BusClosedError("this connection was closed")
            if self._items and state is LinkState.UP:
                return self._items.popleft()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
