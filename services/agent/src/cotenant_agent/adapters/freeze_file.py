"""Freezes that outlive the bus and the agent: one the cluster ordered, and one that somebody ordered on the node."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotenant_common.telemetry.logging import get_logger

_LOCAL: Final = "freeze"
_CLUSTER: Final = "freeze.cluster"
_log = get_logger("agent")


@dataclass(slots=True)
class FreezeFile:
    """Looked at once a tick: a look costs one stat, and the file is read again only when it changed."""

    path: Path
    _stamp: tuple[int, int] | None = None
    _reason: str | None = None

    def reason(self) -> str | None:
        """Why the node is frozen; None while it is not. An unreadable file freezes: somebody meant to."""
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._stamp, self._reason = stamp, _reason_in(self.path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            self._stamp = self._reason = None
        except OSError as error:
            self._reason = f"{self.path} cannot be read: {error.strerror}"
        return self._reason

    def write(self, reason: str, by: str, at_ms: int) -> None:
        """Raise OSError."""
        record = {"reason": reason, "by": by, "since_ms": at_ms}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_name(self.path.name + ".new")
        written.write_text(json.dumps(record), encoding="utf-8")
        written.replace(self.path)

    def clear(self) -> bool:
        """True when there was one. Raise OSError."""
        existed = self.path.exists()
        self.path.unlink(missing_ok=True)
        return existed


@dataclass(slots=True)
class FreezeFiles:
    """Keeps the promises of ``adapters.ports.FreezeStore``; a disk that is full is no reason to stop enforcing."""

    state_dir: Path

    def __post_init__(self) -> None:
        self._local, self._cluster = local_freeze(self.state_dir), cluster_freeze(self.state_dir)

    _local: FreezeFile = field(init=False)
    _cluster: FreezeFile = field(init=False)

    def local(self) -> str | None:
        return self._local.reason()

    def cluster(self) -> str | None:
        return self._cluster.reason()

    def remember(self, reason: str | None, now_ms: int) -> None:
        try:
            if reason is None:
                self._cluster.clear()
            elif reason != self._cluster.reason():
                self._cluster.write(reason, "cluster", now_ms)
        except OSError as error:
            _log.warning("freeze_not_kept", error=str(error))


def local_freeze(state_dir: Path) -> FreezeFile:
    """Ordered on the node itself: holds until it is taken back there, whatever the cluster says."""
    return FreezeFile(state_dir / _LOCAL)


def cluster_freeze(state_dir: Path) -> FreezeFile:
    """What the cluster said last: a restart without a bus must not thaw the node."""
    return FreezeFile(state_dir / _CLUSTER)


def _reason_in(text: str) -> str:
    try:
        record: Any = json.loads(text)
    except ValueError:
        return text.strip() or "no reason given"
    reason = record.get("reason") if isinstance(record, dict) else record
    return str(reason or "no reason given")
