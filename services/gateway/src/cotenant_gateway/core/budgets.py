"""How many pods may be missing: disruption budgets as Kubernetes counts them, migration limits as Koordinator does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant_gateway.core.records import PodState
from cotenant_gateway.core.validate.meta import selector_matches

_MANY: Final = 10
_SOME: Final = 4


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget."""

    namespace: str
    name: str
    spec: Mapping[str, Any]

    def covers(self, pod: PodState) -> bool:
        # Unlike elsewhere, an absent selector of a budget selects nothing (policy/v1).
        selector = self.spec.get("selector")
        return (
            pod.spec.namespace == self.namespace
            and selector is not None
            and selector_matches(selector, pod.spec.labels)
        )

    def wanted_healthy(self, expected: int) -> int:
        """``expected`` is what the controllers want; both percentages round up."""
        least = self.spec.get("minAvailable")
        if least is not None:
            return scaled(least, expected, round_up=True)
        return expected - scaled(self.spec.get("maxUnavailable", 0), expected, round_up=True)

    def shortfall(self, covered: Sequence[PodState], victims: Sequence[PodState], expected: int) -> "Shortfall | None":
        """What is missing when these victims together are too many, or None. ``covered`` includes them."""
        wanted = self.wanted_healthy(expected)
        healthy = sum(pod.ready and not pod.leaving for pod in covered)
        serving = sum(pod.ready for pod in victims)
        always = self.spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if serving == 0 and (always or healthy >= wanted):
            return None  # pods that serve nobody leave freely while the others suffice
        if healthy - serving >= wanted:
            return None
        return Shortfall(f"{self.namespace}/{self.name}", wanted, healthy, len(victims), expected)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The sum behind a refusal: ``going`` victims from ``healthy`` pods leave fewer than ``wanted``."""

    budget: str
    wanted: int
    healthy: int
    going: int
    expected: int

    def __str__(self) -> str:
        return (
            f"PodDisruptionBudget {self.budget} wants {self.wanted} healthy pods; {self.healthy} are, "
            f"and {self.going} would go"
        )

    @property
    def numbers(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "wanted_healthy": self.wanted,
            "healthy": self.healthy,
            "victims": self.going,
            "expected": self.expected,
        }


def scaled(value: int | str, total: int, *, round_up: bool) -> int:
    if isinstance(value, int):
        return value
    numerator = int(value.removesuffix("%")) * total
    return -(-numerator // 100) if round_up else numerator // 100


def migration_limit(replicas: int, value: int | str | None) -> int:
    """Koordinator's ``maxUnavailable`` and ``maxMigrating``: percentages round down; at least 1, at most all."""
    if value is not None:
        limit = scaled(value, replicas, round_up=False)
    elif replicas > _MANY:
        limit = replicas * 10 // 100
    else:
        limit = 2 if replicas >= _SOME else 1
    return min(max(limit, 1), replicas)
