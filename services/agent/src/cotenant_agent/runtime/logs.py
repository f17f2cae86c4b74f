"""Reads a container's output back across rotation, while the shim goes on writing it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from io import FileIO
from pathlib import Path

CHUNK_BYTES = 64 * 1024
FOLLOW_INTERVAL_S = 0.1


def files_oldest_first(log: Path) -> list[Path]:
    """`log.2`, `log.1`, `log`: as many as there are."""
    older: list[Path] = []
    while (path := log.with_name(f"{log.name}.{len(older) + 1}")).exists():
        older.append(path)
    return [*reversed(older), *([log] if log.exists() else [])]


async def read_log(log: Path, tail: int | None, running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Chunks of bytes, until `running` says no and all is read."""
    file = _open_at(log, tail)
    try:
        while True:
            last_round = not running()
            while file is not None:
                while data := file.read(CHUNK_BYTES):
                    yield data
                newer = _next_file(log, file)
                if newer is None:
                    break
                # The shim may have written between our last read and its rename: only now is this file final.
                if rest := file.read():
                    yield rest
                file.close()
                file = newer
            if last_round:
                return
            await asyncio.sleep(FOLLOW_INTERVAL_S)
            file = file if file is not None else _open_at(log, None)
    finally:
        if file is not None:
            file.close()


def _open_at(log: Path, tail: int | None) -> FileIO | None:
    files = files_oldest_first(log)
    if tail is None:
        return _open(files[0], 0) if files else None
    wanted = tail
    for path in reversed(files):
        offset, found = tail_offset(path, wanted)
        wanted -= found
        if wanted <= 0 or path == files[0]:
            return _open(path, offset)
    return None


def _open(path: Path, offset: int) -> FileIO | None:
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    file.seek(offset)
    return file


def _next_file(log: Path, file: FileIO) -> FileIO | None:
    """The file that follows in time; the oldest there is when ours was rotated away; None when ours is the newest."""
    inode = os.fstat(file.fileno()).st_ino
    files = files_oldest_first(log)
    inodes = [_inode(path) for path in files]
    if inode not in inodes:
        return _open(files[0], 0) if files else None
    after = inodes.index(inode) + 1
    return _open(files[after], 0) if after < len(files) else None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def tail_offset(path: Path, lines: int) -> tuple[int, int]:
    """Where the last `lines` lines begin, and how many lines that is; reads backwards, so a large file is cheap."""
    with path.open("rb") as file:
        size = position = file.seek(0, os.SEEK_END)
        if lines <= 0 or size == 0:
            return size, 0
        found = 0
        while position > 0:
            step = min(CHUNK_BYTES, position)
            position -= step
            file.seek(position)
            block = file.read(step)
            # The line break that ends the file ends its last line; it does not begin another one.
            end = len(block) - 1 if position + step == size else len(block)
            while (at := block.rfind(b"\n", 0, end)) >= 0:
                found += 1
                if found == lines:
                    return position + at + 1, lines
                end = at
    return 0, found + 1
