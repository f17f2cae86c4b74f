"""The events stream for people: decoded, filtered, resumable by its sequence."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.bus.protocol import Bus, Received
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.subjects import EVENTS_WILDCARD, json_subject
from cotenant_common.runtime.events import SeenIds
from cotenant_common.telemetry.logging import get_logger

KEEP_ALIVE_S: Final = 15.0
_END_S: Final = 2.0
"""How long a replay without following waits for the last event: retention may have dropped it meanwhile."""
_log = get_logger("gateway")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Empty is everything. ``types`` may end in ``.*``; ``object`` is a prefix of Kind/namespace/name."""

    types: tuple[str, ...] = ()
    object: str = ""

    def accepts(self, event: Event) -> bool:
        return self._type(event.type) and (
            not self.object or event.object.startswith(self.object) or event.object.partition("/")[2] == self.object
        )

    def _type(self, name: str) -> bool:
        return not self.types or any(
            name == wanted or (wanted.endswith("*") and name.startswith(wanted[:-1])) for wanted in self.types
        )


@dataclass(frozen=True, slots=True)
class Start:
    """Both None: from now on."""

    after_sequence: int | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One event with its place in the stream; ``event`` None says that the stream is alive."""

    sequence: int | None = None
    event: dict[str, Any] | None = None
    type: str = ""


async def follow(bus: Bus, start: Start, wanted: EventFilter, *, forever: bool) -> AsyncIterator[Item]:
    """Replay, then follow. Without ``forever`` it ends at what was last when it began."""
    last = await bus.last_event_sequence()
    if not forever and (start == Start() or start.after_sequence == last or not last):
        return
    after = start.after_sequence
    if after is not None and after > last:
        after = 0  # an id of a store that is gone: what the new one holds is all new to this reader
    seen = SeenIds()
    stream = bus.events(EVENTS_WILDCARD, after_sequence=after, since_ms=start.since_ms)
    pending: asyncio.Task[Received] | None = None
    try:
        while True:
            if pending is None:
                pending = asyncio.ensure_future(anext(stream))
            done, _ = await asyncio.wait([pending], timeout=KEEP_ALIVE_S if forever else _END_S)
            if not done:
                if not forever:
                    return
                yield Item()
                continue
            received, pending = pending.result(), None
            item = _read(received, wanted, seen)
            if item is not None:
                yield item
            if not forever and (received.sequence or 0) >= last:
                return
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait([pending])
        await stream.aclose()


def _read(received: Received, wanted: EventFilter, seen: SeenIds) -> Item | None:
    try:
        event = codec.decode(Event, received.data)
    except codec.DecodeError as error:
        _log.error("malformed_event", subject=received.subject, error=str(error))
        return None
    if not seen.first_time(event.id):
        return None  # told again after a crash, longer ago than the stream remembers ids
    return Item(received.sequence, event_json(event, received.sequence), event.type) if wanted.accepts(event) else None


def event_json(event: Event, sequence: int | None) -> dict[str, Any]:
    return {"sequence": sequence, **event.model_dump(exclude_none=True)}


def server_sent(item: Item) -> bytes:
    if item.event is None:
        return b": alive\n\n"
    identity = f"id: {item.sequence}\n" if item.sequence is not None else ""
    return f"{identity}event: {item.type}\ndata: {json.dumps(item.event)}\n\n".encode()


def json_line(item: Item) -> bytes:
    """An empty line keeps an NDJSON connection alive; readers skip it."""
    return b"\n" if item.event is None else json.dumps(item.event).encode() + b"\n"


async def mirror_event(bus: Bus, received: Received) -> None:
    """The same event again as JSON, for a plain NATS client."""
    try:
        event = codec.decode(Event, received.data)
    except codec.DecodeError:
        return  # its readers bury it; here it only could not be shown
    await bus.publish(json_subject(received.subject), json.dumps(event_json(event, received.sequence)).encode())
