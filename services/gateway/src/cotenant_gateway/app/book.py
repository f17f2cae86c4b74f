"""What the gate remembers of removals. Specs hold most of it; a pod that never comes back takes its memory along."""

from collections.abc import Iterable
from typing import Any

from cotenant_common.runtime.audit import Drift
from cotenant_gateway.core.limits import removals_of
from cotenant_gateway.core.records import PodState, Spec
from cotenant_gateway.core.removal import Removal


class RemovalBook:
    """By uid: a pod is removed once. Kept for ``memory_ms``, the longest time over which anything counts."""

    def __init__(self, memory_ms: int) -> None:
        self._memory_ms = memory_ms
        self._entries: dict[str, Removal] = {}

    def on_spec(self, _key: str, _before: Spec | None, after: Spec | None) -> None:
        if after is not None and after.kind == "Pod" and (after.deletion is not None or after.evicted):
            self.add(removals_of(PodState(after)))

    def add(self, removals: Iterable[Removal]) -> None:
        for removal in removals:
            self._entries.setdefault(removal.uid, removal)

    def recent(self, now_ms: int) -> list[Removal]:
        """Forgets what is too old on the way."""
        since_ms = now_ms - self._memory_ms
        if any(removal.at_ms <= since_ms for removal in self._entries.values()):
            self._entries = {uid: entry for uid, entry in self._entries.items() if entry.at_ms > since_ms}
        return list(self._entries.values())

    def audit(self, pods: Iterable[PodState], now_ms: int) -> list[Drift]:
        """What the specs hold and the book does not, or holds otherwise; the specs are right."""
        drifts = []
        self.recent(now_ms)
        for pod in pods:
            for actual in removals_of(PodState(pod.spec)):
                believed = self._entries.get(actual.uid)
                if actual.at_ms > now_ms - self._memory_ms and believed != actual:
                    self._entries[actual.uid] = actual
                    drifts.append(Drift("removals", pod.spec.object, _shown(believed), _shown(actual), actual.uid))
        return drifts


def _shown(removal: Removal | None) -> dict[str, Any] | None:
    if removal is None:
        return None
    return {"kind": removal.kind, "node": removal.node, "workload": removal.workload, "at_ms": removal.at_ms}
