"""Which faults, to whom, when: drawn from a seed, so that a run that failed can be run again."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

NATS: Final = "nats-server"


class FaultKind(StrEnum):
    KILL = "kill"
    """``kill -9``, and started again after ``lasts_s``."""
    PAUSE = "pause"
    """Stopped as a starved machine stops it, then continued."""
    CUT = "cut"
    """Cut off from nats-server, then connected again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``at_once`` is another member that is killed at the same moment."""

    kind: FaultKind
    member: str
    after_s: float
    lasts_s: float
    at_once: str | None = None

    def __str__(self) -> str:
        also = f" and {self.at_once}" if self.at_once else ""
        return f"{self.kind} {self.member}{also} for {self.lasts_s:.1f} s"


_WEIGHTS: Final = {FaultKind.KILL: 6, FaultKind.CUT: 2, FaultKind.PAUSE: 2}
_TWO_AT_ONCE: Final = 0.25
_LONGEST_S: Final = 3.0


def draw(count: int, seed: int, members: Sequence[str]) -> list[Fault]:
    """``members`` without nats-server, which is among the targets of a kill."""
    random = Random(seed)  # noqa: S311 - a schedule, not a secret
    kinds = list(_WEIGHTS)
    faults = []
    for _ in range(count):
        kind = random.choices(kinds, weights=[_WEIGHTS[kind] for kind in kinds])[0]
        member = random.choice([*members, NATS] if kind is FaultKind.KILL else list(members))
        other = random.choice([name for name in [*members, NATS] if name != member])
        both = kind is FaultKind.KILL and random.random() < _TWO_AT_ONCE
        faults.append(
            Fault(
                kind,
                member,
                after_s=round(random.uniform(0.1, 1.5), 2),
                lasts_s=round(random.uniform(0.0, _LONGEST_S), 2),
                at_once=other if both else None,
            )
        )
    return faults
