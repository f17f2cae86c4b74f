"""Child processes of a stack: they die with it, and they come back when they die alone."""

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cotenant.stack.home import ProcessRef, StackRecord

BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
# Long enough to tell a crash at start from one after useful work.
HEALTHY_AFTER_S: Final = 30.0
SERVICE_STOP_S: Final = 8.0
"""Above the services' own 5 s, so that one that drains to the last moment is not killed at it."""
NATS_STOP_S: Final = 5.0

_PR_SET_PDEATHSIG: Final = 1
# Loaded before any fork: a child between fork and exec must not import.
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with(parent: int) -> Callable[[], None]:
    """Runs in the child before exec: SIGTERM when the parent goes, however it goes."""

    def prepare() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the line above took effect.
        if os.getppid() != parent:
            os._exit(1)

    return prepare


@dataclass(slots=True)
class Child:
    """One supervised command. ``reference`` is its present process, or the last one it had."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    reference: ProcessRef | None = None
    restarts: int = 0
    last_exit: int | None = None
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """None: it does not run."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    async def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.environment),
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),
            )
        self.reference = ProcessRef.of(self.process.pid)

    async def supervise(self, on_start: Callable[[], Awaitable[None]]) -> None:
        """For ever: start it again when it has ended, later each time until it holds; then call ``on_start``."""
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            started = loop.time()
            if self.process is None:
                await self.start()
                await on_start()
            assert self.process is not None  # noqa: S101 - start() has just set it
            self.last_exit = await self.process.wait()
            self.process = None
            self.restarts += 1
            attempt = 0 if loop.time() - started > HEALTHY_AFTER_S else attempt + 1
            await asyncio.sleep(BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)])

    async def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL when the time is up."""
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def end_strays(record: StackRecord | None) -> int:
    """End what a killed stack left: it still holds ports, the store and the pods. Blocking; how many there were.

    Their own death signal is on its way already, so this mostly waits.
    """
    if record is None:
        return 0
    services = sum(end_stray(service.process, SERVICE_STOP_S, time.sleep) for service in record.services)
    return services + end_stray(record.nats, NATS_STOP_S, time.sleep)


def end_stray(reference: ProcessRef | None, timeout_s: float, pause: Callable[[float], None]) -> bool:
    """End a process that outlived its stack. Blocking. True when there was one.

    Never the caller: a stack embedded in this very process has ended with its block.
    """
    if reference is None or reference.pid == os.getpid() or not reference.is_alive():
        return False
    for number, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 2.0)):
        with suppress(ProcessLookupError):
            os.kill(reference.pid, number)
        for _ in range(int(patience_s / 0.05)):
            if not reference.is_alive():
                return True
            pause(0.05)
    return True
