"""Statistics files held open: one pread per sample, no path lookup, no text decoding."""

import os
from pathlib import Path
from typing import Final

_SIZE: Final = 8_192


class HeldFile:
    """`read` gives None once the kernel object behind the descriptor is gone (ENODEV, ESRCH)."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        """Raise OSError when it cannot be opened."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int = _SIZE) -> bytes | None:
        try:
            return os.pread(self._descriptor, size, 0)
        except OSError:
            return None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def hold(path: Path | None) -> HeldFile | None:
    """None for a file that this kernel, or this layout, does not have."""
    if path is None:
        return None
    try:
        return HeldFile(path)
    except OSError:
        return None


def field(data: bytes, name: bytes) -> int | None:
    """The number after `name ` at the start of a line."""
    start = 0 if data.startswith(name + b" ") else data.find(b"\n" + name + b" ") + 1
    if start == 0 and not data.startswith(name + b" "):
        return None
    start += len(name) + 1
    end = data.find(b"\n", start)
    try:
        return int(data[start : end if end >= 0 else len(data)])
    except ValueError:
        return None
