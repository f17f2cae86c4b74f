# ruff: noqa: PTH104
"""The record that tells an agent, this one or the next, what became of the container."""

from __future__ import annotations

import json
import os
import time

from cotenant_agent.runtime.shim.proc import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cotenant_agent.runtime.shim.proc import Fields

SLOT_BYTES = 4096
RECORD_RETRIES = 600


class StateFile:
    """The record that an agent adopts; replaced as a whole, so a reader never sees half of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._spare = path + ".spare"

    def write(self, fields: Fields) -> None:
        text = json.dumps(fields).encode()
        fd = os.open(self._spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            padded = text.ljust(SLOT_BYTES)
            written = os.write(fd, padded)
            if written != len(padded):
                raise OSError(28, "state written in part")
            os.ftruncate(fd, len(padded))
        finally:
            os.close(fd)
        os.rename(self._spare, self._path)

    def reserve(self) -> None:
        """Hold the room for the exit record now: the disk may be full when the command ends."""
        try:
            fd = os.open(self._spare, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        try:
            os.write(fd, b" " * SLOT_BYTES)
        except OSError:
            return
        finally:
            os.close(fd)

    def last_attempt(self) -> int:
        """-1 when there is no record, or none that can be read."""
        try:
            attempt: int = json.loads(read_text(self._path))["attempt"]
        except (OSError, ValueError, KeyError):
            return -1
        return attempt


def record_at_last(state: StateFile, fields: Fields) -> None:
    """Nobody else knows the exit status, so a failing disk is outwaited, for ten minutes at most."""
    for _ in range(RECORD_RETRIES):
        try:
            state.write(fields)
        except FileNotFoundError:
            return  # the pod was removed; nobody asks any more
        except OSError as error:
            complain(f"cannot record the exit: {error}")
            time.sleep(1)
        else:
            return


def complain(text: str) -> None:
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        return  # the disk that is full holds this file too
