# ruff: noqa: PTH104, PTH108, PTH110
"""Where a command's output goes: a rotated log, or memory."""

from __future__ import annotations

import os


def cut_at(data: bytes, room: int, file_is_empty: bool) -> int:
    """How many bytes go into the present file: whole lines while a line fits into one file."""
    if len(data) <= room:
        return len(data)
    end_of_line = data.rfind(b"\n", 0, max(room, 0)) + 1
    if end_of_line or not file_is_empty:
        return end_of_line
    return room


class RotatedLog:
    """Output of both streams in order of arrival; `path` is the newest file, `path.1` the one before."""

    def __init__(self, path: str, max_bytes: int, files: int) -> None:
        self.dropped_bytes = 0
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._fd = -1
        self._size = 0
        self._unreported = 0

    def write(self, data: bytes) -> None:
        # A full disk costs output, never progress: blocking here would block the workload's next print.
        if self._unreported:
            if self._append(b"[cotenant: %d bytes of output dropped, disk full]\n" % self._unreported):
                self._drop(len(data))
                return
            self._unreported = 0
        self._drop(self._append(data))

    def _append(self, data: bytes) -> int:
        """The number of bytes that could not be written."""
        while data:
            try:
                if self._fd < 0:
                    self._open()
                head = data[: cut_at(data, self._max_bytes - self._size, self._size == 0)]
                if not head:
                    self._rotate()
                    continue
                done = os.write(self._fd, head)
            except OSError:
                return len(data)
            self._size += done
            data = data[done:]
        return 0

    def _drop(self, count: int) -> None:
        self.dropped_bytes += count
        self._unreported += count

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        os.close(self._fd)
        self._fd = -1
        if self._files == 1:
            os.unlink(self._path)
            return
        for index in range(self._files - 1, 0, -1):
            older = f"{self._path}.{index - 1}" if index > 1 else self._path
            if os.path.exists(older):
                os.rename(older, f"{self._path}.{index}")


class Captured:
    """The first bytes of an exec's output; the rest is read and forgotten so that it never blocks."""

    def __init__(self, max_bytes: int) -> None:
        self.data = b""
        self._max_bytes = max_bytes

    def write(self, data: bytes) -> None:
        self.data += data[: self._max_bytes - len(self.data)]
