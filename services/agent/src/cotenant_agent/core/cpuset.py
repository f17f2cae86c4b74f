"""Kernel cpu lists (`0-3,8`) as sorted tuples of cpu ids."""

from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=1_024)
def parse_cpuset(text: str) -> tuple[int, ...]:
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"a cpu list looks like 0-3,8; got {text!r}")
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise ValueError(f"a cpu range goes upward; got {part!r} in {text!r}")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def format_cpuset(cpus: Iterable[int]) -> str:
    ordered = sorted(set(cpus))
    ranges: list[str] = []
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == cpu + 1:
            continue
        first = ordered[start]
        ranges.append(f"{first}-{cpu}" if first != cpu else f"{cpu}")
        start = index + 1
    return ",".join(ranges)
