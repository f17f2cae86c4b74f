"""Taints and tolerations by Kubernetes' rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    key: str
    value: str = ""
    effect: str = NO_SCHEDULE

    @property
    def forbids(self) -> bool:
        return self.effect in (NO_SCHEDULE, NO_EXECUTE)

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty key tolerates every key, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


def parse_taints(section: Sequence[Mapping[str, Any]] | None) -> tuple[Taint, ...]:
    """Sorted, so that two nodes with the same taints share one entry of the snapshot."""
    return tuple(
        sorted(
            Taint(str(each["key"]), str(each.get("value") or ""), str(each.get("effect") or NO_SCHEDULE))
            for each in section or ()
        )
    )


def parse_tolerations(section: Sequence[Mapping[str, Any]] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            str(each.get("key") or ""),
            str(each.get("operator") or "Equal"),
            str(each.get("value") or ""),
            str(each.get("effect") or ""),
        )
        for each in section or ()
    )


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], *, forbidding: bool) -> list[Taint]:
    """Taints nobody tolerates: those that forbid, or those that only advise (PreferNoSchedule)."""
    return [
        taint
        for taint in taints
        if taint.forbids == forbidding and not any(each.tolerates(taint) for each in tolerations)
    ]
