"""``5m``, ``1m30s``, ``500ms``: the scenario's times, as whole milliseconds."""

import re
from typing import Final

_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
MOST_MS: Final = 3_650 * 86_400_000
"""Ten years: what is longer is a slip of the pen, and would seem to run for ever."""
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DurationError(ValueError):
    """The text is no duration."""


def parse_ms(text: object) -> int:
    """Raise DurationError. A bare number has no unit, so it says nothing; only 0 needs none."""
    source = str(text)
    if source == "0":
        return 0
    parts = _PART.findall(source)
    if not parts or "".join(number + unit for number, unit in parts) != source:
        raise DurationError(f"expected a duration such as 500ms, 10s or 1m30s, got {source[:40]!r}")
    found = sum(int(number) * _UNIT_MS[unit] for number, unit in parts)
    if found > MOST_MS:
        raise DurationError(f"expected at most {show(MOST_MS)}, got {source[:40]!r}")
    return found


def show(ms: int) -> str:
    """``1m30s``; the shortest text that ``parse_ms`` gives back."""
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _UNIT_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"
