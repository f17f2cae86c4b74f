"""Whole streams as bytes and back, with every revision as it was.

Written key by key, a restored bucket would have new revisions, and what refers to revisions (applied generations, event
ids, announcement marks) would point at something else. The server's snapshot keeps them.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.bus.nats_api import JetStreamApi
from cotenant_common.bus.nats_wire import API, STREAM_NOT_FOUND, JetStreamError, Reply, Wire, parse_answer
from cotenant_common.bus.protocol import BusError, BusUnavailableError

CHUNK_BYTES: Final = 128 << 10
_SILENCE_S: Final = 20.0
"""Between two pieces; the server gives up on us after about as long."""
_END_OK: Final = frozenset({None, "204"})


@dataclass(frozen=True, slots=True)
class StreamState:
    """``config`` and ``state`` as the server tells them."""

    config: Mapping[str, Any]
    state: Mapping[str, Any]

    @property
    def messages(self) -> int:
        return int(self.state.get("messages", 0))

    @property
    def last_sequence(self) -> int:
        return int(self.state.get("last_seq", 0))


class StreamSnapshots:
    def __init__(self, wire: Wire, api: JetStreamApi) -> None:
        self._wire = wire
        self._api = api

    async def find(self, stream: str) -> StreamState | None:
        """What the server says of a stream; None when there is none."""
        try:
            answer = await self._api.call(f"STREAM.INFO.{stream}")
        except JetStreamError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise
        return StreamState(answer["config"], answer["state"])

    async def read(self, stream: str) -> AsyncGenerator[StreamState | bytes, None]:
        """First the state that the snapshot holds, then its bytes in pieces. Raise BusError."""
        pieces: asyncio.Queue[Reply] = asyncio.Queue()
        inbox = self._wire.new_inbox()
        stop = await self._wire.listen(inbox, pieces.put_nowait)
        try:
            body = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": CHUNK_BYTES}
            answer = await self._ask(f"{API}.STREAM.SNAPSHOT.{stream}", json.dumps(body).encode())
            yield StreamState(answer["config"], answer["state"])
            while (piece := await _next(pieces, stream)).data:
                yield piece.data
                if piece.reply_to:
                    # The server sends a window of pieces and waits for these.
                    await self._wire.send(piece.reply_to, b"")
            if piece.status not in _END_OK:
                raise BusError(f"the server ended the snapshot of {stream}: {dict(piece.headers)}")
        finally:
            await stop()

    async def write(self, snapshot: StreamState, pieces: Iterable[bytes]) -> StreamState:
        """Make the stream again; it must not exist. Return what the server says it is now. Raise BusError."""
        stream = str(snapshot.config["name"])
        body = json.dumps({"config": dict(snapshot.config), "state": dict(snapshot.state)}).encode()
        subject = (await self._ask(f"{API}.STREAM.RESTORE.{stream}", body))["deliver_subject"]
        for piece in pieces:
            parse_answer((await self._wire.request(subject, piece, timeout_s=_SILENCE_S)).data)
        answer = await self._ask(subject, b"")
        return StreamState(answer["config"], answer["state"])

    async def remove(self, stream: str) -> None:
        await self._api.call(f"STREAM.DELETE.{stream}")

    async def _ask(self, subject: str, body: bytes) -> dict[str, Any]:
        # Not retried: a second snapshot would deliver into the same inbox, a second restore would meet the first.
        return parse_answer((await self._wire.request(subject, body, timeout_s=_SILENCE_S)).data)


async def _next(pieces: "asyncio.Queue[Reply]", stream: str) -> Reply:
    try:
        async with asyncio.timeout(_SILENCE_S):
            return await pieces.get()
    except TimeoutError:
        raise BusUnavailableError(f"the snapshot of {stream} broke off: nothing for {_SILENCE_S:g} s") from None
