# ruff: noqa: PTH118, PTH123
"""Run as `python -I -S -E -X utf8 <compiled shim> <namespace>/<pod> <container>`.

The launch arrives as JSON on descriptor 3, because arguments are world-readable and environments hold secrets; the
answer leaves on descriptor 4. Modes: `run` supervises a container; `exec` runs one command beside it and answers with
its output; `drain` goes on copying the output of a container whose own shim was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time

from cotenant_agent.runtime.shim.output import Captured, RotatedLog
from cotenant_agent.runtime.shim.proc import monotonic_ms, now_ms, oom_kills, start_ticks
from cotenant_agent.runtime.shim.record import StateFile, record_at_last
from cotenant_agent.runtime.shim.supervise import DRAIN_MS, Supervisor, become_subreaper
from cotenant_agent.runtime.shim.workload import CHUNK_BYTES, StartRefusedError, reopen_output, start_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cotenant_agent.runtime.shim.proc import Fields

SPEC_FD = 3
REPLY_FD = 4
HELD_OFF_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def reply(answer: Fields) -> None:
    try:
        os.write(REPLY_FD, json.dumps(answer).encode())
        os.close(REPLY_FD)
    except OSError:
        return  # the agent is gone; the state file tells its successor


def hold_lock(directory: str, name: str) -> None:
    """Two shims on one container would run its command twice; the lock lives as long as this process."""
    fd = os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = monotonic_ms() + DRAIN_MS + 1000  # the shim of an earlier attempt may still be draining
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if monotonic_ms() > deadline:
                raise StartRefusedError("runtime", "another shim already runs this container") from error
            time.sleep(0.05)
        else:
            return


def run(spec: Fields) -> None:
    hold_lock(spec["directory"], "lock")
    become_subreaper()
    state = StateFile(os.path.join(spec["directory"], "state.json"))
    # The shim that we waited for may have been sent on the same errand by an agent that died before the answer.
    if state.last_attempt() >= spec["record"]["attempt"]:
        raise StartRefusedError("runtime", f"attempt {spec['record']['attempt']} was made already")
    log = RotatedLog(spec["log_path"], spec["log_max_bytes"], spec["log_files"])
    fields: Fields = {**spec["record"], "shim_pid": os.getpid(), "shim_start_ticks": start_ticks(os.getpid())}
    oom_before = oom_kills(spec["cgroup_procs"])

    def record(pid: int, pipe_inode: int) -> None:
        fields.update(
            phase="running", pid=pid, pid_start_ticks=start_ticks(pid), started_at_ms=now_ms(), pipe_inode=pipe_inode
        )
        state.write(fields)
        state.reserve()

    try:
        pid, output = start_child(spec, record)
    except StartRefusedError as refused:
        reason = f"{refused.field}: {refused.reason}"
        record_at_last(state, {**fields, "phase": "exited", "finished_at_ms": now_ms(), "reason": reason})
        raise
    reply({"ok": True})
    supervisor = Supervisor(pid, output, log)
    supervisor.run_until_exit()
    oom_after = oom_kills(spec["cgroup_procs"])
    fields.update(
        phase="exited",
        exit_code=supervisor.exit_code,
        signal=supervisor.signal,
        finished_at_ms=now_ms(),
        oom_killed=None if oom_before is None or oom_after is None else oom_after > oom_before,
    )
    record_at_last(state, fields)
    supervisor.drain()
    if log.dropped_bytes:
        record_at_last(state, {**fields, "log_dropped_bytes": log.dropped_bytes})


def execute(spec: Fields) -> None:
    become_subreaper()
    captured = Captured(spec["capture_bytes"])
    pid, output = start_child(spec, lambda _pid, _inode: None)
    supervisor = Supervisor(pid, output, captured)
    timed_out = supervisor.run_until_exit(spec["timeout_ms"])
    supervisor.drain()
    reply(
        {
            "ok": True,
            "exit_code": supervisor.exit_code,
            "signal": supervisor.signal,
            "timed_out": timed_out,
            "output": captured.data.decode("utf-8", "replace"),
        }
    )


def drain(spec: Fields) -> None:
    hold_lock(spec["directory"], "drain-lock")
    log = RotatedLog(spec["log_path"], spec["log_max_bytes"], spec["log_files"])
    reader = reopen_output(spec["pid"], spec["pipe_inode"])
    reply({"ok": True})
    while data := os.read(reader, CHUNK_BYTES):
        log.write(data)


MODES = {"run": run, "exec": execute, "drain": drain}


def name_process() -> None:
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("cotenant-shim")
    except OSError:
        return


def read_spec() -> Fields:
    with open(SPEC_FD, "rb") as file:
        spec: Fields = json.load(file)
    return spec


def main() -> int:
    os.set_inheritable(REPLY_FD, False)
    os.closerange(REPLY_FD + 1, 65536)
    name_process()
    # A service manager that stops the agent signals its whole group; the workloads must survive that.
    for number in HELD_OFF_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    spec = read_spec()
    try:
        MODES[spec["mode"]](spec)
    except StartRefusedError as refused:
        reply({"ok": False, "field": refused.field, "reason": refused.reason})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
