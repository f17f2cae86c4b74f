"""Pods as plain processes: start, stop, adopt, watch, logs, exec, remove."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from cotenant_agent.runtime import logs, spawn, state
from cotenant_agent.runtime.launch import ContainerLaunch, LaunchError, LogLimits, PodLaunch
from cotenant_agent.runtime.prepare import Prepared, check_name, prepare
from cotenant_agent.runtime.probe_core import ProbeResult
from cotenant_agent.runtime.settings import RuntimeSettings
from cotenant_agent.runtime.state import ContainerState
from cotenant_agent.runtime.tracker import ContainerKey, Tracker, key_of

_KILL_ROUND_S = 0.02
_MESSAGE_CHARS = 512


@dataclass(frozen=True, slots=True)
class StopResult:
    """`left` is how many processes could not be ended in time (in uninterruptible sleep, as a rule)."""

    containers: tuple[ContainerState, ...]
    killed: bool
    left: int


class PodRuntime:
    """Made inside a running event loop; dropping or closing it ends nothing that it started."""

    def __init__(self, settings: RuntimeSettings, *, now_ms: Callable[[], int], environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._tracker = Tracker(settings, now_ms, self._save_output)
        self._compiled_shim: Path | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._shims: list[int] = []

    def containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        return self._tracker.all() if uid is None else self._tracker.of_pod(uid)

    def check(self, launch: PodLaunch) -> None:
        """Raises LaunchError for whatever `start` would refuse, and starts nothing."""
        for container in launch.containers:
            self._prepare(launch, container)

    async def start(self, launch: PodLaunch) -> tuple[ContainerState, ...]:
        """All containers or none. What was started already, ended or not, is left alone: twice changes nothing."""
        prepared = [(container, self._prepare(launch, container)) for container in launch.containers]
        async with self._lock(launch.uid):
            tried: list[ContainerKey] = []
            try:
                for container, ready in prepared:
                    key = (launch.uid, container.name)
                    if self._tracker.get(key) is None:
                        tried.append(key)
                        await self._start(launch, container, ready, attempt=0)
            except LaunchError:
                await self._undo(tried)
                raise
            return self._tracker.of_pod(launch.uid)

    async def restart(self, launch: PodLaunch, container: str) -> ContainerState:
        """Runs one ended container again; attempt + 1."""
        wanted = launch.container(container)
        ready = self._prepare(launch, wanted)
        async with self._lock(launch.uid):
            before = self._tracker.get((launch.uid, container))
            if before is not None and before.running:
                return before
            return await self._start(launch, wanted, ready, 0 if before is None else before.attempt + 1)

    async def stop(
        self,
        uid: str,
        grace_ms: int,
        *,
        pids: Callable[[], Iterable[int]] | None = None,
        kill_all: Callable[[], int] | None = None,
        containers: Iterable[str] | None = None,
    ) -> StopResult:
        """SIGTERM, `grace_ms` to comply, then SIGKILL until nothing is left.

        `pids` gives the processes of the pod's group and `kill_all` sends them all SIGKILL and says how many
        there were. `containers` narrows the signals to some of the pod, for a container that is to be restarted;
        the group is shared, so leave `kill_all` out then.
        """
        async with self._lock(uid):
            chosen = set(containers) if containers is not None else None
            running = [c for c in self._tracker.of_pod(uid) if c.running and (chosen is None or c.container in chosen)]
            for container in running:
                _signal_group(container, signal.SIGTERM)
            # Twice would be wrong: to many programs a second SIGTERM means "at once".
            signalled = {container.pid for container in running}
            for pid in pids() if pids else ():
                if _process_group(pid) not in signalled:
                    _send(os.kill, pid, signal.SIGTERM)
            obeyed = await self._until_ended(running, grace_ms / 1000)
            if not obeyed:
                await self._kill(running)
            left = await self._kill_rest(kill_all)
            left += sum(1 for c in self._current(running) if c.running)
            return StopResult(self._tracker.of_pod(uid), not obeyed, left)

    async def adopt(self) -> tuple[ContainerState, ...]:
        """Once, before anything else: every container on disk as it is now, ended meanwhile or not."""
        for path in sorted(self._settings.state_dir.glob("pods/*/*/state.json")):
            self._tracker.adopt((path.parent.parent.name, path.parent.name))
        # Found in the answer already; watch() is for what ends from now on.
        self._tracker.take_ended()
        return self._tracker.all()

    def poll(self) -> list[ContainerState]:
        """Containers that ended since the last poll; each end is given once, here or by `watch`."""
        self._reap_shims()
        self._tracker.look()
        return self._tracker.take_ended()

    async def watch(self) -> AsyncIterator[ContainerState]:
        """Every container that ends, once, for ever."""
        while True:
            ended = await self._tracker.next_ended()
            self._reap_shims()
            yield ended

    def logs(self, uid: str, container: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[bytes]:
        """Output as it was written, both streams, over all attempts that the limits still hold."""
        key = (check_name("metadata.uid", uid), check_name("containers[].name", container))
        return logs.read_log(self._log_path(key), tail, lambda: follow and self._tracker.follows(key))

    async def exec(self, launch: PodLaunch, container: str, command: tuple[str, ...], timeout_ms: int) -> ProbeResult:
        """Runs a command in the container's group, as its user, with its environment; killed at the timeout."""
        owner = launch.container(container)
        directory = self._settings.container_dir(launch.uid, container)
        found = self._tracker.get((launch.uid, container))
        if found is None or not found.running:
            return ProbeResult(False, f"container {container} is not running")
        try:
            ready = prepare(launch, _with_command(owner, command), self._settings.default_user, self._environ)
            spec = {
                **ready.process,
                "mode": "exec",
                "timeout_ms": timeout_ms,
                "capture_bytes": self._settings.exec_capture_bytes,
            }
            answer = await self._ask_shim(launch, container, spec, directory, timeout_ms / 1000)
        except LaunchError as error:
            return ProbeResult(False, str(error))
        return _exec_result(answer, timeout_ms)

    async def remove(self, uid: str) -> None:
        """Forgets an ended pod, logs included. Removing what is not there is no error."""
        check_name("metadata.uid", uid)
        async with self._lock(uid):
            alive = [c.container for c in self._tracker.of_pod(uid) if c.running]
            if alive:
                raise LaunchError("runtime", f"pod {uid} still runs {', '.join(alive)}: stop it before removing it")
            # A shim may still be writing the last of the output; it gives up after two seconds.
            await self._until_ended(self._tracker.of_pod(uid), self._settings.kill_timeout_s)
            self._tracker.forget(uid)
            shutil.rmtree(self._settings.pod_dir(uid), ignore_errors=True)

    def close(self) -> None:
        """Stops watching. Everything that runs goes on and can be adopted."""
        self._tracker.close()

    def _shim(self) -> Path:
        # On first use: an agent that is restarted while the disk is full must still be able to adopt.
        if self._compiled_shim is None:
            self._compiled_shim = spawn.compile_shim(self._settings.state_dir)
        return self._compiled_shim

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    def _prepare(self, launch: PodLaunch, container: ContainerLaunch) -> Prepared:
        return prepare(launch, container, self._settings.default_user, self._environ)

    def _log_path(self, key: ContainerKey) -> Path:
        return self._settings.container_dir(*key) / "log"

    async def _start(
        self, launch: PodLaunch, container: ContainerLaunch, ready: Prepared, attempt: int
    ) -> ContainerState:
        key = (launch.uid, container.name)
        directory = self._settings.container_dir(*key)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError("runtime", f"no room for its record and log: {error}") from error
        spec = {
            **ready.process,
            **self._log_spec(key, container.log),
            "mode": "run",
            "record": {
                "uid": launch.uid,
                "namespace": launch.namespace,
                "pod": launch.name,
                "container": container.name,
                "attempt": attempt,
                "boot_id": self._tracker.boot_id,
                "run_as": str(ready.run_as),
                "log_max_bytes": container.log.max_bytes,
                "log_files": container.log.files,
            },
        }
        try:
            await self._ask_shim(launch, container.name, spec, directory, 0)
        except LaunchError as error:
            # A start that was cut off by the end of an agent may have been first; then the work is done.
            found = self._tracker.started(key) if error.field == "runtime" else None
            if found is None or found.attempt < attempt:
                raise
            return found
        found = self._tracker.started(key)
        if found is None:
            raise LaunchError("runtime", f"the shim left no readable record at {self._tracker.state_path(key)}")
        return found

    async def _ask_shim(
        self, launch: PodLaunch, container: str, spec: dict[str, Any], directory: Path, extra_s: float
    ) -> dict[str, Any]:
        error_log = directory / "shim.log"
        title = (f"{launch.namespace}/{launch.name}", container)
        spawned = spawn.spawn_shim(self._shim(), title, spec, error_log, gives_way=launch.gives_way)
        self._shims.append(spawned.pid)
        try:
            return await spawn.answer(spawned, error_log, self._settings.start_timeout_s + extra_s)
        finally:
            self._reap_shims()

    def _log_spec(self, key: ContainerKey, limits: LogLimits) -> dict[str, Any]:
        return {
            "directory": str(self._settings.container_dir(*key)),
            "log_path": str(self._log_path(key)),
            "log_max_bytes": limits.max_bytes,
            "log_files": limits.files,
        }

    def _save_output(self, found: ContainerState) -> None:
        """Without a reader the workload would block on its next 64 KiB of output."""
        key = (found.uid, found.container)
        limits = LogLimits(found.log_max_bytes, found.log_files)
        spec = {**self._log_spec(key, limits), "mode": "drain", "pid": found.pid, "pipe_inode": found.pipe_inode}
        title = (f"{found.namespace}/{found.pod}", found.container)
        with contextlib.suppress(LaunchError):
            spawned = spawn.spawn_shim(self._shim(), title, spec, self._settings.container_dir(*key) / "shim.log")
            os.close(spawned.reply_fd)
            self._shims.append(spawned.pid)

    def _reap_shims(self) -> None:
        self._shims = [pid for pid in self._shims if not spawn.reaped(pid)]

    def _current(self, states: Iterable[ContainerState]) -> list[ContainerState]:
        found = (self._tracker.get(key_of(s)) for s in states)
        return [s for s in found if s is not None]

    async def _until_ended(self, states: Iterable[ContainerState], timeout_s: float) -> bool:
        return await self._tracker.until_ended([key_of(s) for s in states], timeout_s)

    async def _kill(self, states: Iterable[ContainerState]) -> None:
        running = [c for c in self._current(states) if c.running]
        for container in running:
            _signal_group(container, signal.SIGKILL)
        await self._until_ended(running, self._settings.kill_timeout_s)

    async def _undo(self, keys: list[ContainerKey]) -> None:
        """A pod that could not start whole leaves no record: its next start is a first one."""
        started = [found for key in keys if (found := self._tracker.get(key)) is not None]
        await self._kill(started)
        for key in keys:
            self._tracker.drop(key)
            shutil.rmtree(self._settings.container_dir(*key), ignore_errors=True)

    async def _kill_rest(self, kill_all: Callable[[], int] | None) -> int:
        """A process may fork between two rounds, so this goes on until a round finds none."""
        if kill_all is None:
            return 0
        deadline = asyncio.get_running_loop().time() + self._settings.kill_timeout_s
        while (left := kill_all()) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_KILL_ROUND_S)
        return left


def _with_command(owner: ContainerLaunch, command: tuple[str, ...]) -> ContainerLaunch:
    return replace(owner, command=command, args=())


def _exec_result(found: dict[str, Any], timeout_ms: int) -> ProbeResult:
    output = found["output"].strip()[:_MESSAGE_CHARS]
    if found["timed_out"]:
        return ProbeResult(False, f"no result within {timeout_ms} ms")
    ended = f"signal {found['signal']}" if found["signal"] is not None else f"exit code {found['exit_code']}"
    return ProbeResult(found["exit_code"] == 0, f"{ended}: {output}" if output else ended)


def _signal_group(container: ContainerState, number: signal.Signals) -> None:
    pid, ticks = container.pid, container.pid_start_ticks
    if pid is None or ticks is None or not state.alive((pid, ticks)):
        return
    _send(os.killpg, pid, number)


def _process_group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _send(send: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(target, number)
