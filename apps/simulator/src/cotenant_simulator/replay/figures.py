"""Numbers about many: mean and percentiles (nearest rank), None when there is nothing to say."""

from collections.abc import Sequence
from typing import Any

from cotenant_simulator.core.summary import nearest_rank


def spread(values_ms: Sequence[int]) -> dict[str, Any]:
    """Seconds, of milliseconds."""
    ordered = sorted(values_ms)
    mean = sum(ordered) / len(ordered) if ordered else None
    return {
        "mean": _seconds(mean),
        "p50": _seconds(nearest_rank(ordered, 50)),
        "p95": _seconds(nearest_rank(ordered, 95)),
        "max": _seconds(ordered[-1] if ordered else None),
    }


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else round(ms / 1_000, 3)
