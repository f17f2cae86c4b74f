"""RackPower: pods go where there is power left.

Nodes say how much in a label, pods may ask for some in an annotation.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from cotenant_scheduler.plugin_api import (
    Bools,
    Ints,
    Reads,
    ReasonCode,
    Refusal,
    Rows,
    Shape,
    ShapeFilter,
    ShapeScore,
    Snapshot,
    Wake,
)

ANNOTATION = "power.example.com/watts"


class RackPower(ShapeFilter, ShapeScore):
    """Filter: the label must offer what the annotation asks for. Score: percent of ``fullWatts`` that is offered."""

    name = "RackPower"
    reads = Reads.FACTS
    wakes = Wake.NODE
    annotations = (ANNOTATION,)

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.label = str(arguments.get("label", "power.example.com/spare-watts"))
        self.full_watts = int(arguments.get("fullWatts", 1000))
        if self.full_watts <= 0:
            raise ValueError(f"fullWatts: expected a number above 0, got {self.full_watts}")

    def part(self, shape: Shape) -> Hashable:
        return _wanted(shape)

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        passed: Bools = self._spare(cluster, rows) >= _wanted(shape)
        return passed

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:  # noqa: ARG002 - the interface's
        points: Ints = np.minimum(self._spare(cluster, rows), self.full_watts) * 100 // self.full_watts
        return points

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        wanted, spare = _wanted(shape), int(self._spare(cluster, np.array([row]))[0])
        return Refusal(
            ReasonCode.PLUGIN_REFUSED,
            f"RackPower: needs {wanted} W, the rack of node {cluster.name(row)} has {spare} W to spare",
            {"wanted_watts": wanted, "spare_watts": spare},
            f"{wanted - spare} W more on the rack of {cluster.name(row)}",
        )

    def _spare(self, cluster: Snapshot, rows: Rows) -> Ints:
        """Nodes share few values, so each value is read once."""
        codes, places = np.unique(cluster.labels.codes(self.label, rows), return_inverse=True)
        spare = [_watts(cluster.labels.value_of(self.label, int(code))) for code in codes]
        found: Ints = np.array(spare, dtype=np.int64)[places]
        return found


def _wanted(shape: Shape) -> int:
    return _watts(dict(shape.extras).get(ANNOTATION))


def _watts(text: str | None) -> int:
    """What cannot be read asks for nothing and offers nothing."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
