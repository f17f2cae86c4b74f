"""What the statuses of pods tell: each event belongs to one write of one status, and is the same when told again."""

from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import PodStatusRecord
from cotenant_common.model.ids import encode_token, object_key
from cotenant_common.runtime.events import event_id

SOURCE = "agent"


def status_key(node: str, uid: str) -> str:
    return f"{encode_token(node)}.{uid}"


def pod_event(kind: str, status: PodStatusRecord, revision: int, at_ms: int, reason: str | None, message: str) -> Event:
    """``revision`` is that of the write."""
    return Event(
        id=event_id(buckets.PODSTATUS, status_key(status.node, status.uid), revision, kind),
        type=kind,
        at_ms=at_ms,
        source=SOURCE,
        object=object_key("Pod", status.namespace, status.name),
        uid=status.uid,
        reason=reason,
        message=message,
        data={"node": status.node, "attempt": status.attempt, "phase": status.phase},
    )


def events_of(entry: Entry, node: str, now_ms: int) -> list[Event]:
    """What a crashed agent may have written and not told."""
    if entry.value is None or not entry.key.startswith(f"{encode_token(node)}."):
        return []
    try:
        status = codec.decode(PodStatusRecord, entry.value)
    except codec.DecodeError:
        return []  # the mirror of the same bucket has logged it
    kind = "pod.finished" if status.terminal else "pod.rejected" if status.rejected else None
    if kind is None:
        return []
    at_ms = status.finished_ms or now_ms
    return [pod_event(kind, status, entry.revision, at_ms, status.reason, status.message or "")]
