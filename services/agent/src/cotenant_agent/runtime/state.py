"""What is known of a container, as its shim records it and a restarted agent reads it back."""

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

ProcessKey = tuple[int, int]
"""A pid and its start time in clock ticks since boot: numbers are reused, the pair is not."""


class ContainerPhase(StrEnum):
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class ContainerState:
    """Exactly one of `exit_code` and `signal` is set once a container ended, unless nobody saw it end.

    `exit_status_known` is False from the moment its shim was lost; `reason` then says so.
    `oom_killed` is None where no memory group counts kills. `run_as` is for people.
    """

    uid: str
    namespace: str
    pod: str
    container: str
    phase: ContainerPhase
    attempt: int
    boot_id: str
    shim_pid: int
    shim_start_ticks: int
    run_as: str
    log_max_bytes: int
    log_files: int
    pid: int | None = None
    pid_start_ticks: int | None = None
    pipe_inode: int | None = None
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None
    exit_status_known: bool = True
    log_dropped_bytes: int = 0
    reason: str = ""

    @property
    def running(self) -> bool:
        return self.phase is ContainerPhase.RUNNING

    @property
    def status_code(self) -> int | None:
        """The exit code as Kubernetes reports it: 128 + n for signal n; None when running or unknown."""
        return 128 + self.signal if self.signal is not None else self.exit_code

    @property
    def ran_ms(self) -> int | None:
        if self.started_at_ms is None or self.finished_at_ms is None:
            return None
        return max(0, self.finished_at_ms - self.started_at_ms)


class StateUnreadableError(Exception):
    """A state file that is not what a shim writes."""


_FIELDS = {field.name for field in fields(ContainerState)}


def encode(state: ContainerState) -> bytes:
    return json.dumps({name: getattr(state, name) for name in sorted(_FIELDS)}).encode()


def decode(text: bytes) -> ContainerState:
    """Fields that a newer shim adds are passed over, so that a downgraded agent still adopts."""
    try:
        found: dict[str, Any] = json.loads(text)
        known = {name: value for name, value in found.items() if name in _FIELDS}
        return ContainerState(**{**known, "phase": ContainerPhase(found["phase"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateUnreadableError(f"not a container state ({error}): {text[:120]!r}") from error


def read(path: Path) -> ContainerState | None:
    """None when there is no record: never started, or removed."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None


def write(path: Path, state: ContainerState) -> None:
    """For the agent, and only once the shim that owned the file is dead."""
    spare = path.with_name(path.name + ".agent")
    spare.write_bytes(encode(state))
    spare.replace(path)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """None for a process that is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    rest = stat.rpartition(b")")[2].split()
    return None if rest[0] in (b"Z", b"X") else int(rest[19])


def alive(key: ProcessKey) -> bool:
    return start_ticks(key[0]) == key[1]
