"""What quota needs to know of a pod that is neither ended nor gone."""

from dataclasses import dataclass

from cotenant_common.model.resources import ResourceList


@dataclass(frozen=True, slots=True)
class Gang:
    """The pod group of a pod. Below ``min_member`` running members none of them is of use."""

    name: str
    min_member: int


@dataclass(frozen=True, slots=True)
class PodFacts:
    """``evictable`` is false for what the eviction gate would never let go. ``leaving_until_ms`` is when a pod that is
    being stopped has to be gone."""

    uid: str
    namespace: str
    quota_label: str | None
    request: ResourceList
    assigned: bool
    preemptible: bool = True
    name: str = ""
    node: str | None = None
    priority: int = 0
    sub_priority: int = 0
    since_ms: int = 0
    evictable: bool = True
    gang: Gang | None = None
    leaving_until_ms: int | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def charged_like(self, other: "PodFacts") -> bool:
        """Whether the two make the same charge."""
        return (self.namespace, self.quota_label, self.request, self.assigned, self.preemptible) == (
            other.namespace,
            other.quota_label,
            other.request,
            other.assigned,
            other.preemptible,
        )
