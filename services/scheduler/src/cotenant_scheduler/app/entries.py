"""Values of bucket entries."""

from typing import TypeVar

from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import is_bookkeeping
from cotenant_common.contracts.messages.base import Message

M = TypeVar("M", bound=Message)


def read(model: type[M], entry: Entry) -> M | None:
    """None for a deletion, and for bytes that the mirror has counted and logged already."""
    if entry.value is None or is_bookkeeping(entry.key):
        return None
    try:
        return codec.decode(model, entry.value)
    except codec.DecodeError:
        return None
