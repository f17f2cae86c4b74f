"""The memory limit of the best-effort group: what is promised to nobody else, and never less than what it uses."""

from collections.abc import Mapping
from dataclasses import dataclass

from cotenant_agent.adapters.ports import NodePorts
from cotenant_agent.app.placed import Placed
from cotenant_agent.cgroup.files import UNLIMITED, Knob
from cotenant_agent.cgroup.writer import KnobChange
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.isolation import be_memory_limit
from cotenant_common.model.resources import MEMORY


@dataclass(slots=True)
class BeMemory:
    """``pods`` is the enforcer's own table; ``used_bytes`` is None until the group was measured."""

    ports: NodePorts
    settings: AgentSettings
    pods: Mapping[str, Placed]
    group: str
    used_bytes: int | None = None

    def wish(self, *, frozen: bool) -> KnobChange:
        promised = sum(p.plan.pod.requests.get(MEMORY, 0) for p in self.pods.values() if not p.best_effort)
        limit = be_memory_limit(
            self.ports.facts.capacity[MEMORY],
            promised + self.settings.reserved_memory_bytes,
            self.settings.be_memory_reserve_percent,
        )
        # A limit under what is in use would kill by the kernel's choice; eviction chooses with reasons.
        limit = max(limit, self.used_bytes or 0, self._present() if frozen else 0)
        return KnobChange(self.group, Knob.MEMORY_MAX, limit, "memory promised to others")

    def _present(self) -> int:
        """In a freeze the limit only grows."""
        tree = self.ports.tree
        if tree is None:
            return 0
        current = tree.read(self.group, Knob.MEMORY_MAX)
        return self.ports.facts.capacity[MEMORY] if current is None or current == UNLIMITED else int(current)
