"""Pressure stall information, of the system or of one group."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pressure:
    """`some`: share of the last 10 s in which at least one task stalled, percent. Totals are microseconds."""

    some_avg10: float
    some_total_us: int


def parse_pressure(data: bytes | None) -> Pressure | None:
    """None for kernels that answer EOPNOTSUPP or leave the file empty."""
    if not data or not data.startswith(b"some "):
        return None
    line = data[: data.find(b"\n")] if b"\n" in data else data
    words = line.split()
    try:
        return Pressure(float(words[1][6:]), int(words[4][6:]))
    except (IndexError, ValueError):
        return None


def some_avg10(data: bytes | None) -> float | None:
    pressure = parse_pressure(data)
    return None if pressure is None else pressure.some_avg10
