"""Pages of a container's log, with a cursor that survives rotation: the file's inode and the offset in it."""

import codecs
import os
from pathlib import Path

from cotenant_agent.adapters.ports import LogPage
from cotenant_agent.runtime.logs import files_oldest_first, tail_offset
from cotenant_agent.runtime.settings import RuntimeSettings

_LONGEST_LETTER_BYTES = 4


class LogFiles:
    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings

    def read(
        self, uid: str, container: str, *, after: str | None, tail_lines: int | None, limit_bytes: int
    ) -> LogPage | None:
        files = files_oldest_first(self._settings.container_dir(uid, container) / "log")
        if not files:
            return None
        index, offset = _start(files, after, tail_lines)
        return _page(files[index:], offset, limit_bytes)


def _start(files: list[Path], after: str | None, tail_lines: int | None) -> tuple[int, int]:
    """Which file and where in it. A cursor into a file that was rotated away continues with the oldest there is."""
    if after is not None:
        inode, _, position = after.partition(":")
        for index, path in enumerate(files):
            if str(path.stat().st_ino) == inode and position.isdecimal():
                return index, int(position)
        return 0, 0
    if tail_lines is None:
        return 0, 0
    wanted = tail_lines
    for index in range(len(files) - 1, -1, -1):
        offset, found = tail_offset(files[index], wanted)
        wanted -= found
        if wanted <= 0:
            return index, offset
    return 0, 0


def _page(files: list[Path], offset: int, limit_bytes: int) -> LogPage:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, cursor = "", None
    left = max(limit_bytes, _LONGEST_LETTER_BYTES)
    for path in files:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(left)
            inode = os.fstat(file.fileno()).st_ino
        text += decoder.decode(data)
        # A letter that the end of the page cuts in two is whole on the next one.
        cursor = f"{inode}:{offset + len(data) - len(decoder.getstate()[0])}"
        left -= len(data)
        offset = 0
        if left <= 0:
            break
    return LogPage(text, cursor)
