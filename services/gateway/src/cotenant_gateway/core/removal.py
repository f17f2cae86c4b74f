"""What a forced removal is asked with, judged by and answered with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core.budgets import Budget
from cotenant_gateway.core.observe import Observing
from cotenant_gateway.core.records import PodState, Put, Spec


@dataclass(frozen=True, slots=True)
class Caps:
    """Forced removals allowed within ``window_ms``; None is no cap."""

    per_node: int | None = None
    per_namespace: int | None = None
    per_workload: int | None = None
    total: int | None = None
    window_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Koordinator's migration limits; they bind moves only. ``expected_replicas`` protects the last replica.

    ``per_node``, ``per_namespace`` and ``total`` count pods that are on their way at one time; None is no limit.
    """

    cool_down_ms: int = 300_000
    per_node: int | None = 2
    per_namespace: int | None = None
    total: int | None = None
    max_migrating: int | str | None = None
    max_unavailable: int | str | None = None
    expected_replicas: bool = True


@dataclass(frozen=True, slots=True)
class GateSettings:
    caps: Caps = Caps()
    moves: MoveLimits = MoveLimits()
    emergency_pause_ms: int = 10_000
    """Overrides of a budget on one node come one at a time, and not faster than this."""
    drains_per_node: int = 10
    """Drained pods that may be on their way out of one node at a time."""
    promise_ms: int = 60_000
    """How long freed room is kept for its beneficiary after the victim's own grace."""

    @property
    def memory_ms(self) -> int:
        """How far back a removal still counts."""
        return max(self.caps.window_ms, self.moves.cool_down_ms, self.emergency_pause_ms)


@dataclass(frozen=True, slots=True)
class Victim:
    uid: str
    namespace: str
    name: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    kind: str
    victims: tuple[Victim, ...]
    requested_by: str
    reason: str
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    beneficiary: str | None = None
    landing_node: str | None = None
    landing_reservation: str | None = None
    grace_ms: int | None = None
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller's wish; bare pods have none."""

    object: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Place:
    """A node as a place to land on. ``closed`` says why nothing new goes there; None while it is open."""

    closed: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation as its owner reports it; ``node`` is None while it has no place."""

    phase: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """A forced removal that happened."""

    uid: str
    command_id: str | None
    kind: str
    node: str
    namespace: str
    workload: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the gate looks at. ``pods`` by uid, all current incarnations; ``past`` also of pods that are gone since."""

    pods: Mapping[str, PodState]
    budgets: Sequence[Budget] = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    reservations: Mapping[str, Held] = field(default_factory=dict)
    past: Sequence[Removal] = ()
    frozen: str | None = None
    observing: Observing = field(default_factory=Observing)


@dataclass(frozen=True, slots=True)
class Refusal:
    """``retry_ms``: when the same request may fare better, nothing else changed; None where time changes nothing."""

    reason: ReasonCode
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    victim: Victim
    refusal: Refusal | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """``changes`` are the deletion marks, one batch. ``replay`` marks an answer that was given before."""

    granted: bool
    message: str
    verdicts: tuple[Verdict, ...]
    refusal: Refusal | None = None
    changes: tuple[Put, ...] = ()
    replay: bool = False
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> ReasonCode | None:
        return self.refusal.reason if self.refusal is not None else None


def workload_of(spec: Spec) -> str:
    """The controller, or the pod itself: what a cool-down belongs to."""
    return spec.owner or spec.object


def name_of(pod: PodState) -> str:
    return f"{pod.spec.namespace}/{pod.spec.name}"
