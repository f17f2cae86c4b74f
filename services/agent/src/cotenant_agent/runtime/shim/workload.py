# ruff: noqa: PTH116
"""From the shim to the command: pipe, fork, and the steps between fork and exec."""

from __future__ import annotations

import json
import os
import signal
import stat

from cotenant_agent.runtime.shim.proc import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cotenant_agent.runtime.shim.proc import Fields

CHUNK_BYTES = 64 * 1024


class StartRefusedError(Exception):
    """The command could not be started; nothing of it runs."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason


def enter_groups(spec: Fields) -> None:
    for path in spec["cgroup_procs"]:
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, b"%d" % os.getpid())
        finally:
            os.close(fd)


def set_oom_score(spec: Fields) -> None:
    present = int(read_text("/proc/self/oom_score_adj"))
    # Unset means "not protected": a workload must not inherit the agent's own shield.
    wanted = max(present, 0) if spec["oom_score_adj"] is None else spec["oom_score_adj"]
    if wanted == present:
        return
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    try:
        os.write(fd, b"%d" % wanted)
    finally:
        os.close(fd)


def set_rlimits(spec: Fields) -> None:
    if not spec["rlimits"]:
        return
    import resource  # noqa: PLC0415 - most containers set none and need not pay for it

    for name, soft, hard in spec["rlimits"]:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (soft, hard))


def set_scheduling(spec: Fields) -> None:
    if spec["cpus"]:
        os.sched_setaffinity(0, spec["cpus"])
    present = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = spec["nice"]
    # Only root may take back the weight that a shim gave away; without root the pod stays as low as its shim.
    if wanted > present or (wanted < present and os.geteuid() == 0):
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    if spec["sched_idle"]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def become_user(spec: Fields) -> None:
    if spec["uid"] is None:
        return
    os.setgroups(spec["groups"])
    os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])


def enter_directory(spec: Fields) -> None:
    os.umask(spec["umask"])
    os.chdir(spec["cwd"])


# Each step carries the name of the field that asked for it, for the refusal.
STEPS: tuple[tuple[str, Callable[[Fields], None]], ...] = (
    ("cgroup", enter_groups),
    ("oomScoreAdj", set_oom_score),
    ("rlimits", set_rlimits),
    ("scheduling", set_scheduling),
    ("runAsUser", become_user),
    ("workingDir", enter_directory),
)


def reset_signals() -> None:
    # Python ignores SIGPIPE and this shim holds off SIGTERM; a workload expects the kernel's defaults.
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def run_child(spec: Fields, gate: int, failure: int, output: int) -> None:
    """Never returns. An empty gate means that the shim died before it recorded us: then nothing may run."""
    field = "command"
    try:
        os.setsid()
        if not os.read(gate, 1):
            os._exit(1)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for field, step in STEPS:  # noqa: B007 - the field of the failing step goes into the report
            step(spec)
        field = "command"
        reset_signals()
        os.execve(spec["path"], spec["argv"], spec["env"])  # noqa: S606 - the product
    except BaseException as error:  # noqa: BLE001 - a forked copy of the shim must not run on
        reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        os.write(failure, json.dumps({"field": field, "reason": reason}).encode())
    finally:
        os._exit(127)


def output_pipe(spec: Fields) -> tuple[int, int]:
    """The child's end is opened for reading too.

    When the shim is killed, a write then fills the pipe instead of raising SIGPIPE, until a drain takes over.
    """
    reader, writer = os.pipe()
    both = os.open(f"/proc/self/fd/{writer}", os.O_RDWR)
    os.close(writer)
    os.set_blocking(reader, False)
    if spec["uid"] is not None:
        os.fchown(both, spec["uid"], spec["gid"])  # else the workload could not open /dev/stdout
    return reader, both


def start_child(spec: Fields, record: Callable[[int, int], None]) -> tuple[int, int]:
    """Fork, record, then let the child go on to exec. Gives the pid and the reading end of its output."""
    reader, both = output_pipe(spec)
    gate_r, gate_w = os.pipe()
    failure_r, failure_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(gate_w)
        run_child(spec, gate_r, failure_w, both)
    for fd in (gate_r, failure_w, both):
        os.close(fd)
    record(pid, os.fstat(reader).st_ino)
    os.write(gate_w, b"1")
    os.close(gate_w)
    failed = b""
    while part := os.read(failure_r, CHUNK_BYTES):
        failed += part
    os.close(failure_r)
    if failed:
        os.waitpid(pid, 0)
        raise StartRefusedError(**json.loads(failed))
    return pid, reader


def reopen_output(pid: int, pipe_inode: int) -> int:
    """Only the very pipe we made: the workload may have put a pipe of its own in its place."""
    for number in (1, 2):
        path = f"/proc/{pid}/fd/{number}"
        try:
            found = os.stat(path)
        except OSError:
            continue
        if stat.S_ISFIFO(found.st_mode) and found.st_ino == pipe_inode:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    raise StartRefusedError("logs", f"process {pid} no longer holds its output pipe")
