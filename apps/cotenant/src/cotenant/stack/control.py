"""A stack from outside: start it in the background, look at it, take it down."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from cotenant.errors import CotenantError, ExitStatus
from cotenant.stack.asking import ask_all, takes_work, waiting_for
from cotenant.stack.detached import Detached
from cotenant.stack.home import (
    AlreadyRunningError,
    StackHome,
    StackRecord,
    already_running,
    is_held,
    load_record,
)
from cotenant.stack.options import StackOptions
from cotenant.stack.processes import end_strays

STOP_TIMEOUT_S: Final = 20.0
"""Services drain for at most 8 s and nats-server for 5 s; then the process is killed."""
_LOG_LIMIT_BYTES: Final = 8 << 20
_ERRORS: Final = {status.value: status for status in ExitStatus}

Say = Callable[[str], None]


def start_detached(options: StackOptions, timeout_s: float, say: Say) -> StackRecord:
    """Start a stack that outlives this command; return when every service is ready."""
    home = options.state
    home.create()
    if is_held(home):
        raise AlreadyRunningError(already_running(home))
    log = home.logs / "stack.log"
    _rotate(log)
    process = Detached([sys.executable, "-m", "cotenant.stack", options.to_json()], log)
    try:
        return _wait_ready(process, home, timeout_s, say)
    except BaseException:
        # A stack that is not what was asked for must not stay, also after Ctrl-C. Adopted pods run on.
        process.terminate(STOP_TIMEOUT_S)
        raise


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _wait_ready(process: Detached, home: StackHome, timeout_s: float, say: Say) -> StackRecord:
    deadline = time.monotonic() + timeout_s
    waiting = "starting nats-server"
    while True:
        status = process.poll()
        if status is not None:
            raise _start_failure(status, home)
        record = load_record(home)
        if record is not None and record.process.pid == process.pid and record.services:
            states = ask_all(record.services)
            missing = [state for state in states if not state.ready]
            if not missing and takes_work(record.gateway_url, home):
                return record
            waiting = waiting_for(states)
        say(waiting)
        if time.monotonic() > deadline:
            raise CotenantError(f"not up after {timeout_s:g} s: {waiting}; log: {home.logs / 'stack.log'}")
        time.sleep(0.1)


def _start_failure(status: int, home: StackHome) -> CotenantError:
    """The error that the stack process printed last, with its exit status."""
    log = home.logs / "stack.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = next((line.removeprefix("cotenant: ") for line in reversed(lines) if line.startswith("cotenant: ")), None)
    last = lines[-1].strip() if lines else "it said nothing"
    error = CotenantError(said or f"the stack ended with status {status}: {last} (log: {log})")
    error.exit_status = _ERRORS.get(status, ExitStatus.CHECK_FAILED)
    return error


@dataclass(frozen=True, slots=True)
class Inspection:
    record: StackRecord | None
    running: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return self.running and all(row["state"] == "ready" for row in self.rows)

    def as_data(self) -> dict[str, Any]:
        found = asdict(self.record) if self.record else {}
        shown = ("mode", "node", "gateway_url", "nats_url", "started_ms", "version", "cgroup_root")
        return {"running": self.running, "ready": self.ready, "services": self.rows} | {
            name: found.get(name) for name in shown
        }


def inspect(home: StackHome) -> Inspection:
    record = load_record(home)
    running = is_held(home) and record is not None and record.process.is_alive()
    if record is None or not running:
        return Inspection(record, running=False)
    usage = _process_usage(
        {record.process.pid, *([record.nats.pid] if record.nats else []), *(s.process.pid for s in record.services)}
    )
    rows = [
        _row(
            state.service,
            state.pid,
            "ready" if state.ready else "not ready" if state.alive else "stopped",
            state.reason,
            usage,
        )
        for state in ask_all(record.services)
    ]
    if record.nats is not None:
        alive = record.nats.is_alive()
        rows.append(_row("nats-server", record.nats.pid, "ready" if alive else "stopped", "", usage))
    return Inspection(record, running=True, rows=rows)


def _row(service: str, pid: int, state: str, reason: str, usage: dict[int, tuple[int, float]]) -> dict[str, Any]:
    memory, cpu = usage.get(pid, (None, None))
    return {
        "service": service, "state": state, "pid": pid, "reason": reason, "memory_bytes": memory, "cpu_percent": cpu,
    }  # fmt: skip


def _process_usage(pids: set[int], interval_s: float = 0.3) -> dict[int, tuple[int, float]]:
    """(resident bytes, percent of one core over the interval) of each process."""
    import psutil  # noqa: PLC0415

    found: dict[int, tuple[int, float]] = {}
    processes = []
    for pid in sorted(pids):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            process.cpu_percent()
            processes.append(process)
    time.sleep(interval_s)
    for process in processes:
        with suppress(psutil.Error):
            found[process.pid] = (process.memory_info().rss, process.cpu_percent())
    return found


@dataclass(frozen=True, slots=True)
class DownReport:
    found: bool
    pods: int = 0
    processes_ended: int = 0
    groups_removed: bool = True
    knobs_restored: int = 0
    differences: tuple[str, ...] = ()
    left: int = 0
    state_kept: bool = False

    @property
    def clean(self) -> bool:
        return self.left == 0 and self.groups_removed and not self.differences

    def as_data(self) -> dict[str, Any]:
        return asdict(self) | {"clean": self.clean}

    def sentence(self) -> str:
        if not self.found:
            return "nothing to take down"
        faults = [
            *([f"{self.left} processes do not end"] if self.left else []),
            *([] if self.groups_removed else ["a cgroup is still in use"]),
            *self.differences,
        ]
        state = "state kept" if self.state_kept else "state removed"
        restored = f"restored: {len(self.differences)} differences"
        if faults:
            return f"cotenant is down, but: {'; '.join(faults)} ({restored})"
        return f"cotenant is down: {self.pods} pods stopped, {restored}, {state}"


def take_down(home: StackHome, *, keep_state: bool, grace_s: float | None, say: Say) -> DownReport:
    """Stop the stack if it runs, then clean what it or a killed predecessor left on the machine."""
    record = _record_of(home)
    if record is None:
        return DownReport(found=False)
    say("stopping services")
    ended = _stop_process(home, record)
    ended += end_strays(record)
    say("stopping pods")
    from cotenant.stack import cleanup  # noqa: PLC0415 - imports the agent

    node = cleanup.clean_node(home, record, grace_s)
    report = DownReport(
        found=True,
        pods=node.pods_stopped,
        processes_ended=ended,
        groups_removed=node.groups_removed is not False,
        knobs_restored=node.restored.written_back,
        differences=node.restored.differences,
        left=node.processes_left,
        state_kept=keep_state or not node.clean,
    )
    if not report.state_kept:
        _remove_state(home)
    return report


def _record_of(home: StackHome) -> StackRecord | None:
    """The record; a stack that starts at this moment gets a few seconds to write it."""
    deadline = time.monotonic() + 5.0
    while True:
        record = load_record(home)
        held = is_held(home)
        if not held or (record is not None and record.process.is_alive()) or time.monotonic() > deadline:
            return record
        time.sleep(0.05)


def _stop_process(home: StackHome, record: StackRecord) -> int:
    if not is_held(home) or not record.process.is_alive():
        return 0
    with suppress(ProcessLookupError):
        os.kill(record.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while record.process.is_alive():
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(record.process.pid, signal.SIGKILL)
            deadline += STOP_TIMEOUT_S
        time.sleep(0.05)
    return 1


def _remove_state(home: StackHome) -> None:
    """Only what a stack makes: a home may be a directory that holds other things too."""
    for directory in (home.nats, home.agent, home.logs, home.bus):
        shutil.rmtree(directory, ignore_errors=True)
    for file in (home.record, home.api_token, home.nats_token, home.root / "nats.conf", home.lock):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        home.root.rmdir()
