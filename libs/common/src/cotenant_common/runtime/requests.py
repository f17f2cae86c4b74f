"""Typed messages over the bus: publish and subscribe, call and serve. A malformed message never stops a service."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cotenant_common.bus.protocol import (
    Bus,
    BusClosedError,
    BusUnavailableError,
    Received,
    RemoteError,
    Subscription,
)
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.subjects import Topic, dead_subject
from cotenant_common.model.ids import encode_token
from cotenant_common.telemetry import tracing
from cotenant_common.telemetry.logging import get_logger

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)

_RETRY_PAUSE_S: Final = 0.25
_EXCERPT: Final = 48
# Spans of telemetry would outnumber all others a hundred to one and tell nothing.
_UNTRACED: Final = "cotenant.v1.tel."
_log = get_logger("requests")


def subject_for(topic: Topic, **ids: str) -> str:
    """The topic's subject with the ids given; ``*`` for those that are not."""
    parts = topic.subject.split(".")
    return ".".join(_token(part, ids) for part in parts)


def _token(part: str, ids: dict[str, str]) -> str:
    if not part.startswith("{"):
        return part
    name = part[1:-1]
    return encode_token(ids[name]) if name in ids else "*"


async def publish(bus: Bus, topic: Topic, message: Message, **ids: str) -> None:
    subject = topic.format(**ids)
    headers = None if subject.startswith(_UNTRACED) else tracing.outgoing() or None
    await bus.publish_message(subject, message, headers)


async def call(
    bus: Bus,
    topic: Topic,
    message: Message,
    reply: type[R],
    timeout_s: float = 5.0,
    retries: int = 3,
    **ids: str,
) -> R:
    """Ask, and ask again on silence: topics served this way are idempotent. Raise RemoteError, BusUnavailableError."""
    subject, data, headers = topic.format(**ids), codec.encode(message), tracing.outgoing() or None
    for attempt in range(retries + 1):
        try:
            answer = await bus.request(subject, data, timeout_s=timeout_s, headers=headers)
        except BusClosedError:
            raise
        except BusUnavailableError:
            if attempt == retries:
                raise
            await asyncio.sleep(_RETRY_PAUSE_S * 2**attempt)
        else:
            try:
                return codec.decode(reply, answer.data)
            except codec.DecodeError as error:
                raise RemoteError(f"{subject} answered what nobody can read: {error}") from error
    raise AssertionError("unreachable: the last attempt returns or raises")


async def subscribe(
    bus: Bus, topic: Topic, handler: Callable[[M], Awaitable[None]], queue: str | None = None, **ids: str
) -> Subscription:
    """Handle every message of the topic; ids that are not given are wildcards."""

    async def handle(received: Received) -> None:
        if (message := await _read(bus, topic, received)) is None:
            return
        if received.subject.startswith(_UNTRACED):
            await handler(message)  # type: ignore[arg-type]  # the topic declares what M is
            return
        with tracing.incoming(topic.name, received.headers):
            await handler(message)  # type: ignore[arg-type]

    return await bus.subscribe(subject_for(topic, **ids), handle, queue=queue)


async def subscribe_republished(
    bus: Bus, topic: Topic, handler: Callable[[str, M | None, int], Awaitable[None]], **ids: str
) -> Subscription:
    """Handle copies of bucket writes as (key, message, revision); the message is None for a deletion."""

    async def handle(received: Received) -> None:
        key = received.headers.get("Nats-Subject", "").split(".", 2)[-1]
        revision = received.sequence or 0
        if received.headers.get("KV-Operation") in ("DEL", "PURGE") or "Nats-Marker-Reason" in received.headers:
            await handler(key, None, revision)
        elif (message := await _read(bus, topic, received)) is not None:
            await handler(key, message, revision)  # type: ignore[arg-type]

    return await bus.subscribe(subject_for(topic, **ids), handle)


async def serve(
    bus: Bus, topic: Topic, handler: Callable[[M], Awaitable[Message]], queue: str | None = None, **ids: str
) -> Subscription:
    """Answer a topic; what cannot be read is answered with an error and kept on the dead subject."""

    async def respond(received: Received) -> bytes:
        message = await _read(bus, topic, received)
        if message is None:
            raise RemoteError(f"{topic.name}: expected {topic.message.__name__}, could not read what came")
        with tracing.incoming(topic.name, received.headers):
            return codec.encode(await handler(message))  # type: ignore[arg-type]

    return await bus.serve(subject_for(topic, **ids), respond, queue=queue)


malformed_total: dict[str, int] = {}
"""By service: what could not be read since the process began; ``observe_bus`` shows it as a metric."""


async def _read(bus: Bus, topic: Topic, received: Received) -> Message | None:
    known: Message | None = received.decoded.get(topic.message)
    if known is not None:
        return known
    try:
        message = received.decoded[topic.message] = codec.decode(topic.message, received.data)
        return message
    except codec.DecodeError as error:
        await bury(bus, received, error)
        return None


async def bury(bus: Bus, received: Received, error: Exception) -> None:
    """Count, log the first bytes, and put the message where an operator can look at it."""
    malformed_total[bus.name] = malformed_total.get(bus.name, 0) + 1
    _log.error(
        "malformed_message",
        service=bus.name,
        subject=received.subject,
        error=str(error),
        first_bytes=received.data[:_EXCERPT].hex(),
    )
    headers = {"Cotenant-Subject": received.subject, "Cotenant-Error": str(error)[:200]}
    await bus.publish(dead_subject(_as_token(bus.name)), received.data, headers)


def _as_token(name: str) -> str:
    return "".join(character if character.isalnum() or character in "-_" else "_" for character in name)
