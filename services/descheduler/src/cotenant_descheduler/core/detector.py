"""A node is acted upon only after it *stayed* hot; every node has counters of its own."""

from dataclasses import dataclass, replace
from enum import StrEnum

from cotenant_descheduler.core.classify import Heat


@dataclass(frozen=True, slots=True)
class AnomalyCondition:
    """Koordinator's names. ``consecutive_abnormalities`` N: the N+1st abnormal sample in a row raises the alarm."""

    consecutive_abnormalities: int = 5
    consecutive_normalities: int = 3
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Counters:
    abnormal: int = 0
    normal: int = 0
    anomalous_since_ms: int | None = None

    @property
    def anomalous(self) -> bool:
        return self.anomalous_since_ms is not None


class Transition(StrEnum):
    NONE = "none"
    HOT = "hot"
    COOLED = "cooled"


def mark(counters: Counters, heat: Heat, now_ms: int, condition: AnomalyCondition) -> tuple[Counters, Transition]:
    """Count one sample. An alarm without abnormal samples ends after ``timeout_ms`` or enough normal ones."""
    if heat is Heat.FINE:
        return _normal(counters, now_ms, condition)
    abnormal = counters.abnormal + 1
    if counters.anomalous:
        return replace(counters, abnormal=abnormal, normal=0, anomalous_since_ms=now_ms), Transition.NONE
    if abnormal > condition.consecutive_abnormalities or heat is Heat.DANGER:
        return Counters(abnormal, 0, now_ms), Transition.HOT
    return Counters(abnormal, 0, None), Transition.NONE


def _normal(counters: Counters, now_ms: int, condition: AnomalyCondition) -> tuple[Counters, Transition]:
    normal = counters.normal + 1
    since = counters.anomalous_since_ms
    if since is None:
        return Counters(0, normal, None), Transition.NONE
    if normal > condition.consecutive_normalities or now_ms - since >= condition.timeout_ms:
        return Counters(0, normal, None), Transition.COOLED
    return replace(counters, abnormal=0, normal=normal), Transition.NONE


def acted(counters: Counters) -> Counters:
    """After a removal the node must show again that it is hot: what left needs time to be felt."""
    return replace(counters, abnormal=0)
