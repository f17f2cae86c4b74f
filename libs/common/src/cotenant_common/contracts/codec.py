"""MessagePack of pydantic models: the bytes on the wire."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgpack
from pydantic import ValidationError

from cotenant_common.contracts.kept_parts import KeptParts
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


def pack_map(entries: Sequence[tuple[str, bytes]]) -> bytes:
    """A map of values that are packed already."""
    header: bytes = msgpack.Packer().pack_map_header(len(entries))
    return b"".join([header, *(part for name, value in entries for part in (pack(name), value))])


def pack_list(items: Sequence[bytes]) -> bytes:
    """A list of values that are packed already."""
    header: bytes = msgpack.Packer().pack_array_header(len(items))
    return b"".join([header, *items])


def unpack(data: bytes) -> Any:
    """Raise DecodeError for truncated or foreign bytes."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:  # msgpack raises a dozen unrelated types for bad input
        raise DecodeError(f"expected MessagePack, got {data[:16].hex()}… ({error})") from error


_kept_parts: dict[type[Message], KeptParts] = {}


def keep_parts(model: type[Message], lists: Mapping[str, type[Message]]) -> None:
    """Have the items of long lists read once for as long as their bytes stay the same."""
    _kept_parts[model] = KeptParts(lists)


def decode(model: type[M], data: bytes) -> M:
    """Raise DecodeError naming the model and the first field at fault."""
    if (parts := _kept_parts.get(model)) is not None:
        # What is wrong with bytes that cannot be read so is found, and named, by reading all of them below.
        with suppress(Exception):
            return model.model_validate(parts.unpack(data))
    value = unpack(data)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the message"
        raise DecodeError(f"{model.__name__}: {place}: {first['msg']}") from error
