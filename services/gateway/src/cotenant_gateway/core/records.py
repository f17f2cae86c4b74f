"""The gateway's own picture of what is wanted, what is seen, and the writes that a decision asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotenant_common.model.ids import object_key, spec_key
from cotenant_common.model.pod import Pod, parse_pod

Manifest = Mapping[str, Any]

MAX_EVICTIONS_KEPT: Final = 10
TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed", "Deleted"})


@dataclass(frozen=True, slots=True)
class Mark:
    """A deletion mark. ``kind`` names the forced removal; None is a user's or a controller's delete."""

    at_ms: int
    grace_ms: int
    reason: str
    message: str
    requested_by: str
    requeue: bool = False
    command_id: str | None = None
    kind: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def forced(self) -> bool:
        return self.kind is not None


@dataclass(frozen=True, slots=True)
class PastEviction:
    """A forced removal of an earlier incarnation."""

    at_ms: int
    uid: str
    node: str | None
    reason: str
    message: str
    requested_by: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spec:
    """One object as stored; ``tells`` are the event types that the write which made it announces."""

    kind: str
    namespace: str | None
    name: str
    uid: str
    created_ms: int
    manifest: Manifest
    incarnation: int = 0
    generation: int = 1
    owner: str | None = None
    deletion: Mark | None = None
    terminal_ms: int | None = None
    requeued_from: str | None = None
    requeue_reason: str | None = None
    evicted: tuple[PastEviction, ...] = ()
    tells: tuple[str, ...] = ()
    _parsed: Pod | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        return spec_key(self.kind, self.namespace, self.name)

    @property
    def object(self) -> str:
        return object_key(self.kind, self.namespace, self.name)

    @property
    def metadata(self) -> Manifest:
        return self.manifest.get("metadata") or {}

    @property
    def body(self) -> Manifest:
        return self.manifest.get("spec") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations") or {}

    @property
    def owner_uid(self) -> str | None:
        """Which incarnation of the owner made this; a name alone may belong to another one by now."""
        references = self.metadata.get("ownerReferences") or ()
        return next((str(r["uid"]) for r in references if r.get("controller") and r.get("uid")), None)

    def pod(self) -> Pod:
        """Parsed once: a list of 4,000 pods is mostly their quantities."""
        if self._parsed is None:
            parsed = parse_pod(
                self.manifest,
                uid=self.uid,
                created_ms=self.created_ms,
                incarnation=self.incarnation,
                deleting=self.deletion is not None,
            )
            object.__setattr__(self, "_parsed", parsed)
            return parsed
        return self._parsed

    def changed(self, manifest: Manifest, *tells: str) -> "Spec":
        """The next generation of the same object."""
        return replace(self, manifest=manifest, generation=self.generation + 1, tells=tells)

    def marked(self, mark: Mark, *tells: str) -> "Spec":
        return replace(self, deletion=mark, tells=tells)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a node said of one pod."""

    uid: str
    node: str
    phase: str
    ready: bool = False
    reason: str | None = None
    message: str | None = None
    rejected: bool = False
    restarts: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None
    exit_code: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def terminal(self) -> bool:
        """Nothing of the pod runs any more. A refused binding is no end: the pod is tried elsewhere."""
        return self.phase in TERMINAL_PHASES and not self.rejected


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod's spec beside what is known of its run; None is *unknown*."""

    spec: Spec
    seen: Seen | None = None
    bound_node: str | None = None

    @property
    def node(self) -> str | None:
        return self.bound_node or (self.seen.node if self.seen and not self.seen.rejected else None)

    @property
    def ready(self) -> bool:
        return self.seen is not None and self.seen.ready and not self.seen.terminal

    @property
    def finished(self) -> bool:
        return self.spec.terminal_ms is not None or (self.seen is not None and self.seen.terminal)

    @property
    def leaving(self) -> bool:
        return self.spec.deletion is not None


@dataclass(frozen=True, slots=True)
class Put:
    """Write this spec. Creating (``old`` None) expects absence; changing expects the revision ``old`` came with."""

    spec: Spec
    old: Spec | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """``tells`` come before the ``deleted`` event that every removal announces."""

    spec: Spec
    tells: tuple[str, ...] = ()
    reason: str | None = None
    message: str = ""


Change = Put | Remove
