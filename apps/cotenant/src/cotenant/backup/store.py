"""Take all state out of a store, and put it into an empty one."""

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, Final

from cotenant.backup.archive import Archive, Manifest, StreamEntry, Writer
from cotenant.errors import CotenantError, RefusedError
from cotenant_common.bus.nats_snapshot import StreamSnapshots, StreamState
from cotenant_common.bus.protocol import BusError
from cotenant_common.contracts.buckets import BUCKETS, EVENTS_STREAM

Say = Callable[[str], None]
_TRIES: Final = 3


def state_streams(*, events: bool) -> tuple[str, ...]:
    """Specs first: a binding without its spec is cleared away, but a spec without its binding would be placed again.

    What expires by itself (heartbeats, leases) belongs to those who write it and is in no backup.
    """
    kept = tuple(spec.stream for spec in BUCKETS if not spec.ttl_keys)
    return (*kept, EVENTS_STREAM.name) if events else kept


async def take(snapshots: StreamSnapshots, path: Path, *, server: str, events: bool, say: Say) -> Manifest:
    """Raise CotenantError."""
    streams = state_streams(events=events)
    try:
        for left in reversed(range(_TRIES)):
            manifest = await _take_once(snapshots, path, streams, server, say)
            if not manifest.changed_meanwhile or left == 0:
                return manifest
            say("the store changed meanwhile, reading it again")
    except BusError as error:
        raise CotenantError(f"backup failed: {error}") from error
    raise AssertionError("unreachable: the last try returns")


async def _take_once(snapshots: StreamSnapshots, path: Path, streams: Sequence[str], server: str, say: Say) -> Manifest:
    entries: list[StreamEntry] = []
    with Writer(path) as writer:
        for stream in streams:
            if await snapshots.find(stream) is not None:
                say(f"reading {stream}")
                entries.append(await _read_stream(snapshots, stream, writer))
        if not entries:
            raise CotenantError(f"nothing to back up: {server} holds none of {', '.join(streams)}")
        changed = [entry.stream for entry in entries if await _moved(snapshots, entry)]
        manifest = Manifest(
            created_ms=time.time_ns() // 1_000_000,
            version=version("cotenant"),
            server=server,
            changed_meanwhile=tuple(changed),
            streams=tuple(entries),
        )
        writer.finish(manifest)
    return manifest


async def _moved(snapshots: StreamSnapshots, entry: StreamEntry) -> bool:
    # Events follow the buckets and change nothing about them.
    if entry.stream == EVENTS_STREAM.name:
        return False
    now = await snapshots.find(entry.stream)
    return now is None or now.last_sequence != entry.last_sequence


async def _read_stream(snapshots: StreamSnapshots, stream: str, writer: Writer) -> StreamEntry:
    # A tar needs the size first, so the bytes wait on disk beside the file that they go into.
    with tempfile.TemporaryFile(dir=writer.path.parent) as spool:
        state, size_bytes, digest = await _spool(snapshots, stream, spool)
        member = f"streams/{stream}.snapshot"
        writer.add(member, spool, size_bytes)
    return StreamEntry(
        stream=stream,
        member=member,
        size_bytes=size_bytes,
        sha256=digest,
        messages=state.messages,
        last_sequence=state.last_sequence,
        config=state.config,
        state=state.state,
    )


async def _spool(snapshots: StreamSnapshots, stream: str, spool: IO[bytes]) -> tuple[StreamState, int, str]:
    digest, size_bytes, state = hashlib.sha256(), 0, None
    async for item in snapshots.read(stream):
        if isinstance(item, StreamState):
            state = item
        else:
            spool.write(item)
            digest.update(item)
            size_bytes += len(item)
    if state is None:
        raise BusError(f"the server told nothing of {stream}")
    return state, size_bytes, digest.hexdigest()


async def give_back(
    snapshots: StreamSnapshots, archive: Archive, *, force: bool, replicas: int | None, say: Say
) -> None:
    """Raise RefusedError when the store holds anything and ``force`` is not set, CotenantError when it fails."""
    try:
        present = await _present(snapshots, archive)
        if (full := {name: count for name, count in present.items() if count}) and not force:
            held = ", ".join(f"{name} {count} messages" for name, count in full.items())
            raise RefusedError(
                f"the store is not empty ({held}): stop every service and start nats-server with an empty store, "
                "or say --force to replace what is there"
            )
        for stream in present:
            await snapshots.remove(stream)
        for entry in archive.manifest.streams:
            say(f"writing {entry.stream}")
            await _write_stream(snapshots, archive, entry, replicas)
    except BusError as error:
        raise CotenantError(f"restore failed: {error}") from error


async def _present(snapshots: StreamSnapshots, archive: Archive) -> dict[str, int]:
    """Messages of every stream that stands in the way. Events that the backup does not replace may stay."""
    names = state_streams(events=any(entry.stream == EVENTS_STREAM.name for entry in archive.manifest.streams))
    found = {name: await snapshots.find(name) for name in names}
    return {name: state.messages for name, state in found.items() if state is not None}


async def _write_stream(snapshots: StreamSnapshots, archive: Archive, entry: StreamEntry, replicas: int | None) -> None:
    config = {**entry.config, **({} if replicas is None else {"num_replicas": replicas})}
    made = await snapshots.write(StreamState(config, entry.state), archive.pieces(entry))
    # Keys with a lifetime may have ended since; nothing else may be missing.
    if made.last_sequence != entry.last_sequence:
        raise CotenantError(
            f"restore failed: {entry.stream} ends at {made.last_sequence}, the backup at {entry.last_sequence}"
        )
