"""What JetStream says on the wire, as plain values: headers, configurations, acknowledgements, error codes.

Nothing here imports the client, so all of it is tested without a server.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cotenant_common.bus.protocol import BusError, BusUnavailableError, ConflictError
from cotenant_common.contracts.buckets import BucketSpec, StreamSpec

API: Final = "$JS.API"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
MSG_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"
REMOTE_ERROR: Final = "Cotenant-Error"

STREAM_NOT_FOUND: Final = 10059
STREAM_NAME_IN_USE: Final = 10058
WRONG_LAST_SEQUENCE: Final = 10071
DUPLICATE_ID_IN_BATCH: Final = 10201
INCOMPLETE_BATCH: Final = 10176

# A deleted key leaves a marker. Watchers that were away for less than half of this see every deletion on return;
# after a longer absence they compare whole snapshots. Without an end the markers of a year's pods would pile up.
DELETED_KEPT_S: Final = 86_400
DUPLICATE_WINDOW_S: Final = 120
_NANO: Final = 1_000_000_000
_ACTUAL: Final = re.compile(r"wrong last sequence: (\d+)")


@dataclass(frozen=True, slots=True)
class Reply:
    """A message as the client hands it over."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    reply_to: str = ""

    @property
    def status(self) -> str | None:
        """The inline status of a control message: 100 heartbeat or flow control, 404 nothing there."""
        return self.headers.get("Status")

    @property
    def is_deletion(self) -> bool:
        return self.headers.get(OPERATION) in ("DEL", "PURGE") or MARKER_REASON in self.headers

    @property
    def sequence(self) -> int:
        return int(self.headers["Nats-Sequence"])


class Wire(Protocol):
    """The part of a client connection that the layers above build on."""

    @property
    def name(self) -> str: ...

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Raise BusUnavailableError (NoResponderError when nobody serves it)."""
        ...

    async def send(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None, reply_to: str = ""
    ) -> None: ...

    async def listen(self, subject: str, on_message: "OnMessage") -> "StopListening": ...

    def unique(self) -> str: ...

    def new_inbox(self) -> str: ...

    def on_reconnect(self, callback: "OnReconnect") -> "OnReconnect":
        """Call it after every reconnect; the answer undoes that."""
        ...


class OnMessage(Protocol):
    def __call__(self, reply: Reply, /) -> None: ...


class OnReconnect(Protocol):
    def __call__(self) -> None: ...


class StopListening(Protocol):
    async def __call__(self) -> None: ...


class JetStreamError(BusError):
    """The server refused an API call or a publish."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"JetStream: {description} ({code})")
        self.code = code
        self.description = description


def raise_error(error: Mapping[str, Any]) -> None:
    """Translate the ``error`` of an answer; a failed expectation becomes a ConflictError."""
    code, description = int(error.get("err_code", 0)), str(error.get("description", "no description"))
    if code == WRONG_LAST_SEQUENCE:
        actual = _ACTUAL.search(description)
        raise ConflictError(
            f"an expected revision did not hold: {description}", actual=int(actual[1]) if actual else None
        )
    # A batch that lost messages to a cut connection is refused whole: nothing was stored, so it may be sent again.
    if error.get("code") == 503 or code == INCOMPLETE_BATCH:
        raise BusUnavailableError(f"JetStream: {description}")
    raise JetStreamError(code, description)


def parse_answer(data: bytes) -> dict[str, Any]:
    """The JSON of an API call or acknowledgement. Raise what ``raise_error`` raises."""
    answer: dict[str, Any] = json.loads(data) if data else {}
    if error := answer.get("error"):
        raise_error(error)
    return answer


@dataclass(frozen=True, slots=True)
class Position:
    """Where a delivered message stands: in its stream, in its consumer, and how many follow."""

    sequence: int
    consumer_sequence: int
    pending: int


def parse_position(reply_to: str) -> Position:
    """``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>``."""
    tokens = reply_to.split(".")
    # With a domain and account two tokens (and a random one at the end) are added.
    shift = 2 if len(tokens) > 9 else 0
    return Position(int(tokens[5 + shift]), int(tokens[6 + shift]), int(tokens[8 + shift]))


def expectation_headers(subject: str, expect: int | None, filter_subject: str | None) -> dict[str, str]:
    if expect is None:
        return {}
    headers = {EXPECTED: str(expect)}
    if filter_subject is not None and filter_subject != subject:
        headers[EXPECTED_SUBJECT] = filter_subject
    return headers


def value_headers(ttl_s: int | None) -> dict[str, str]:
    return {} if ttl_s is None else {TTL: f"{ttl_s}s"}


def deletion_headers() -> dict[str, str]:
    """A purge marker: unlike a plain delete it is not followed by a marker of its own when its time is up."""
    return {OPERATION: "PURGE", TTL: f"{DELETED_KEPT_S}s"}


def writes_lazily(spec: BucketSpec) -> bool:
    """Persist mode ``async``: acknowledged before it is on disk, and no batches. Only for keys that expire anyway."""
    return spec.ttl_keys and not spec.sync_always


def bucket_config(spec: BucketSpec, replicas: int = 1) -> dict[str, Any]:
    """Stream configuration of a bucket; fsync on each write is the server's setting ``sync_interval: always``."""
    config: dict[str, Any] = {
        "name": spec.stream,
        "description": spec.what,
        "subjects": [f"$KV.{spec.bucket}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "max_consumers": -1,
        "num_replicas": replicas,
        "allow_direct": True,
        # A rollup replaces the whole stream: whoever may write one key could end all others with a header. The server
        # insists on it where expiry leaves markers: heartbeats and discovery, which are written again within seconds.
        "allow_rollup_hdrs": spec.ttl_keys,
        "deny_delete": True,
        "allow_msg_ttl": True,
        "duplicate_window": DUPLICATE_WINDOW_S * _NANO,
    }
    if writes_lazily(spec) and replicas == 1:
        config["persist_mode"] = "async"
    else:
        config["allow_atomic"] = True
    if spec.ttl_keys:
        config["subject_delete_marker_ttl"] = DELETED_KEPT_S * _NANO
    if spec.republish is not None:
        source, destination = spec.republish
        config["republish"] = {"src": f"$KV.{spec.bucket}.{source}", "dest": destination}
    return config


def stream_config(spec: StreamSpec, replicas: int = 1) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.why,
        "subjects": list(spec.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_msgs_per_subject": -1,
        "max_msgs": -1,
        "max_bytes": spec.max_bytes,
        "max_age": spec.max_age_s * _NANO,
        "max_msg_size": -1,
        "max_consumers": -1,
        "num_replicas": replicas,
        "allow_direct": True,
        # A burst of bindings is told in batches: one flush to disk for hundreds of events instead of one for each.
        "allow_atomic": True,
        "duplicate_window": spec.duplicate_window_s * _NANO,
    }


def differs(wanted: Mapping[str, Any], existing: Mapping[str, Any]) -> dict[str, Any]:
    """What an existing stream lacks or has too much. The server leaves out values that are zero or false."""
    return {
        name: value for name, value in wanted.items() if (value or existing.get(name)) and existing.get(name) != value
    }
