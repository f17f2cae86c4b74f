"""Knows of every container on disk and notices its end: by pidfd where the kernel has them, else by looking."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from cotenant_agent.runtime import spawn, state
from cotenant_agent.runtime.settings import RuntimeSettings
from cotenant_agent.runtime.state import ContainerPhase, ContainerState

ContainerKey = tuple[str, str]
"""Pod uid and container name."""

_log = structlog.get_logger(__name__)


def key_of(found: ContainerState) -> ContainerKey:
    return (found.uid, found.container)


class Tracker:
    """`on_lost` is called for a container whose shim died before it, to save its output."""

    def __init__(
        self, settings: RuntimeSettings, now_ms: Callable[[], int], on_lost: Callable[[ContainerState], None]
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._on_lost = on_lost
        self._boot_id = state.boot_id()
        self._states: dict[ContainerKey, ContainerState] = {}
        self._followed: dict[ContainerKey, int | None] = {}
        self._ended: asyncio.Queue[ContainerState] = asyncio.Queue()
        self._change = asyncio.Event()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def get(self, key: ContainerKey) -> ContainerState | None:
        return self._states.get(key)

    def of_pod(self, uid: str) -> tuple[ContainerState, ...]:
        return tuple(found for key, found in self._states.items() if key[0] == uid)

    def all(self) -> tuple[ContainerState, ...]:
        return tuple(self._states.values())

    def state_path(self, key: ContainerKey) -> Path:
        return self._settings.container_dir(*key) / "state.json"

    def follows(self, key: ContainerKey) -> bool:
        """True until the end of the container was noticed, its last output included."""
        return key in self._followed

    def started(self, key: ContainerKey) -> ContainerState | None:
        """Follows a container that has just been started; it may have ended since, and that end is still to be told."""
        found = self._read(key)
        if found is None:
            return None
        self._states[key] = found
        self._follow(found)
        return self._states[key]

    def adopt(self, key: ContainerKey) -> None:
        found = self._read(key)
        if found is None or self.follows(key):
            return
        self._states[key] = found
        if not found.running:
            return
        self._follow(found)
        if not found.exit_status_known and self.follows(key):
            self._on_lost(found)

    def forget(self, uid: str) -> None:
        for found in self.of_pod(uid):
            self.drop(key_of(found))

    def drop(self, key: ContainerKey) -> None:
        self._unwatch(key)
        self._states.pop(key, None)

    def close(self) -> None:
        for key in list(self._followed):
            self._unwatch(key)

    def look(self) -> None:
        """Checks everything that runs against the kernel; cheap (one procfs read each), and needs no pidfd."""
        for key in list(self._followed):
            if not state.alive(self._watched(self._states[key])):
                self._settle(key)

    def take_ended(self) -> list[ContainerState]:
        return [self._ended.get_nowait() for _ in range(self._ended.qsize())]

    async def next_ended(self) -> ContainerState:
        while True:
            try:
                async with asyncio.timeout(self._settings.poll_interval_s * 4):
                    return await self._ended.get()
            except TimeoutError:
                if None in self._followed.values():  # without a pidfd
                    self.look()

    async def until_ended(self, keys: list[ContainerKey], timeout_s: float) -> bool:
        """True when none of these runs any more."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while any(key in self._followed for key in keys):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            self._change.clear()
            try:
                async with asyncio.timeout(min(left, self._settings.poll_interval_s)):
                    await self._change.wait()
            except TimeoutError:
                self.look()
        return True

    def _read(self, key: ContainerKey) -> ContainerState | None:
        path = self.state_path(key)
        try:
            return state.read(path)
        except state.StateUnreadableError:
            _log.exception("container_state_unreadable", path=str(path))
            path.replace(path.with_name("state.json.unreadable"))
            return None

    def _watched(self, found: ContainerState) -> state.ProcessKey:
        """The shim ends last and by then has recorded everything; without it, the command itself."""
        if found.exit_status_known or found.pid is None or found.pid_start_ticks is None:
            return (found.shim_pid, found.shim_start_ticks)
        return (found.pid, found.pid_start_ticks)

    def _follow(self, found: ContainerState) -> None:
        key = key_of(found)
        self._unwatch(key)
        self._followed[key] = None
        pid, _ = watched = self._watched(found)
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._settle(key)
            return
        except OSError:
            return  # before Linux 5.3: look() finds out
        # Only now is the check conclusive: the descriptor keeps meaning this process even if the number moves on.
        if found.boot_id != self._boot_id or not state.alive(watched):
            os.close(pidfd)
            self._settle(key)
            return
        self._followed[key] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._settle, key)

    def _unwatch(self, key: ContainerKey) -> None:
        pidfd = self._followed.pop(key, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)

    def _settle(self, key: ContainerKey) -> None:
        """What we followed is gone: its record says how the container ended, or else we must."""
        self._unwatch(key)
        before = self._states[key]
        spawn.reaped(before.shim_pid)
        found = self._read(key) or before
        if found.running:
            found = self._without_shim(found)
        self._states[key] = found
        if found.running:
            self._follow(found)
        else:
            self._ended.put_nowait(found)
            self._change.set()

    def _without_shim(self, found: ContainerState) -> ContainerState:
        lives = (
            found.boot_id == self._boot_id
            and found.pid is not None
            and found.pid_start_ticks is not None
            and state.alive((found.pid, found.pid_start_ticks))
        )
        if lives and not found.exit_status_known:
            return found
        if lives:
            found = replace(
                found, exit_status_known=False, reason="its shim was killed; its exit status will stay unknown"
            )
            self._record(found)
            self._on_lost(found)
            return found
        rebooted = found.boot_id != self._boot_id
        found = replace(
            found,
            phase=ContainerPhase.EXITED,
            exit_status_known=False,
            # After a reboot nobody knows when it ended; otherwise it was at most one look ago.
            finished_at_ms=None if rebooted else self._now_ms(),
            reason="the machine restarted" if rebooted else "it ended after its shim was killed; exit status unknown",
        )
        self._record(found)
        return found

    def _record(self, found: ContainerState) -> None:
        try:
            state.write(self.state_path(key_of(found)), found)
        except OSError:
            # The next agent comes to the same conclusion from the older record.
            _log.exception("container_state_not_written", uid=found.uid, container=found.container)
