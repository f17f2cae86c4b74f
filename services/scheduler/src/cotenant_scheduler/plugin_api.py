"""All that a plugin from outside the package needs. The built-in plugins use nothing else."""

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import ABSENT, UNSET, Bools, Ints, Rows
from cotenant_scheduler.core.plugins.interface import (
    OUT,
    PASSED,
    Kernel,
    Parked,
    Plugin,
    PluginSet,
    PodFilter,
    PodScore,
    Preference,
    Reads,
    ShapeFilter,
    ShapePlugin,
    ShapeScore,
    Wake,
)
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import PodRequest, Shape
from cotenant_scheduler.core.snapshot import NodeFacts, Snapshot

__all__ = [
    "ABSENT",
    "OUT",
    "PASSED",
    "UNSET",
    "Bools",
    "Ints",
    "Kernel",
    "NodeFacts",
    "Parked",
    "Plugin",
    "PluginSet",
    "PodFilter",
    "PodRequest",
    "PodScore",
    "Preference",
    "Reads",
    "ReasonCode",
    "Refusal",
    "RefusalGroup",
    "Rows",
    "Shape",
    "ShapeFilter",
    "ShapePlugin",
    "ShapeScore",
    "Snapshot",
    "Wake",
]
