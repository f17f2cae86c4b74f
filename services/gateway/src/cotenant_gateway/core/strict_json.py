"""JSON that can be passed on: depth is bounded, integers fit 64 bits, numbers are finite and text is UTF-8.

What Python's reader accepts beyond that fails later, when a record is encoded and nobody is left to be told.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final

MAX_DEPTH: Final = 64
_LOW: Final = -(2**63)
_HIGH: Final = 2**63 - 1
_DIGITS: Final = 20


def parse(text: str, parse_float: Callable[[str], Any] = float) -> Any:
    """Raise ValueError with a sentence."""
    try:
        value = json.loads(text, parse_int=_integer, parse_float=parse_float, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError(f"more than {MAX_DEPTH} levels") from error
    _check(value, 0)
    return value


def _integer(text: str) -> int:
    number = int(text) if len(text) <= _DIGITS else _HIGH + 1
    if not _LOW <= number <= _HIGH:
        raise ValueError(f"{text[:_DIGITS]} is no 64-bit integer")
    return number


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        for key, entry in value.items():
            _check(key, depth + 1)
            _check(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check(entry, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    elif isinstance(value, str) and not is_unicode(value):
        raise ValueError(f"a text holds half a surrogate pair: {value[:40]!r}")


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
