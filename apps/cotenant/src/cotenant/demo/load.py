"""The load generator as a SYSTEM-class process: what measures must not wait for what is measured."""

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotenant.demo.measure import read_samples
from cotenant.demo.programs import User
from cotenant.demo.stats import Sample
from cotenant.errors import CotenantError

_START_TIMEOUT_S: Final = 15.0
_NICE: Final = -10


@dataclass(frozen=True, slots=True)
class LoadReport:
    samples: list[Sample]
    summary: dict[str, Any]


@dataclass(slots=True)
class Load:
    """One run of the generator, from its announcement to its report. ``started_s`` is monotonic."""

    process: asyncio.subprocess.Process
    samples_file: Path
    started_s: float
    means: str

    @property
    def pid(self) -> int:
        return self.process.pid

    @classmethod
    async def start(cls, command: Sequence[str], user: User, samples_file: Path) -> "Load":
        """Return when it has announced the moment of its first second. Raise CotenantError with its own words."""
        process = await asyncio.create_subprocess_exec(
            *command,
            "--samples",
            str(samples_file),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            **user.switch,
        )
        means = prefer(process.pid)
        try:
            return cls(process, samples_file, await _announced(process), means)
        except BaseException:
            _kill(process)
            raise

    async def finish(self) -> LoadReport:
        out, error = await self.process.communicate()
        if self.process.returncode != 0:
            words = error.decode(errors="replace").strip()
            raise CotenantError(f"the load generator ended with status {self.process.returncode}: {words}")
        return LoadReport(read_samples(self.samples_file), json.loads(out))

    async def stop(self) -> None:
        if self.process.returncode is None:
            _kill(self.process)
            await self.process.wait()


async def _announced(process: asyncio.subprocess.Process) -> float:
    assert process.stdout is not None  # noqa: S101 - opened as a pipe above
    line = await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT_S)
    if not line:
        _, error = await process.communicate()
        raise CotenantError(f"the load generator did not start: {error.decode(errors='replace').strip()}")
    return float(json.loads(line)["started_monotonic_s"])


def prefer(pid: int) -> str:
    """Put the generator ahead of everything else by the strongest means there is; say which.

    Real time beats any weight: a waking process of the fair class waits for the running one's slice.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        return "real-time priority"
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        return f"nice {_NICE}"
    return "no priority of its own: watch its lateness"


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
