"""Where one stack keeps its files, and what it says of itself there."""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cotenant.errors import BadInputError, RefusedError


@dataclass(frozen=True, slots=True)
class StackHome:
    """A directory that only its user can enter."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "stack.json"

    @property
    def lock(self) -> Path:
        return self.root / "stack.lock"

    @property
    def api_token(self) -> Path:
        return self.root / "api-token"

    @property
    def nats_token(self) -> Path:
        return self.root / "nats-token"

    @property
    def bus(self) -> Path:
        """Logins of the bus, where every service has its own."""
        return self.root / "bus"

    def bus_secret(self, user: str | None) -> Path:
        """What the user logs in with; None: the token that everyone shares."""
        return self.nats_token if user is None else self.bus / f"{user}.secret"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def agent(self) -> Path:
        return self.root / "agent"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def create(self) -> None:
        try:
            for directory in (self.root, self.nats, self.agent, self.logs):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(
                f"cannot make the state directory {self.root}: {error.strerror}; "
                "set COTENANT_HOME to a place you may write"
            ) from error

    def token(self, path: Path) -> str:
        """The secret in a file of this home; made on first use, readable by its user only."""
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            pass
        text = secrets.token_urlsafe(32)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        return text


def default_home(environment: Mapping[str, str] = os.environ) -> StackHome:
    """``$COTENANT_HOME``, else the XDG state directory."""
    named = environment.get("COTENANT_HOME")
    if named:
        return StackHome(Path(named).absolute())
    state = environment.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return StackHome(base / "cotenant")


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """A process that cannot be confused with a later one of the same number: start time and boot are part of it."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "ProcessRef | None":
        ticks = start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, boot_id())

    @classmethod
    def current(cls) -> "ProcessRef":
        pid = os.getpid()
        return cls(pid, start_ticks(pid) or 0, boot_id())

    def is_alive(self) -> bool:
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Start time since boot in clock ticks (field 22 of ``/proc/<pid>/stat``); None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True, slots=True)
class ServiceRef:
    """One service of a running stack: its process and where its health is served."""

    name: str
    process: ProcessRef
    health_url: str


@dataclass(frozen=True, slots=True)
class StackRecord:
    """``stack.json``: how to reach a running stack, and what a stale one has to be cleaned of."""

    process: ProcessRef
    mode: str
    node: str
    gateway_url: str
    nats_url: str
    started_ms: int
    version: str
    cgroup_root: str
    nats: ProcessRef | None = None
    services: tuple[ServiceRef, ...] = ()
    bus_user: str | None = None
    """Whom commands log in as on the bus; None: whoever has the token."""
    options: dict[str, Any] = field(default_factory=dict)

    def save(self, home: StackHome) -> None:
        fresh = home.record.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=2) + "\n")
        fresh.replace(home.record)


def load_record(home: StackHome) -> StackRecord | None:
    """What the last stack wrote; None when there was none or its file is no record."""
    try:
        raw = json.loads(home.record.read_text())
        return StackRecord(
            **raw
            | {
                "process": ProcessRef(**raw["process"]),
                "nats": ProcessRef(**raw["nats"]) if raw.get("nats") else None,
                "services": tuple(
                    ServiceRef(entry["name"], ProcessRef(**entry["process"]), entry["health_url"])
                    for entry in raw.get("services", ())
                ),
            }
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


class AlreadyRunningError(RefusedError):
    """Another stack holds this home."""


@contextmanager
def hold(home: StackHome) -> Iterator[None]:
    """Own the home while the block runs. The kernel drops the lock with the process, however that ends."""
    descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _lock(descriptor):
            raise AlreadyRunningError(already_running(home))
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    # `is_held` takes the lock for a moment to look, so one refusal proves nothing.
    for _ in range(3):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def is_held(home: StackHome) -> bool:
    """True while a stack runs here."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def already_running(home: StackHome) -> str:
    record = load_record(home)
    where = f" (pid {record.process.pid}, {record.gateway_url})" if record and record.process.is_alive() else ""
    return f"a stack already runs in {home.root}{where}; `cotenant status` shows it, `cotenant down` stops it"
