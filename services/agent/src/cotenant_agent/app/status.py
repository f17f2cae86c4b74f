"""One pod's story as the node tells it: container states in, the record of the bucket out."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cotenant_agent.runtime import ContainerState
from cotenant_common.contracts.messages.state import Binding, ContainerStatus, PodPhase, PodStatusRecord
from cotenant_common.model.reasons import ReasonCode

_MESSAGE_CHARS = 2_048


@dataclass(frozen=True, slots=True)
class PodView:
    """What the record is made from. `waiting` holds why a container is not running, by name."""

    binding: Binding
    phase: PodPhase
    ready: bool = False
    rejected: bool = False
    reason: str | None = None
    message: str | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    exit_code: int | None = None
    containers: tuple[ContainerState, ...] = ()
    waiting: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def terminal(self) -> bool:
        return self.phase in {"Succeeded", "Failed", "Deleted"}

    def changed(self, **fields: Any) -> "PodView":
        return replace(self, **fields)


def record_of(view: PodView) -> PodStatusRecord:
    binding = view.binding
    return PodStatusRecord(
        uid=binding.uid,
        namespace=binding.namespace,
        name=binding.name,
        node=binding.node,
        phase=view.phase,
        ready=view.ready,
        reason=view.reason,
        message=_shortened(view.message),
        attempt=binding.attempt,
        rejected=view.rejected,
        restarts=sum(state.attempt for state in view.containers),
        bound_ms=binding.bound_ms,
        started_ms=view.started_ms,
        finished_ms=view.finished_ms,
        exit_code=view.exit_code,
        run_as=view.containers[0].run_as if view.containers else None,
        containers=[_container(state, view.waiting.get(state.container)) for state in view.containers],
        warnings=[warning[:_MESSAGE_CHARS] for warning in view.warnings],
    )


def _shortened(message: str | None) -> str | None:
    """A refusal may quote a whole manifest; a record over the bus's limit would hold up those of all other pods."""
    if message is None or len(message) <= _MESSAGE_CHARS:
        return message
    return f"{message[:_MESSAGE_CHARS]}…"


def _container(state: ContainerState, waiting: str | None) -> ContainerStatus:
    stopped: Literal["Waiting", "Terminated"] = "Terminated" if waiting is None else "Waiting"
    return ContainerStatus(
        name=state.container,
        state="Running" if state.running else stopped,
        pid=state.pid if state.running else None,
        restarts=state.attempt,
        exit_code=state.exit_code,
        signal=state.signal,
        reason=None if state.running else end_reason(state).value,
        message=_shortened(waiting or state.reason or None),
        started_ms=state.started_at_ms,
        finished_ms=state.finished_at_ms,
    )


def end_reason(state: ContainerState) -> ReasonCode:
    if state.oom_killed:
        return ReasonCode.OOM_KILLED
    if state.status_code is None:
        return ReasonCode.EXIT_STATUS_UNKNOWN
    return ReasonCode.COMPLETED if state.status_code == 0 else ReasonCode.FAILED


def end_message(states: Iterable[ContainerState]) -> str:
    """The first container that did not succeed speaks for the pod."""
    for state in states:
        if state.status_code != 0:
            if state.oom_killed:
                return f"container {state.container} was killed at its memory limit"
            if state.signal is not None:
                return f"container {state.container} was ended by signal {state.signal}"
            return f"container {state.container} {state.reason or f'exited with {state.exit_code}'}"
    return "all containers exited with 0"
