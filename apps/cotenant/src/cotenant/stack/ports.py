"""Loopback ports: the one asked for, else the one of the last run, else any free one."""

import itertools
import secrets
import socket
from collections.abc import Iterable
from typing import Final

from cotenant.errors import BadInputError

LOOPBACK: Final = "127.0.0.1"

_LISTENERS: Final = range(20_000, 32_000)
"""Below those lent to outgoing connections (Linux: from 32768), which can be gone when their owner restarts."""


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def choose(what: str, wanted: int | None, earlier: int | None, taken: Iterable[int] = ()) -> int:
    """A port to listen on. Raise BadInputError when the one that was asked for is in use."""
    if wanted is not None:
        if not is_free(wanted):
            raise BadInputError(f"port {wanted} for the {what} is in use; stop its owner or choose another")
        return wanted
    others = set(taken)
    if earlier is not None and earlier not in others and is_free(earlier):
        return earlier
    # Where one begins is drawn, so that two stacks that start together do not race for the same port.
    begin = secrets.randbelow(len(_LISTENERS))
    for port in itertools.chain(_LISTENERS[begin:], _LISTENERS[:begin]):
        if port not in others and is_free(port):
            return port
    raise BadInputError(f"no free port from {_LISTENERS.start} to {_LISTENERS.stop - 1} for the {what}; name one")


def of_url(url: str | None) -> int | None:
    """The port of ``scheme://host:port``."""
    text = (url or "").rpartition(":")[2].rstrip("/")
    return int(text) if text.isdigit() else None
