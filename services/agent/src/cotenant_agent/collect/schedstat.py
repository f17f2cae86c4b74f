"""Run-queue wait: how long the threads of a pod were ready to run and did not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant_agent.collect.files import HeldFile, hold

# A pod's mean wait needs a sample of its threads, not all of them; descriptors are the scarce thing.
MAX_THREADS: Final = 48
_REFRESH_EVERY: Final = 5


@dataclass(slots=True)
class _Thread:
    file: HeldFile
    run_ns: int
    wait_ns: int
    slices: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Totals since the reader began, microseconds; they only grow, although threads come and go."""

    run_us: int
    wait_us: int
    slices: int


def parse_schedstat(data: bytes | None) -> tuple[int, int, int] | None:
    """(run ns, wait ns, times run)."""
    words = (data or b"").split()
    if len(words) != 3:
        return None
    return int(words[0]), int(words[1]), int(words[2])


class WaitReader:
    def __init__(self, threads: Path, proc: Path = Path("/proc")) -> None:
        self._list = hold(threads)
        self._proc = proc
        self._threads: dict[int, _Thread] = {}
        self._round = 0
        self._run_ns = self._wait_ns = self._slices = 0

    def read(self) -> Waits | None:
        if self._list is None:
            return None
        if self._round % _REFRESH_EVERY == 0:
            self._refresh()
        self._round += 1
        for tid in list(self._threads):
            self._advance(tid)
        return Waits(self._run_ns // 1_000, self._wait_ns // 1_000, self._slices)

    def _refresh(self) -> None:
        data = self._list.read(65_536) if self._list is not None else None
        present = [int(word) for word in (data or b"").split()[:MAX_THREADS]]
        for tid in [tid for tid in self._threads if tid not in present]:
            self._threads.pop(tid).file.close()
        for tid in present:
            if tid not in self._threads:
                self._open(tid)

    def _open(self, tid: int) -> None:
        file = hold(self._proc / str(tid) / "schedstat")
        if file is None:
            return
        values = parse_schedstat(file.read(128))
        if values is None:
            file.close()
        else:
            # What a thread did before it was first seen belongs to no interval.
            self._threads[tid] = _Thread(file, *values)

    def _advance(self, tid: int) -> None:
        thread = self._threads[tid]
        values = parse_schedstat(thread.file.read(128))
        if values is None:
            thread.file.close()
            del self._threads[tid]
            return
        run, wait, slices = values
        self._run_ns += max(run - thread.run_ns, 0)
        self._wait_ns += max(wait - thread.wait_ns, 0)
        self._slices += max(slices - thread.slices, 0)
        thread.run_ns, thread.wait_ns, thread.slices = run, wait, slices

    def close(self) -> None:
        for thread in self._threads.values():
            thread.file.close()
        self._threads.clear()
        if self._list is not None:
            self._list.close()
