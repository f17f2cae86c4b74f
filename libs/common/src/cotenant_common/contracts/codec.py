"""MessagePack of pydantic models: the bytes on the wire."""

from typing import Any, TypeVar

import msgpack
from pydantic import ValidationError

from cotenant_common.contracts.messages.base import Message

M = TypeVar("M", bound=Message)


class DecodeError(ValueError):
    """Bytes that are no MessagePack map, or a map that is not the message expected."""


def encode(message: Message) -> bytes:
    """Pack without the values a reader would fill in itself: bytes on the bus are the busiest cost there is."""
    return pack(message.model_dump(exclude_none=True))


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """Raise DecodeError for truncated or foreign bytes."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:  # msgpack raises a dozen unrelated types for bad input
        raise DecodeError(f"expected MessagePack, got {data[:16].hex()}… ({error})") from error


def decode(model: type[M], data: bytes) -> M:
    """Raise DecodeError naming the model and the first field at fault."""
    value = unpack(data)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the message"
        raise DecodeError(f"{model.__name__}: {place}: {first['msg']}") from error
