"""What a user may choose about the demo."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cotenant.errors import BadInputError

QUICK_SEGMENT_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """``arm_seconds`` of load per arm are split over the rounds: more rounds even a noisy machine out, none costs time.

    ``quick`` is one short round: enough to see that all works, too little for figures to hold.
    """

    rounds: int = 2
    arm_seconds: float = 36.0
    quick: bool = False
    yes: bool = False
    seed: int = 1
    output_dir: Path = Path()
    examples: Path | None = None

    @property
    def segment_s(self) -> float:
        return self.arm_seconds / max(self.rounds, 1)

    def arguments(self) -> list[str]:
        """The same choices for `python -m cotenant.demo`."""
        named = ["--rounds", str(self.rounds), "--seed", str(self.seed), "--output-dir", str(self.output_dir)]
        named += ["--examples", str(self.examples)] if self.examples else []
        return [*named, *(["--quick"] if self.quick else []), *(["--yes"] if self.yes else [])]

    def checked(self) -> "DemoOptions":
        """Raise BadInputError for what cannot work."""
        if self.quick:
            return replace(self, rounds=1, arm_seconds=QUICK_SEGMENT_S)
        if self.rounds < 1 or self.segment_s < 3:
            raise BadInputError(
                f"{self.rounds} rounds for {self.arm_seconds:g} s of load per arm: expected at least 1 round of 3 s"
            )
        return self
