"""The bus on NATS. The only file that imports the client; its untyped edges end here.

Needs nats-server 2.12 or newer with JetStream, and ``sync_interval: always`` for what an acknowledgement promises:
nats-server has that setting per server, not per stream. A stream can only opt out (persist mode ``async``), which the
buckets of keys that expire anyway do.
"""

import asyncio
import random
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, Final

from nats import errors
from nats.aio.client import Client, Server
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from cotenant_common.bus.login import Login, token_login
from cotenant_common.bus.nats_api import JetStreamApi
from cotenant_common.bus.nats_bucket import NatsBucket
from cotenant_common.bus.nats_reader import Delivered, OrderedReader, Start
from cotenant_common.bus.nats_snapshot import StreamSnapshots
from cotenant_common.bus.nats_wire import MSG_ID, REMOTE_ERROR, OnReconnect, Reply, StopListening, stream_config
from cotenant_common.bus.nats_wire import OnMessage as Listener
from cotenant_common.bus.protocol import (
    AccessDeniedError,
    BusClosedError,
    BusError,
    BusUnavailableError,
    EventMessage,
    Handler,
    NoResponderError,
    PayloadTooLargeError,
    PermissionDeniedError,
    Received,
    RemoteError,
    Responder,
)
from cotenant_common.bus.provenance import was_asked, was_published, was_stored_by_a_writer
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import EVENTS_STREAM, BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.telemetry.logging import get_logger

PENDING_BYTES: Final = 8 << 20
"""Telemetry of some seconds: what a publisher may buffer while the server is away before it drops."""
OLDEST_SERVER: Final = (2, 12)
_PING_S: Final = 20
_MAX_RECONNECT_PAUSE_S: Final = 2.0
_STOP_TIMEOUT_S: Final = 1.0
_DENIED: Final = re.compile(r"Permissions Violation for (?P<what>\w+) to \"(?P<subject>[^\"]+)\"", re.IGNORECASE)
_log = get_logger("bus")


class UnsupportedServerError(BusError):
    """The server is too old for what state needs: atomic batches, message TTL and republish."""


EVENTS_WAIT_S: Final = 2.0
_HEADER: Final = re.compile(rb"^[ \t]*([!-9;-~]+)[ \t]*:[ \t]*(.*?)[ \t]*\r$", re.MULTILINE)


class _LeanClient(Client):
    """Every message of a bucket carries half a dozen headers; the client looks at each character of their names,
    which was a tenth of what a busy scheduler did."""

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        return {name.decode(): value.decode("utf-8", "replace") for name, value in _HEADER.findall(raw)}


class NatsWire:
    """A client connection as the layers above see it."""

    def __init__(self, name: str) -> None:
        self.client = _LeanClient()
        self.error_counts: dict[str, int] = {}
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._name = name
        self._closing = False
        self._reconnected = asyncio.Event()
        self._on_reconnect: dict[int, OnReconnect] = {}
        self._serial = 0
        self._denied: dict[str, str] = {}
        self._refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        return self._name

    @property
    def connected(self) -> bool:
        return bool(self.client.is_connected)

    async def connect(self, servers: Sequence[str], login: Login) -> None:
        """Try until it works. Raise AccessDeniedError when the server says no, which waiting does not change."""
        connecting = asyncio.ensure_future(self._connect(servers, login))
        try:
            await asyncio.wait((connecting, self._refused), return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                who = f" as {login.user!r}" if login.user else ""
                raise AccessDeniedError(
                    f"{', '.join(servers)} does not let {self._name} in{who}: {self._refused.result()}"
                )
            await connecting
        finally:
            self._refused.cancel()
            connecting.cancel()
            await asyncio.wait((connecting,))
        self._reconnected.set()

    async def _connect(self, servers: Sequence[str], login: Login) -> None:
        await self.client.connect(
            servers=list(servers),
            name=self._name,
            **login.options(),
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            reconnect_to_server_handler=_next_server,
            connect_timeout=2,
            ping_interval=_PING_S,
            max_outstanding_pings=2,
            pending_size=PENDING_BYTES,
            flusher_queue_size=4096,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    async def close(self) -> None:
        self._closing = True
        self._wake_all()
        with suppress(errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                if self.connected:
                    await self.client.flush()
        with suppress(errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self.client.close()
        if not self.failed.done():
            self.failed.cancel()

    @property
    def server_version(self) -> tuple[int, int]:
        version = self.client.connected_server_version
        return version.major, version.minor

    def unique(self) -> str:
        return self.client._nuid.next().decode()  # noqa: SLF001 - the client's own id maker, which it does not export

    def new_inbox(self) -> str:
        return str(self.client.new_inbox())

    def on_reconnect(self, callback: OnReconnect) -> OnReconnect:
        self._serial += 1
        serial = self._serial
        self._on_reconnect[serial] = callback

        def undo() -> None:
            self._on_reconnect.pop(serial, None)

        return undo

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Reply:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        task = asyncio.current_task()
        cancels = task.cancelling() if task is not None else 0
        await self._until_connected(timeout_s)
        try:
            message = await self.client.request(
                subject, data, timeout=max(0.01, deadline - loop.time()), headers=_carried(headers)
            )
        except errors.NoRespondersError:
            raise NoResponderError(f"nobody serves {subject!r}") from None
        except (errors.TimeoutError, TimeoutError):
            self._raise_if_denied(subject)
            raise BusUnavailableError(f"no answer to {subject!r} within {timeout_s:g} s") from None
        except errors.Error as error:
            raise self._translated(error, subject, len(data)) from error
        if task is not None and task.cancelling() > cancels:
            # Before Python 3.12 the client's ``wait_for`` swallows a cancellation that meets the answer, and whoever
            # waits for the cancelled task would wait for ever.
            raise asyncio.CancelledError
        return _reply(message)

    async def _until_connected(self, timeout_s: float) -> None:
        """Nothing is sent into the void: what was buffered would arrive long after its sender gave up on it."""
        self._raise_if_closed()
        if self.connected:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while not self.connected:
                    self._reconnected.clear()
                    await self._reconnected.wait()
                    self._raise_if_closed()
        except TimeoutError:
            raise BusUnavailableError(f"not connected to the server for {timeout_s:g} s") from None

    async def send(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None, reply_to: str = ""
    ) -> None:
        self._raise_if_closed()
        try:
            await self.client.publish(subject, data, reply=reply_to, headers=_carried(headers))
        except errors.OutboundBufferLimitError:
            self.count("outbound_buffer_full")
        except errors.Error as error:
            raise self._translated(error, subject, len(data)) from error

    async def listen(self, subject: str, on_message: Listener) -> StopListening:
        async def call(message: Msg) -> None:
            on_message(_reply(message))

        subscription = await self.subscribe(subject, call)

        async def stop() -> None:
            with suppress(errors.Error):
                await subscription.unsubscribe()

        return stop

    async def subscribe(self, subject: str, call: Callable[[Msg], Any], queue: str | None = None) -> ClientSubscription:
        self._raise_if_closed()
        try:
            return await self.client.subscribe(subject, queue=queue or "", cb=call)
        except errors.Error as error:
            raise self._translated(error, subject, 0) from error

    def _translated(self, error: Exception, subject: str, size: int) -> BusError:
        if isinstance(error, errors.MaxPayloadError):
            return PayloadTooLargeError(f"expected at most {self.client.max_payload} bytes on {subject!r}, got {size}")
        if isinstance(error, errors.ConnectionClosedError | errors.ConnectionDrainingError):
            return BusClosedError("this connection was closed")
        if isinstance(error, errors.BadSubjectError):
            return BusError(f"expected a subject without spaces or empty tokens, got {subject!r}")
        return BusUnavailableError(f"{subject}: {error}")

    def _raise_if_closed(self) -> None:
        if self._closing or self.client.is_closed:
            raise BusClosedError("this connection was closed")

    def _raise_if_denied(self, subject: str) -> None:
        # The server tells a denied publish to the connection, never to the publish; here the two meet again.
        if (reason := self._denied.pop(subject.lower(), None)) is not None:
            raise PermissionDeniedError(reason)

    def count(self, what: str) -> None:
        self.error_counts[what] = self.error_counts.get(what, 0) + 1

    async def _on_error(self, error: Exception) -> None:
        self.count(type(error).__name__)
        if (reason := _refusal(error)) is not None:
            self._refuse(reason)
        elif denied := _DENIED.search(str(error)):
            # The client hands the server's text over in lower case.
            self._denied[denied["subject"].lower()] = f"{error}"
            _log.error("bus_permission_denied", service=self._name, subject=denied["subject"], what=denied["what"])
        else:
            _log.warning("bus_error", service=self._name, error=f"{type(error).__name__}: {error}")

    def _refuse(self, reason: str) -> None:
        if not self._refused.done():
            self._refused.set_result(reason)
        elif not self._closing and not self.failed.done():
            # Let in once and no more: the login was replaced while the connection was down, and the client would offer
            # the old one for ever. Whoever starts again reads the new one.
            self.failed.set_result(f"the server no longer lets it in: {reason}")

    async def _on_disconnect(self) -> None:
        if not self._closing:
            self.count("disconnected")
            _log.warning("bus_disconnected", service=self._name)
        self._fail_requests()

    def _fail_requests(self) -> None:
        """What was in flight is lost; its senders should ask again on the next connection, not wait out a timeout."""
        waiting: dict[str, asyncio.Future[Msg]] = getattr(self.client, "_resp_map", {})
        for future in tuple(waiting.values()):
            if not future.done():
                future.set_exception(errors.ConnectionReconnectingError())

    async def _on_reconnected(self) -> None:
        self.count("reconnected")
        _log.info("bus_reconnected", service=self._name)
        self._wake_all()

    def _wake_all(self) -> None:
        """Requests that wait for the connection go on, reads find out what became of it."""
        self._reconnected.set()
        for callback in tuple(self._on_reconnect.values()):
            callback()

    async def _on_closed(self) -> None:
        self._wake_all()
        if not self._closing and not self.failed.done():
            # The client gave up for good, for instance after a protocol error. Alive and deaf is the worst state.
            self.failed.set_result(f"the client closed its connection: {self.client.last_error}")


def _refusal(error: Exception) -> str | None:
    """Why trying again would not help, of what goes wrong while connecting."""
    if isinstance(error, ssl.SSLError) and "CERT" in (reason := str(error.reason).upper()):
        # Of either side; a handshake that a restart cut short says something else, and is tried again.
        return f"TLS: {reason}; are nats_tls_ca_file and nats_tls_cert_file the right ones?"
    if "authorization violation" in str(error).lower():
        return "wrong user, password, token or key"
    return None


def _carried(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    return dict(headers) if headers else None


def _reply(message: Msg) -> Reply:
    return Reply(message.subject, message.data, message.headers or {}, message.reply)


def _next_server(servers: list[Server], _: dict[str, Any]) -> tuple[Server | None, float]:
    """The server tried least, after a pause that grows and differs from one client to the next."""
    chosen = min(servers, key=lambda server: server.reconnects)
    return chosen, _jittered(min(_MAX_RECONNECT_PAUSE_S, 0.1 * 2 ** min(chosen.reconnects, 8)))


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 - spreads a herd, guards nothing


class NatsSubscription:
    def __init__(self, subscription: ClientSubscription, stopped: asyncio.Event) -> None:
        self._subscription = subscription
        self._stopped = stopped

    async def stop(self) -> None:
        self._stopped.set()
        with suppress(errors.Error, TimeoutError):
            # Lets a running handler finish; what is queued behind it sees ``stopped`` and is skipped.
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._subscription.drain()  # type: ignore[no-untyped-call]


class NatsBus:
    def __init__(self, wire: NatsWire, replicas: int) -> None:
        self.handler_errors = 0
        self._wire = wire
        self._replicas = replicas
        self._api = JetStreamApi(wire)
        self._events_config = stream_config(EVENTS_STREAM, replicas)
        self._events_open = False

    @property
    def name(self) -> str:
        return self._wire.name

    @property
    def connected(self) -> bool:
        return self._wire.connected

    @property
    def error_counts(self) -> Mapping[str, int]:
        """What went wrong on this connection since it began, by kind."""
        return self._wire.error_counts

    async def wait_failed(self) -> str:
        return await asyncio.shield(self._wire.failed)

    async def wait_reconnected(self) -> None:
        before = self.error_counts.get("reconnected", 0)
        woken = asyncio.Event()
        undo = self._wire.on_reconnect(woken.set)
        try:
            while self.error_counts.get("reconnected", 0) == before:  # a close wakes too, while still connected
                woken.clear()
                await woken.wait()
        finally:
            undo()

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        await self._wire.send(subject, data, headers=headers)

    async def publish_message(self, subject: str, message: Message, headers: Mapping[str, str] | None = None) -> None:
        await self.publish(subject, codec.encode(message), headers)

    async def publish_event(self, subject: str, data: bytes, *, event_id: str, headers: Mapping[str, str]) -> int:
        await self._open_events()
        try:
            return await self._api.store(EVENTS_STREAM.name, subject, data, {**headers, MSG_ID: event_id})
        except BusUnavailableError:
            # The stream may have been lost with its store; the next attempt makes it again.
            self._events_open = False
            raise

    async def publish_events(self, events: Sequence[EventMessage]) -> None:
        await self._open_events()
        messages = [(event.subject, event.data, {**event.headers, MSG_ID: event.event_id}) for event in events]
        try:
            await self._api.send_batch(messages, EVENTS_WAIT_S)
        except BusUnavailableError:
            self._events_open = False
            raise

    async def subscribe(self, subject: str, handler: Handler, *, queue: str | None = None) -> NatsSubscription:
        stopped = asyncio.Event()

        async def call(message: Msg) -> None:
            if stopped.is_set() or not self._is_genuine(message, was_published):
                return
            try:
                await handler(_received(message))
            except Exception:  # noqa: BLE001 - one bad message must not end the subscription
                self.handler_errors += 1
                _log.exception("handler_failed", service=self.name, subject=message.subject)

        return NatsSubscription(await self._wire.subscribe(subject, call, queue), stopped)

    async def serve(self, subject: str, responder: Responder, *, queue: str | None = None) -> NatsSubscription:
        stopped = asyncio.Event()

        async def call(message: Msg) -> None:
            if stopped.is_set() or not self._is_genuine(message, was_asked):
                return
            answer, headers = b"", None
            try:
                answer = await responder(_received(message))
            except Exception as error:  # noqa: BLE001 - the caller is told
                self.handler_errors += 1
                _log.exception("responder_failed", service=self.name, subject=message.subject)
                headers = {REMOTE_ERROR: str(error) or type(error).__name__}
            if message.reply:
                await self._answer(message.reply, answer, headers)

        return NatsSubscription(await self._wire.subscribe(subject, call, queue), stopped)

    def _is_genuine(self, message: Msg, check: Callable[[str, Mapping[str, str], str], bool]) -> bool:
        if check(message.subject, message.headers or {}, message.reply):
            return True
        self._wire.count("forged")
        _log.error("bus_message_refused", service=self.name, subject=message.subject, reply_to=message.reply)
        return False

    async def _answer(self, reply_to: str, answer: bytes, headers: Mapping[str, str] | None) -> None:
        try:
            await self._wire.send(reply_to, answer, headers=headers)
        except PayloadTooLargeError as error:
            await self._wire.send(reply_to, b"", headers={REMOTE_ERROR: str(error)})

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Received:
        reply = await self._wire.request(subject, data, timeout_s=timeout_s, headers=headers)
        if (text := reply.headers.get(REMOTE_ERROR)) is not None:
            raise RemoteError(text)
        return Received(subject, reply.data, reply.headers)

    async def bucket(self, spec: BucketSpec) -> NatsBucket:
        bucket = NatsBucket(self._wire, self._api, spec, self._replicas)
        await bucket.open()
        return bucket

    async def events(
        self, subject: str, *, after_sequence: int | None = None, since_ms: int | None = None
    ) -> AsyncGenerator[Received, None]:
        start = _start(after_sequence, since_ms)
        reader = OrderedReader(self._wire, self._api, self._events_config, subject, start)
        async with aclosing(reader.read()) as items:
            async for item in items:
                if isinstance(item, Delivered) and was_stored_by_a_writer(item.message.headers):
                    yield Received(item.message.subject, item.message.data, item.message.headers, item.sequence)

    def snapshots(self) -> StreamSnapshots:
        return StreamSnapshots(self._wire, self._api)

    async def last_event_sequence(self) -> int:
        return (await self._api.ensure_stream(self._events_config)).last_sequence

    async def _open_events(self) -> None:
        if not self._events_open:
            await self._api.ensure_stream(self._events_config)
            self._events_open = True

    async def close(self) -> None:
        await self._wire.close()


def _received(message: Msg) -> Received:
    headers = message.headers or {}
    sequence = headers.get("Nats-Sequence")
    return Received(message.subject, message.data, headers, int(sequence) if sequence else None)


def _start(after_sequence: int | None, since_ms: int | None) -> Start:
    if after_sequence is not None:
        return Start("by_start_sequence", sequence=max(1, after_sequence + 1))
    if since_ms is not None:
        return Start("by_start_time", time=datetime.fromtimestamp(since_ms / 1000, UTC).isoformat())
    return Start("new")


async def connect(
    servers: Sequence[str],
    *,
    name: str,
    token: str | None = None,
    login: Login | None = None,
    replicas: int = 1,
    timeout_s: float | None = None,
) -> NatsBus:
    """Connect; wait for the server for as long as it takes, or raise BusUnavailableError after ``timeout_s``.

    ``token`` is short for a login with nothing else. Raise AccessDeniedError when the server refuses it.
    """
    wire = NatsWire(name)
    try:
        async with asyncio.timeout(timeout_s):
            await wire.connect(servers, login or token_login(token))
    except TimeoutError:
        await wire.close()
        raise BusUnavailableError(f"no NATS server at {', '.join(servers)} within {timeout_s:g} s") from None
    except BaseException:
        await wire.close()
        raise
    if wire.server_version < OLDEST_SERVER:
        await wire.close()
        found, oldest = (".".join(map(str, version)) for version in (wire.server_version, OLDEST_SERVER))
        raise UnsupportedServerError(f"expected nats-server {oldest} or newer, {servers[0]} is {found}")
    return NatsBus(wire, replicas)
