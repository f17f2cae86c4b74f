"""Looks after every write that could break an invariant, and keeps the first few that did."""

from dataclasses import dataclass
from typing import Final

from cotenant_common.bus.protocol import Entry
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.model import resources
from cotenant_common.testing.context import EPOCH_MS
from cotenant_scheduler.app import SchedulerService
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.core import invariants
from cotenant_simulator.recorder import Json, Recorder

_ENOUGH: Final = 5


@dataclass(frozen=True, slots=True)
class Violation:
    t_ms: int
    message: str


class Watch:
    """Checks at each write of a binding; ``look`` checks what only shows between writes."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self.violations: list[Violation] = []
        self._cluster = cluster
        self._recorder = recorder
        self._pods: dict[str, None] = {}
        cluster.server.store(buckets.BINDINGS).listeners.append(self._on_binding)

    def _on_binding(self, entry: Entry) -> None:
        if entry.value is not None and not buckets.is_bookkeeping(entry.key):
            self._note(self._of_bindings(codec.decode(Binding, entry.value)))

    def _of_bindings(self, written: Binding) -> list[str]:
        """A max may be lowered under what is used: only adding to it is wrong."""
        view = self._recorder.ledger()
        added = written.quota_chain or ([written.quota] if written.quota else [])
        limits = {name: limits for name, limits in _limits(view.quotas).items() if name in added}
        return [
            *invariants.over_allocatable(view.charged, view.allocatable),
            *invariants.over_quota(view.charged, limits),
        ]

    def look(self) -> None:
        view = self._recorder.ledger()
        running = {name: list(node.machine.tenants) for name, node in self._cluster.nodes.items()}
        told = [
            event["object"].partition("/")[2] for event in self._recorder.events() if event["type"] == "pod.deleted"
        ]
        self._note(
            [
                *invariants.bound_twice(view.bound),
                *invariants.running_twice(running),
                *invariants.vanished(self._pods, view.pods, told),
            ]
        )
        self._pods |= dict.fromkeys(view.pods)

    def finish(self, outcome: Json) -> None:
        """Everything has been well for a while: who waits knows why, and the scheduler's ledger is the truth."""
        self._note([*invariants.unaccounted(outcome["pods"]), *self._of_ledger(outcome["quotas"])])

    def _of_ledger(self, quotas: dict[str, dict[str, dict[str, int]]]) -> list[str]:
        service = self._cluster.hosts["scheduler"].service
        believed = service.debug_state().get("quotas") if isinstance(service, SchedulerService) else None
        # Only what has a max is held to one, so only that is in the scheduler's ledger.
        bounded = {
            name: {key: amount for key, amount in quota["used"].items() if key in quota["max"]}
            for name, quota in quotas.items()
        }
        return invariants.drifted(believed or {}, bounded)

    def _note(self, messages: list[str]) -> None:
        now_ms = self._cluster.clock.now_ms() - EPOCH_MS
        known = [one.message for one in self.violations]
        for message in messages:
            if message not in known and len(self.violations) < _ENOUGH:
                self.violations.append(Violation(now_ms, message))


def _limits(quotas: dict[str, dict[str, object]]) -> dict[str, dict[str, int]]:
    """The maxima as the user wrote them."""
    return {
        name: {key: resources.parse(key, str(amount)) for key, amount in limits.items()}
        for name, limits in quotas.items()
    }
