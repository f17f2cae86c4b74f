"""What the engine says: a pod has a place, has none, or others have to go for it."""

from dataclasses import dataclass

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.room import Nomination
from cotenant_scheduler.core.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Placement:
    """Charged already; the caller makes it durable, or takes it back with ``release`` and ``submit``."""

    pod: PodRequest
    charge: Charge
    score: int
    feasible: int
    quota: str | None
    quota_chain: tuple[str, ...]
    scores: tuple[tuple[str, int], ...] = ()

    @property
    def node(self) -> str:
        return self.charge.node


@dataclass(frozen=True, slots=True)
class Refused:
    """All pods that got the same answer in this step."""

    pods: tuple[PodRequest, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Preemption:
    """The pod is nominated and its room held; the caller asks for the victims, all or none, and tells ``Room``."""

    nomination: Nomination


Decision = Placement | Refused | Preemption
