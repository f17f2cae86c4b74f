"""Starts a shim and waits for its answer: descriptors and posix_spawn, no threads, nothing that blocks."""

import asyncio
import contextlib
import fcntl
import json
import os
import py_compile
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant_agent.runtime.launch import LaunchError

_SHIM = Path(__file__).with_name("shim")
_SPEC_FD = 3
_REPLY_FD = 4
_ABOVE_THE_SHIMS = 10
_CHUNK_BYTES = 65536
_NICE = shutil.which("nice", path="/usr/bin:/bin")


@dataclass(frozen=True, slots=True)
class Spawned:
    pid: int
    reply_fd: int


def compile_shim(directory: Path) -> Path:
    """Lays the shim out as a runnable folder of bytecode, its parent packages left empty.

    Run from source it would be compiled at every start (2 MiB and 10 ms per container), and the real parents
    import the whole agent.
    """
    package = directory / "shim" / "cotenant_agent" / "runtime" / "shim"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # code that runs as root: nobody else writes here
        package.mkdir(parents=True, exist_ok=True)
        for source in sorted(_SHIM.glob("*.py")):
            target = directory / "shim" if source.name == "__main__.py" else package
            py_compile.compile(str(source), cfile=str(target / f"{source.stem}.pyc"), doraise=True, optimize=2)
        for parent in (package.parent, package.parent.parent):
            py_compile.compile(str(_SHIM / "__init__.py"), cfile=str(parent / "__init__.pyc"), doraise=True)
    except OSError as error:
        raise LaunchError("runtime", f"the shim cannot be laid out in {directory}: {error}") from error
    return directory / "shim"


def spawn_shim(
    shim: Path, title: tuple[str, str], spec: Mapping[str, Any], error_log: Path, *, gives_way: bool = False
) -> Spawned:
    """`title` is all that ps shows. posix_spawn copies no memory map, so its cost does not grow with the agent."""
    command = [sys.executable, "-I", "-S", "-E", "-X", "utf8", str(shim), *title]
    if gives_way and _NICE is not None:
        # Starting an interpreter takes some 20 ms of CPU, so the weight must be gone before it begins.
        command = [_NICE, "-n", "19", *command]
    try:
        spec_fd = _spec_file(spec)
        reply_r, reply_w = os.pipe()
    except OSError as error:
        raise LaunchError("runtime", f"no descriptors or memory left to start anything: {error}") from error
    # Both move above the shim's own numbers, or one dup2 would overwrite the other's source.
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_THE_SHIMS) for fd in (spec_fd, reply_w)]
    try:
        pid = os.posix_spawn(
            command[0],
            command,
            {"PATH": "/usr/bin:/bin"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(error_log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, sources[0], _SPEC_FD),
                (os.POSIX_SPAWN_DUP2, sources[1], _REPLY_FD),
            ],
            setsid=True,
            setsigmask=[],
        )
    except OSError as error:
        os.close(reply_r)
        raise LaunchError("runtime", f"the shim could not be started with {sys.executable}: {error}") from error
    finally:
        for fd in (spec_fd, reply_w, *sources):
            os.close(fd)
    os.set_blocking(reply_r, False)
    return Spawned(pid, reply_r)


def _spec_file(spec: Mapping[str, Any]) -> int:
    """In memory: a pipe would block us on a large environment, a file would leave secrets on disk."""
    fd = os.memfd_create("cotenant-launch")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(json.dumps(spec).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def answer(spawned: Spawned, error_log: Path, timeout_s: float) -> dict[str, Any]:
    """The shim's answer, or LaunchError. A shim that gives none in time is killed.

    When we are cancelled it goes on, as it would if the agent died here: the next start or agent finds its record.
    """
    try:
        async with asyncio.timeout(timeout_s):
            text = await _read_all(spawned.reply_fd)
    except TimeoutError:
        kill_shim(spawned.pid)
        raise LaunchError("runtime", f"no answer from the shim within {timeout_s} s") from None
    finally:
        os.close(spawned.reply_fd)
    if not text:
        raise LaunchError("runtime", f"the shim died before it answered: {_last_line(error_log)}")
    found: dict[str, Any] = json.loads(text)
    if not found["ok"]:
        raise LaunchError(found["field"], found["reason"])
    return found


async def _read_all(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    data = b""
    try:
        while True:
            await readable.wait()
            readable.clear()
            try:
                part = os.read(fd, _CHUNK_BYTES)
            except BlockingIOError:
                continue
            if not part:
                return data
            data += part
    finally:
        loop.remove_reader(fd)


def kill_shim(pid: int) -> None:
    """Only for a child of ours that was never reaped: until then the number cannot mean anyone else."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def reaped(pid: int) -> bool:
    """Collects an ended shim; also true for one of an earlier agent, which is init's child and not ours."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"
