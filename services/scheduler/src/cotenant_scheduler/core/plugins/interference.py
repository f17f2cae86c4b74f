"""InterferenceAware: keep away from nodes whose pods disturb each other, as far as somebody measures it.

The numbers are signals of the snapshot (``Engine.set_signal``), in percent, one per kind of pod that comes. Nothing
in the package produces them; with weight 0, or without any number, the plugin has no say.
"""

from typing import Final

import numpy as np

from cotenant_scheduler.core.columns import UNSET, Ints, Rows
from cotenant_scheduler.core.plugins.interface import ShapeScore
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.snapshot import Snapshot

_UNKNOWN: Final = 50
"""A node nobody measured is neither better nor worse than the middle."""


def signal_for(shape: Shape) -> str:
    return "interference/prod" if shape.is_prod else "interference/other"


class InterferenceAware(ShapeScore):
    name = "InterferenceAware"

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def applies(self, shape: Shape, cluster: Snapshot) -> bool:
        return signal_for(shape) in cluster.signals

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        percent = cluster.signal(signal_for(shape), rows)
        found: Ints = np.where(percent == UNSET, _UNKNOWN, 100 - np.clip(percent, 0, 100))
        return found
