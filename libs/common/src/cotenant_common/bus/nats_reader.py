"""An ordered read of a stream that never goes deaf.

The client's own watchers were silent for up to 15 s after a server restart and for ever when the store was lost.
This one is an ephemeral push consumer with heartbeats. It is made anew, from the last sequence seen, when the
heartbeats stop, a message is missing, or the connection came back; and it compares the stream's creation time, so
that a re-created store is told as one.

The heartbeat comes every 5 s, not every second: forty idle watchers in one process then cost eight messages a second
instead of forty, and a lost connection is noticed by the reconnect anyway.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.bus.nats_api import JetStreamApi, StreamInfo
from cotenant_common.bus.nats_wire import Reply, StopListening, Wire, parse_position
from cotenant_common.bus.protocol import BusClosedError, BusError
from cotenant_common.telemetry.logging import get_logger

HEARTBEAT_S: Final = 5
_MISSED_S: Final = 2.5 * HEARTBEAT_S
_INACTIVE_S: Final = 60
_SNAPSHOT_CHECK_S: Final = 0.5
_BACK_OFF_S: Final = (0.05, 0.25, 0.5, 1.0, 2.0)
_NANO: Final = 1_000_000_000
_log = get_logger("bus")


@dataclass(frozen=True, slots=True)
class Delivered:
    message: Reply
    sequence: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything up to ``sequence``, the stream's last at the start, was delivered."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Recreated:
    """Another stream under the same name; a full read of it follows."""


@dataclass(frozen=True, slots=True)
class StartedOver:
    """The same stream, read from the beginning again because too much may have been missed."""


ReadItem = Delivered | CaughtUp | Recreated | StartedOver


@dataclass(frozen=True, slots=True)
class Start:
    """Where a read begins; ``policy`` is JetStream's deliver policy."""

    policy: str
    sequence: int | None = None
    time: str | None = None

    def config(self) -> dict[str, Any]:
        extra = {"opt_start_seq": self.sequence, "opt_start_time": self.time}
        return {"deliver_policy": self.policy, **{key: value for key, value in extra.items() if value is not None}}


LAST_PER_SUBJECT: Final = Start("last_per_subject")


class OrderedReader:
    """Read with ``async for item in reader.read()``; one use per reader.

    ``longest_gap_s``: after a longer absence the read starts over instead of resuming. None: always resume.
    """

    def __init__(
        self,
        wire: Wire,
        api: JetStreamApi,
        stream_config: dict[str, Any],
        filter_subject: str,
        start: Start,
        *,
        headers_only: bool = False,
        longest_gap_s: float | None = None,
    ) -> None:
        self._wire = wire
        self._api = api
        self._stream_config = stream_config
        self._filter = filter_subject
        self._start = start
        self._headers_only = headers_only
        self._longest_gap_s = longest_gap_s
        self._queue: deque[Reply] = deque()
        self._wake = asyncio.Event()
        self._stale = False
        self._heard_at = 0.0
        self._created: str | None = None
        self._position: int | None = None
        self._consumer: str | None = None
        self._stop_listening: StopListening | None = None
        self._catching_up: int | None = None
        self.reopened = 0

    @property
    def _stream(self) -> str:
        return str(self._stream_config["name"])

    async def read(self) -> AsyncGenerator[ReadItem, None]:
        undo = self._wire.on_reconnect(self._mark_stale)
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                try:
                    opened = await self._reopen(loop.time())
                except BusClosedError:
                    raise
                except BusError as error:
                    _log.warning("reader_waits", stream=self._stream, filter=self._filter, error=str(error))
                    await asyncio.sleep(_pause(failures))
                    failures += 1
                    continue
                failures = 0
                self._heard_at = loop.time()
                for news in opened:
                    yield news
                async for item in self._consume():
                    yield item
                self.reopened += 1
        finally:
            undo()
            await self._drop_consumer()

    async def _reopen(self, now: float) -> list[ReadItem]:
        await self._drop_consumer()
        self._stale = False
        info = await self._api.ensure_stream(self._stream_config)
        news: list[ReadItem] = []
        lost_tail = self._position is not None and self._position > info.last_sequence
        if self._created is not None and (info.created != self._created or lost_tail):
            news.append(Recreated())
            self._restart_from_the_beginning()
        elif self._away_too_long(now):
            news.append(StartedOver())
            self._restart_from_the_beginning()
        self._created = info.created
        pending = await self._create_consumer(info)
        if self._catching_up is not None and pending == 0:
            news.append(self._caught_up())
        return news

    def _restart_from_the_beginning(self) -> None:
        self._position = None
        if self._start.policy != LAST_PER_SUBJECT.policy:
            # The new stream of an old name: all of it came after what this reader has seen.
            self._start = Start("all")

    def _away_too_long(self, now: float) -> bool:
        return (
            self._longest_gap_s is not None
            and self._position is not None
            and now - self._heard_at > self._longest_gap_s
        )

    async def _create_consumer(self, info: StreamInfo) -> int:
        """Return how many messages it will deliver of what stands in the stream now."""
        if self._position is None:
            start = self._start
            self._catching_up = info.last_sequence
            if start.policy == "new":
                self._position = info.last_sequence
                start = Start("by_start_sequence", info.last_sequence + 1)
        else:
            start = Start("by_start_sequence", self._position + 1)
        inbox = self._wire.new_inbox()
        self._queue.clear()
        self._stop_listening = await self._wire.listen(inbox, self._receive)
        self._consumer = self._wire.unique()
        return await self._api.create_consumer(
            self._stream,
            {
                "name": self._consumer,
                "description": self._wire.name,
                **start.config(),
                "filter_subject": self._filter,
                "deliver_subject": inbox,
                "ack_policy": "none",
                "max_deliver": 1,
                "replay_policy": "instant",
                "flow_control": True,
                "idle_heartbeat": HEARTBEAT_S * _NANO,
                "inactive_threshold": _INACTIVE_S * _NANO,
                "headers_only": self._headers_only,
                "mem_storage": True,
                "num_replicas": 1,
            },
        )

    async def _drop_consumer(self) -> None:
        """Best effort: an ephemeral consumer that nobody listens to ends by itself within a minute."""
        stop, consumer = self._stop_listening, self._consumer
        self._stop_listening = self._consumer = None
        try:
            if stop is not None:
                await stop()
            if consumer is not None:
                await self._api.forget_consumer(self._stream, consumer)
        except BusError:
            return

    def _receive(self, message: Reply) -> None:
        self._queue.append(message)
        self._wake.set()

    def _mark_stale(self) -> None:
        self._stale = True
        self._wake.set()

    def _caught_up(self) -> CaughtUp:
        sequence = self._catching_up or 0
        self._catching_up = None
        return CaughtUp(sequence)

    async def _consume(self) -> AsyncGenerator[ReadItem, None]:
        """Deliver until the consumer must be made anew."""
        next_sequence = 1
        while True:
            message = await self._next(processed=next_sequence - 1)
            if message is None:
                return
            if isinstance(message, CaughtUp):
                yield message
            elif message.status is not None:
                if not await self._control(message, processed=next_sequence - 1):
                    return
            else:
                position = parse_position(message.reply_to)
                if position.consumer_sequence != next_sequence:
                    _log.warning("reader_missed_messages", stream=self._stream, expected=next_sequence)
                    return
                next_sequence += 1
                self._position = position.sequence
                yield Delivered(message, position.sequence)
                if self._catching_up is not None and position.pending == 0:
                    last_at_start = self._catching_up
                    if position.sequence >= last_at_start or await self._nothing_pending(next_sequence - 1):
                        yield self._caught_up()

    async def _next(self, processed: int) -> Reply | CaughtUp | None:
        """The next message; None when the consumer is no good any more."""
        loop = asyncio.get_running_loop()
        while not self._queue:
            if self._stale:
                return None
            silent_s = loop.time() - self._heard_at
            if silent_s > _MISSED_S:
                _log.warning("reader_heard_no_heartbeat", stream=self._stream, for_s=round(silent_s, 1))
                return None
            self._wake.clear()
            catching_up = self._catching_up is not None
            if await self._woken(_SNAPSHOT_CHECK_S if catching_up else _MISSED_S - silent_s + 0.01):
                continue
            if catching_up and await self._nothing_pending(processed):
                return self._caught_up()
        if self._stale:
            return None
        self._heard_at = loop.time()
        return self._queue.popleft()

    async def _woken(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _control(self, message: Reply, processed: int) -> bool:
        """Heartbeat or flow control; False when it shows that something was lost."""
        if message.status != "100":
            _log.warning("reader_ended_by_server", stream=self._stream, status=message.status)
            return False
        answer_to = message.reply_to or message.headers.get("Nats-Consumer-Stalled", "")
        if answer_to:
            # Answered after everything before it was processed: that is what bounds the queue.
            await self._wire.send(answer_to, b"")
        return int(message.headers.get("Nats-Last-Consumer", processed)) <= processed

    async def _nothing_pending(self, processed: int) -> bool:
        """The consumer says that all it had was delivered, and all delivered has been processed."""
        if self._consumer is None or self._queue:
            return False
        try:
            pending, delivered = await self._api.consumer_progress(self._stream, self._consumer)
        except BusError:
            return False
        return pending == 0 and delivered == processed


def _pause(failures: int) -> float:
    base = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
    # A fleet that lost its server together must not come back together.
    return base * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, guards nothing
