"""When a level becomes an event: only a lasting change is news."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Change(StrEnum):
    NONE = "none"
    BEGAN = "began"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Watched:
    """`on` is what was last announced; `streak` counts samples that say otherwise."""

    on: bool = False
    streak: int = 0


def observe(state: Watched, level: bool, begin_after: int, end_after: int) -> tuple[Watched, Change]:
    if level is state.on:
        return state if state.streak == 0 else replace(state, streak=0), Change.NONE
    streak = state.streak + 1
    if streak < (end_after if state.on else begin_after):
        return replace(state, streak=streak), Change.NONE
    return Watched(level), Change.BEGAN if level else Change.ENDED
