"""Subjects, wildcards, keys and republish mappings: the grammar that both buses share."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from cotenant_common.bus.protocol import BusError

# nats-server closes the client for good over a key of 4,040 characters, so the check comes before the wire.
MAX_KEY: Final = 1024
MAX_BATCH: Final = 1000
_KEY: Final = re.compile(r"^[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*\Z", re.ASCII)
_PLACE: Final = re.compile(r"\{\{wildcard\((\d+)\)\}\}")


class InvalidKeyError(BusError, ValueError):
    """A key the server would refuse, or answer by closing the connection."""


def check_key(key: str) -> str:
    """Return the key, or raise InvalidKeyError before anything reaches the wire."""
    if len(key) > MAX_KEY or _KEY.match(key) is None:
        raise InvalidKeyError(
            f"expected tokens of letters, digits, '-', '/', '_', '=' joined by single dots, "
            f"at most {MAX_KEY} characters, got {key[:80]!r} ({len(key)} characters)"
        )
    return key


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A predicate for ``*`` (one token) and a trailing ``>`` (one token or more)."""
    if pattern == ">":
        return lambda _: True
    if "*" not in pattern and not pattern.endswith(">"):
        return pattern.__eq__
    parts = [r"[^.]+" if part == "*" else re.escape(part) for part in pattern.split(".")]
    if pattern.endswith(".>"):
        parts[-1] = r".+"
    compiled = re.compile(r"\.".join(parts))
    return lambda subject: compiled.fullmatch(subject) is not None


def republish_mapping(source: str, destination: str) -> Callable[[str], str | None]:
    """Key → subject of its copy, or None when the key does not match; ``{{wildcard(n)}}`` counts from 1."""
    parts = [r"([^.]+)" if part == "*" else re.escape(part) for part in source.split(".")]
    compiled = re.compile(r"\.".join(parts))

    def mapped(key: str) -> str | None:
        match = compiled.fullmatch(key)
        return match and _PLACE.sub(lambda place: match.group(int(place[1])), destination)

    return mapped
