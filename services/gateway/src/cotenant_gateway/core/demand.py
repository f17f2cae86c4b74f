"""How much may be asked for under a quota at all (Koordinator's quota admission): judged when a pod is created."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cotenant_common.model import resources
from cotenant_common.model.quota.spec import QuotaSpec
from cotenant_common.model.resources import ResourceList


@dataclass(slots=True)
class Demand:
    """``asked_of`` gives what the pods of a quota ask for by now; those that are let in here come on top."""

    asked_of: Callable[[str], ResourceList] = lambda _quota: {}
    _asked: dict[str, ResourceList] = field(default_factory=dict)

    def take(self, quota: QuotaSpec, request: ResourceList) -> str | None:
        """Why the quota lets nothing of this size in; None after it was counted."""
        if quota.admission is None:
            return None
        if quota.name not in self._asked:
            self._asked[quota.name] = self.asked_of(quota.name)
        asked = self._asked[quota.name]
        for name, most in sorted(quota.admission.items()):
            wanted = request.get(name, 0)
            if wanted > 0 and asked.get(name, 0) + wanted > most:
                parts = [resources.render(name, amount) for amount in (asked.get(name, 0), wanted, most)]
                return (
                    f"quota {quota.name} lets its pods ask for {parts[2]} {name}: {parts[0]} are asked for, "
                    f"and this one wants {parts[1]} more"
                )
        self._asked[quota.name] = resources.add(asked, request)
        return None
