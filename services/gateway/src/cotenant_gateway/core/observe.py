"""Where the system only looks: nothing is evicted, capped or written there, and what would have been is reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant_common.model.ids import is_dns_subdomain
from cotenant_gateway.core.records import PodState

NODES: Final = "nodes"
NAMESPACES: Final = "namespaces"
EVERYTHING: Final = "everything"


@dataclass(frozen=True, slots=True)
class Observing:
    """``nodes`` and ``namespaces`` in the order of their names."""

    everything: bool = False
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.everything or bool(self.nodes or self.namespaces)

    def node(self, name: str) -> bool:
        return self.everything or name in self.nodes

    def scope_of(self, pod: PodState) -> str | None:
        """What makes this pod a matter of looking only."""
        if self.everything:
            return "everything"
        if pod.node in self.nodes:
            return f"node {pod.node}"
        if pod.spec.namespace in self.namespaces:
            return f"namespace {pod.spec.namespace}"
        return None

    def more(self, other: "Observing") -> "Observing":
        return Observing(
            self.everything or other.everything,
            tuple(sorted({*self.nodes, *other.nodes})),
            tuple(sorted({*self.namespaces, *other.namespaces})),
        )

    def less(self, other: "Observing") -> "Observing":
        return Observing(
            self.everything and not other.everything,
            tuple(name for name in self.nodes if name not in other.nodes),
            tuple(name for name in self.namespaces if name not in other.namespaces),
        )

    def to_data(self) -> dict[str, str]:
        """As a ConfigMap keeps it."""
        data = {EVERYTHING: "true"} if self.everything else {}
        data |= {NODES: ",".join(self.nodes)} if self.nodes else {}
        return data | ({NAMESPACES: ",".join(self.namespaces)} if self.namespaces else {})


def parse(data: Mapping[str, str]) -> Observing:
    """From a ConfigMap; names that can be none are left out, so that a typo observes less and never everything."""
    return Observing(data.get(EVERYTHING) == "true", _names(data.get(NODES)), _names(data.get(NAMESPACES)))


def _names(text: str | None) -> tuple[str, ...]:
    parts = {part.strip() for part in (text or "").split(",")}
    return tuple(sorted(part for part in parts if is_dns_subdomain(part)))
