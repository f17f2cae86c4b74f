"""The JetStream API calls that the bus uses, with retry: after a restart the API answers later than the port."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cotenant_common.bus.nats_wire import (
    API,
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    MSG_ID,
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    JetStreamError,
    Reply,
    Wire,
    differs,
    parse_answer,
)
from cotenant_common.bus.protocol import (
    BusClosedError,
    BusUnavailableError,
    ConflictError,
    NoResponderError,
    PermissionDeniedError,
)
from cotenant_common.telemetry.logging import get_logger

T = TypeVar("T")

TIMEOUT_S: Final = 5.0
# A publish that was lost in a restart is noticed after this long; the answer normally takes under a millisecond.
FIRST_WAIT_S: Final = 0.25
_log = get_logger("bus")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    created: str
    last_sequence: int


class JetStreamApi:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._reported: dict[str, None] = {}

    async def call(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Raise JetStreamError or BusUnavailableError."""
        data = b"" if body is None else json.dumps(body).encode()

        async def attempt(timeout_s: float) -> dict[str, Any]:
            return parse_answer((await self._wire.request(f"{API}.{subject}", data, timeout_s=timeout_s)).data)

        try:
            return await retried(attempt, first_wait_s=1.0)
        except NoResponderError:
            raise BusUnavailableError("JetStream does not answer: is it enabled on this server?") from None

    async def ensure_stream(self, config: Mapping[str, Any]) -> StreamInfo:
        """Open, create when missing, update where it differs and the server allows it."""
        name = str(config["name"])
        try:
            answer = await self.call(f"STREAM.INFO.{name}")
        except JetStreamError as error:
            if error.code != STREAM_NOT_FOUND:
                raise
            answer = await self._create_stream(name, config)
        lacking = differs(config, answer["config"])
        if lacking:
            answer = await self._update_stream(name, {**answer["config"], **config}, answer, lacking)
        return StreamInfo(answer["created"], int(answer["state"]["last_seq"]))

    async def _create_stream(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self.call(f"STREAM.CREATE.{name}", config)
        except PermissionDeniedError:
            raise BusUnavailableError(f"there is no stream {name} yet, and only a service may make it") from None
        except JetStreamError as error:
            if error.code != STREAM_NAME_IN_USE:
                raise
            # Somebody with another version of the configuration was faster; what differs is updated next.
            return await self.call(f"STREAM.INFO.{name}")

    async def _update_stream(
        self, name: str, config: Mapping[str, Any], answer: dict[str, Any], lacking: Mapping[str, Any]
    ) -> dict[str, Any]:
        try:
            return await self.call(f"STREAM.UPDATE.{name}", config)
        except (JetStreamError, PermissionDeniedError) as error:
            if name not in self._reported:
                self._reported[name] = None
                _log.error("stream_keeps_its_configuration", stream=name, wanted=dict(lacking), error=str(error))
            return answer

    async def stream_info(self, name: str) -> StreamInfo:
        answer = await self.call(f"STREAM.INFO.{name}")
        return StreamInfo(answer["created"], int(answer["state"]["last_seq"]))

    async def create_consumer(self, stream: str, config: Mapping[str, Any]) -> int:
        """Return the number of messages pending for it."""
        # The filter is in the subject too, so that the server's permissions can restrict what a service may watch.
        subject = f"CONSUMER.CREATE.{stream}.{config['name']}.{config['filter_subject']}"
        answer = await self.call(subject, {"stream_name": stream, "config": config, "action": ""})
        return int(answer.get("num_pending", 0))

    async def consumer_progress(self, stream: str, consumer: str) -> tuple[int, int]:
        """(messages still to be delivered, consumer sequence of the last one delivered)."""
        answer = await self.call(f"CONSUMER.INFO.{stream}.{consumer}")
        return int(answer.get("num_pending", 0)), int(answer["delivered"]["consumer_seq"])

    async def forget_consumer(self, stream: str, consumer: str) -> None:
        """Ask for its removal without waiting for the answer."""
        await self._wire.send(f"{API}.CONSUMER.DELETE.{stream}.{consumer}", b"")

    async def last_message(self, stream: str, subject: str) -> Reply | None:
        """Direct get: the newest message of a subject, markers included."""

        async def attempt(timeout_s: float) -> Reply:
            return await self._wire.request(f"{API}.DIRECT.GET.{stream}.{subject}", b"", timeout_s=timeout_s)

        reply = await retried(attempt, first_wait_s=FIRST_WAIT_S)
        return None if reply.status == "404" else reply

    async def last_messages(self, stream: str, subject_filter: str) -> list[Reply]:
        """Direct get of the newest message of every subject under a filter, markers included."""
        return await retried(lambda timeout_s: self._multi_last(stream, subject_filter, timeout_s), first_wait_s=1.0)

    async def _multi_last(self, stream: str, subject_filter: str, timeout_s: float) -> list[Reply]:
        found: list[Reply] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def collect(reply: Reply) -> None:
            if reply.status is None:
                found.append(reply)
            elif not done.done():
                done.set_result(None)

        inbox = self._wire.new_inbox()
        stop = await self._wire.listen(inbox, collect)
        try:
            body = json.dumps({"multi_last": [subject_filter]}).encode()
            await self._wire.send(f"{API}.DIRECT.GET.{stream}", body, reply_to=inbox)
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError:
            raise BusUnavailableError(f"no answer for {subject_filter!r} within {timeout_s:g} s") from None
        finally:
            await stop()
        return found

    async def store(self, stream: str, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Publish one message once: retried under one id, one's own lost write is found again. Return its sequence."""
        identified = {MSG_ID: self._wire.unique(), **headers}
        sent = 0

        async def attempt(timeout_s: float) -> int:
            nonlocal sent
            sent += 1
            try:
                answer = await self._wire.request(subject, data, timeout_s=timeout_s, headers=identified)
                return int(parse_answer(answer.data)["seq"])
            except ConflictError:
                # The server checks expectations before ids, so the retry of a success looks like a conflict.
                own = await self.sequence_of(stream, subject, identified[MSG_ID]) if sent > 1 else None
                if own is None:
                    raise
                return own

        return await retried(attempt, first_wait_s=FIRST_WAIT_S)

    async def send_batch(self, messages: Sequence[tuple[str, bytes, Mapping[str, str]]], timeout_s: float) -> int:
        """All of them or none, once; return the last one's sequence. Raise ConflictError, JetStreamError."""
        batch_id = self._wire.unique()
        last = len(messages)
        for number, (subject, value, headers) in enumerate(messages, start=1):
            carried = {**headers, BATCH_ID: batch_id, BATCH_SEQUENCE: str(number)}
            if number == last:
                carried[BATCH_COMMIT] = "1"
                reply = await self._wire.request(subject, value, timeout_s=timeout_s, headers=carried)
                return int(parse_answer(reply.data)["seq"])
            # Not even the first is waited for: whatever is wrong with any of them refuses the commit.
            await self._wire.send(subject, value, headers=carried)
        raise ValueError("expected at least one message")

    async def sequence_of(self, stream: str, subject: str, message_id: str) -> int | None:
        """The sequence of the newest message of a subject if it is the one with this id."""
        reply = await self.last_message(stream, subject)
        return reply.sequence if reply is not None and reply.headers.get(MSG_ID) == message_id else None


async def retried(attempt: Callable[[float], Awaitable[T]], *, first_wait_s: float, total_s: float = TIMEOUT_S) -> T:
    """Try with a growing timeout until ``total_s`` are over. Only silence is worth a retry."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + total_s
    wait_s = first_wait_s
    while True:
        began = loop.time()
        try:
            return await attempt(min(wait_s, max(0.05, deadline - began)))
        except BusClosedError:
            raise
        except BusUnavailableError as error:
            if loop.time() >= deadline - 0.05:
                raise
            if isinstance(error, NoResponderError) or loop.time() - began < wait_s:
                await asyncio.sleep(min(FIRST_WAIT_S, max(0.0, deadline - loop.time())))
        wait_s *= 2
