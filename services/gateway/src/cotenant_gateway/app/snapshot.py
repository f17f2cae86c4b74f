"""A copy of everything the bus holds, for whoever wants to try something without touching it."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.bus.protocol import Bucket, BusError, Entry, SnapshotDone, StoreReset
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.buckets import BUCKETS, is_bookkeeping
from cotenant_common.runtime.service import ServiceContext
from cotenant_common.runtime.settings import ServiceSettings
from cotenant_gateway.app.world import World
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core.errors import unavailable

Json = dict[str, Any]

_ROUNDS: Final = 4
_TIMEOUT_S: Final = 60.0
_RENEWED: Final = (buckets.HEARTBEATS.name, buckets.LEASES.name)
"""Signs of life: they change every second, and a copy of a second ago means the same."""
_OF_THE_HOST: Final = frozenset(ServiceSettings.model_fields) | {
    "api_enabled", "api_host", "api_port", "api_token_file", "allowed_origins", "max_body_bytes", "runtime",
    "mirror_json", "uid_seed", "lease_ttl_s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Copy:
    """The live entries of one bucket as of ``revision``."""

    revision: int
    entries: Mapping[str, Entry]

    def says_the_same(self, other: "Copy") -> bool:
        """Leases are renewed inside the buckets that they fence; nothing is decided on them."""
        return self.substance() == other.substance()

    def substance(self) -> dict[str, int]:
        return {key: entry.revision for key, entry in self.entries.items() if not is_bookkeeping(key)}


class Snapshots:
    """Each bucket is read as of one revision. Two readings in a row that say the same prove an instant between them
    at which all of it was true together; while the system changes faster than that, the newest reading is given and
    says which buckets moved.
    """

    def __init__(self, context: ServiceContext, settings: GatewaySettings, world: World) -> None:
        self._context = context
        self._settings = settings
        self._world = world
        self._one_at_a_time = asyncio.Lock()

    async def take(self) -> Json:
        """Raise ApiError."""
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._one_at_a_time:
                return await self._take()
        except BusError as error:
            raise unavailable(f"the bus does not answer: {error}") from error
        except TimeoutError as error:
            raise unavailable(f"the bus did not give its buckets within {_TIMEOUT_S:g} s") from error

    async def _take(self) -> Json:
        opened = [await self._context.bus.bucket(spec) for spec in BUCKETS]
        began_ms = self._context.clock.now_ms()
        copies = await _read_all(opened)
        moved: list[str] = []
        for _ in range(_ROUNDS):
            before, began_ms = copies, self._context.clock.now_ms()
            copies = await _read_all(opened)
            moved = [name for name in copies if name not in _RENEWED and not copies[name].says_the_same(before[name])]
            if not moved:
                break
        now_ms = self._context.clock.now_ms()
        return {
            "at_ms": now_ms,
            "instance": self._context.instance,
            "consistent": not moved,
            "moved": moved,
            "skew_ms": now_ms - began_ms,
            "settings": {"gateway": self._own_settings()},
            "buckets": {name: _bucket_json(copy) for name, copy in copies.items()},
            "usage": [usage.model_dump() for _, usage in sorted(self._world.usage.items())],
        }

    def _own_settings(self) -> Json:
        """What this gateway decides by; where it listens and who may ask is nobody's business."""
        return self._settings.model_dump(mode="json", exclude=set(_OF_THE_HOST))


async def _read_all(opened: list[Bucket]) -> dict[str, Copy]:
    """Side by side: the time between the first and the last is all that may lie between two buckets."""
    read = await asyncio.gather(*(_read(bucket) for bucket in opened))
    return {bucket.spec.name: copy for bucket, copy in zip(opened, read, strict=True)}


async def _read(bucket: Bucket) -> Copy:
    entries: dict[str, Entry] = {}
    async with aclosing(bucket.watch()) as items:
        async for item in items:
            if isinstance(item, SnapshotDone):
                return Copy(item.revision, entries)
            if isinstance(item, StoreReset):
                entries.clear()
            elif item.value is None:
                entries.pop(item.key, None)
            else:
                entries[item.key] = item
    raise unavailable(f"the bucket {bucket.spec.bucket} ended while it was read")


def _bucket_json(copy: Copy) -> Json:
    found, unreadable = [], []
    for key, entry in copy.entries.items():
        if entry.value is None or not _is_told(key):
            continue
        try:
            found.append({"key": key, "revision": entry.revision, "value": codec.unpack(entry.value)})
        except codec.DecodeError as error:
            unreadable.append({"key": key, "revision": entry.revision, "problem": str(error)})
    return {"revision": copy.revision, "entries": found, "unreadable": unreadable}


def _is_told(key: str) -> bool:
    """A lease is its holder's alone, and a copy of it would keep others out. Epochs and marks are history."""
    return not key.startswith("lease.") or key.endswith(".epoch")
