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

    def refusal(self, covered: Sequence[PodState], victims: Sequence[PodState], expected: int) -> str | None:
        """Why these victims together are too many, or None. ``covered`` includes them."""
        wanted = self.wanted_healthy(expected)
        healthy = sum(pod.ready and not pod.leaving for pod in covered)
        serving = sum(pod.ready for pod in victims)
        always = self.spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if serving == 0 and (always or healthy >= wanted):
            return None  # pods that serve nobody leave freely while the others suffice
        if healthy - serving >= wanted:
            return None
        return (
            f"PodDisruptionBudget {self.namespace}/{self.name} wants {wanted} healthy pods; {healthy} are, "
            f"and {len(victims)} would go"
        )


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
