"""A scenario as data: what is there, what happens when, and what must hold. Times in milliseconds from the start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from cotenant_gateway.core.yaml_source import Document
from cotenant_simulator.core.courses import Courses

SERVICES: Final = ("gateway", "scheduler", "quota", "profiler", "descheduler")
"""In the order in which they start."""
AGENT: Final = "agent"
BUS: Final = "bus"
Resources = Mapping[str, int]


class FaultKind(StrEnum):
    CRASH = "crash"
    """The process dies; what it had not written is lost. It starts again when the fault ends."""
    PAUSE = "pause"
    """It neither hears nor speaks, and loses nothing."""
    PARTITION = "partition"
    """The network parts it from the bus; what is said meanwhile and not stored is lost to it."""
    DUPLICATE = "duplicate"
    DELAY = "delay"
    REORDER = "reorder"


@dataclass(frozen=True, slots=True)
class Apply:
    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    kind: str
    namespace: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    objects: tuple[ObjectRef, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What something wants to use. None: not said."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SetUsage:
    """``pods`` by ``namespace/name``; ``node`` is whose system ``system`` is."""

    node: str | None
    system: Demand | None
    pods: Mapping[str, Demand]


@dataclass(frozen=True, slots=True)
class Signal:
    """What the node's instruments show for one pod, whatever the simulated kernel gives."""

    node: str | None
    pod: str
    cpi: float | None = None
    psi_cpu_some: float | None = None
    psi_memory_some: float | None = None
    sched_wait_ms: float | None = None
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    node: str


@dataclass(frozen=True, slots=True)
class Fault:
    """``node`` belongs to the agent; ``delay_ms`` to the kind ``delay``."""

    service: str
    kind: FaultKind
    node: str | None = None
    delay_ms: int = 200

    @property
    def target(self) -> str:
        return f"{AGENT}/{self.node}" if self.service == AGENT else self.service


Verb = Apply | Remove | SetUsage | Signal | Silence | Fault


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline; ``until_ms`` None: it holds to the end."""

    at_ms: int
    verb: Verb
    line: int
    until_ms: int | None = None


Comparison = Literal["equals", "atLeast", "atMost"]


@dataclass(frozen=True, slots=True)
class Check:
    """One field of the subject, such as ``phase`` or ``runtime.cpu``, and what it must be."""

    path: tuple[str, ...]
    comparison: Comparison
    value: Any


@dataclass(frozen=True, slots=True)
class Expectation:
    """``written`` is the entry as it stands in the file. ``subject`` is one of SUBJECTS; ``key`` names which."""

    at_ms: int
    subject: str
    key: str
    checks: tuple[Check, ...]
    written: Mapping[str, Any]
    line: int
    events: Mapping[str, str] = field(default_factory=dict)
    """For ``count``: what an event must look like to be counted."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    seed: int
    duration_ms: int
    overrides: Mapping[str, Mapping[str, Any]]
    """Settings by service."""
    objects: tuple[Document, ...]
    timeline: Sequence[Entry]
    expect: Sequence[Expectation]
    source: str
    """The file's name, for messages."""
    warnings: Sequence[str] = ()
    courses: Courses = field(default_factory=dict)
    """The tables that ``cotenant.io/sim-usage`` names, read."""
