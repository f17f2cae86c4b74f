"""What runs when: arms, load steps, neighbours. Plain data, decided before anything starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MIB: Final = 1024 * 1024
NEIGHBOUR_MEMORY_BYTES: Final = 128 * MIB
BALLOON_LIMIT_BYTES: Final = 2048 * MIB
KINDS: Final = ("compress", "hash", "sort", "solve")
GREEDY: Final = "greedy"
LOAD_SHARES: Final = (0.10, 0.40, 0.20)


class Arm(StrEnum):
    ALONE = "alone"
    UNCONTROLLED = "uncontrolled"
    WEIGHTS = "weights"
    COTENANT = "cotenant"


ARM_TITLES: Final = {
    Arm.ALONE: "alone",
    Arm.UNCONTROLLED: "uncontrolled: equal weights",
    Arm.WEIGHTS: "minimal weight, no controller",
    Arm.COTENANT: "Cotenant",
}


@dataclass(frozen=True, slots=True)
class Segment:
    number: int
    round: int
    arm: Arm


@dataclass(frozen=True, slots=True)
class Neighbour:
    """``granted_memory_bytes`` is what it asks for, and all that it may have where somebody checks."""

    name: str
    kind: str
    cpu_milli: int
    granted_memory_bytes: int = NEIGHBOUR_MEMORY_BYTES

    @property
    def work_kind(self) -> str:
        """The greedy one compresses; its calibrated rate is that of its work, not of its bad manners."""
        return "compress" if self.kind == GREEDY else self.kind


def segments(rounds: int) -> tuple[Segment, ...]:
    """Every second round runs backwards, so that a machine that drifts over minutes favours no arm.

    Cotenant never follows an arm that it does not control: a node that was just full has nothing to sell.
    """
    arms = [Arm.UNCONTROLLED, Arm.WEIGHTS, Arm.ALONE, Arm.COTENANT]
    ordered = [(number, arm) for number in range(rounds) for arm in (arms if number % 2 == 0 else arms[::-1])]
    return tuple(Segment(index, number + 1, arm) for index, (number, arm) in enumerate(ordered))


def load_steps(segment_s: float) -> str:
    """In the load generator's own notation: equal time at 10, 40 and 20 % of the machine."""
    return ",".join(f"{share * 100:g}:{segment_s / len(LOAD_SHARES):g}" for share in LOAD_SHARES)


def neighbours(cores: int) -> tuple[Neighbour, ...]:
    """More than the machine has cores, and asking for more than it has: some must wait where somebody counts.

    The greedy one comes second: early enough to be admitted, and not the only one where there is room for one.
    """
    asked_milli = neighbour_milli(cores)
    wanted = max(cores + 1, cores * 1000 // asked_milli + 1)
    kinds = [KINDS[index % len(KINDS)] for index in range(wanted - 1)]
    kinds.insert(1, GREEDY)
    return tuple(Neighbour(f"batch-{index}-{kind}", kind, asked_milli) for index, kind in enumerate(kinds))


def neighbour_milli(cores: int) -> int:
    """Each uses up to a core. Small requests give a small machine several to admit; a large one would get hundreds."""
    if cores <= 4:
        return 200
    return 600 if cores <= 16 else 900


def calibrators(cores: int) -> tuple[Neighbour, ...]:
    """One per core and at least one of each kind, so that a unit costs what it costs on a full machine."""
    wanted = math.ceil(max(cores, len(KINDS)) / len(KINDS)) * len(KINDS)
    kinds = [KINDS[index % len(KINDS)] for index in range(wanted)]
    return tuple(Neighbour(f"calibrate-{index}-{kind}", kind, 1000) for index, kind in enumerate(kinds))


def balloon_bytes(available_bytes: int) -> int:
    """A quarter of what is available, at most 2 GiB: enough to see, too little to bring the machine down."""
    return min(available_bytes // 4, BALLOON_LIMIT_BYTES) // MIB * MIB


def requested_milli(batch: Sequence[Neighbour]) -> int:
    return sum(neighbour.cpu_milli for neighbour in batch)
