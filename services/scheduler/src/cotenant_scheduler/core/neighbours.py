"""Placed pods by namespace and by the anti-affinity they hold, for the plugins that look at other pods."""

from collections.abc import Iterator

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.request import PodTerm


class Neighbours:
    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Charge]] = {}
        self._repelling: dict[str, Charge] = {}

    def add(self, charge: Charge) -> None:
        self._by_namespace.setdefault(charge.namespace, {})[charge.uid] = charge
        if charge.anti_affinity:
            self._repelling[charge.uid] = charge

    def remove(self, charge: Charge) -> None:
        self._by_namespace.get(charge.namespace, {}).pop(charge.uid, None)
        self._repelling.pop(charge.uid, None)

    @property
    def repelling(self) -> dict[str, Charge]:
        """Pods whose own anti-affinity keeps others away."""
        return self._repelling

    def matching(self, term: PodTerm) -> Iterator[Charge]:
        namespaces = sorted(self._by_namespace) if term.namespaces is None else term.namespaces
        for namespace in namespaces:
            for charge in self._by_namespace.get(namespace, {}).values():
                if term.matches(namespace, dict(charge.labels)):
                    yield charge
