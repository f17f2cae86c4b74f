"""Copies output and reaps, until a command and what it left behind are gone."""

from __future__ import annotations

import os
import select
import signal

from cotenant_agent.runtime.shim.proc import monotonic_ms, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Sink(Protocol):
        def write(self, data: bytes) -> None: ...


CHUNK_BYTES = 64 * 1024
DRAIN_MS = 2000
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    # Costs 3 ms and half a MiB once; in return a daemonised grandchild stays ours to reap and to kill, which
    # is the only way to find it where there are no cgroups.
    try:
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def own_children() -> list[int]:
    try:
        return [int(pid) for pid in read_text(f"/proc/self/task/{os.getpid()}/children").split()]
    except OSError:
        return []


def kill(send: Callable[[int, int], None], target: int) -> None:
    try:
        send(target, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class Supervisor:
    """Copies output and reaps until the command and what it left behind are gone."""

    def __init__(self, pid: int, output: int, sink: Sink) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.exited = False
        self._output = output
        self._sink = sink
        self._wake = _wake_on_children()
        self._poller = select.poll()
        self._poller.register(output, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        self._output_open = True

    def run_until_exit(self, timeout_ms: int | None = None) -> bool:
        """True when the command had to be killed at the end of the timeout."""
        deadline = None if timeout_ms is None else monotonic_ms() + timeout_ms
        woken = True  # it may have ended before we listened
        while not (woken and self._reap()):
            left = None if deadline is None else deadline - monotonic_ms()
            if left is not None and left <= 0:
                kill(os.killpg, self.pid)
                self._finish()
                return True
            woken = self._copy(left)
        return False

    def drain(self) -> None:
        """Bounded: a process we may not kill can hold the pipe for ever."""
        deadline = monotonic_ms() + DRAIN_MS
        while monotonic_ms() < deadline:
            for child in own_children():
                kill(os.kill, child)
            self._reap_strays()
            if not self._output_open and not own_children():
                return
            self._copy(20)

    def _reap(self) -> bool:
        self._reap_strays()
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        # The leader is still a zombie here, so its number cannot belong to anyone else: the group kill is exact.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        kill(os.killpg, self.pid)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.exited = True
        self.exit_code, self.signal = (code, None) if code >= 0 else (None, -code)

    def _reap_strays(self) -> None:
        for child in own_children():
            if child == self.pid:
                continue
            try:
                os.waitpid(child, os.WNOHANG)
            except ChildProcessError:
                continue

    def _copy(self, timeout_ms: int | None) -> bool:
        """True when a child changed; asking about children at every line of output would double its price."""
        woken = False
        for fd, _ in self._poller.poll(timeout_ms):
            if fd == self._wake:
                _read_available(self._wake)
                woken = True
            elif not self._copy_some():
                self._poller.unregister(self._output)
                self._output_open = False
        return woken

    def _copy_some(self) -> bool:
        try:
            data = os.read(self._output, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._sink.write(data)
        return bool(data)


def _read_available(fd: int) -> None:
    try:
        os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return


def _wake_on_children() -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader
