"""Batch work with a result per unit: compress, hash, sort, solve, and one that takes more than its share.

Single-threaded, standard library only. Ends after --units or --seconds, whichever comes first, and prints what it did.
With --counter FILE the number of finished units and the CPU time spent are kept in that file for others to read.

    python neighbour.py --kind compress --units 200
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COUNTER = struct.Struct("<QQQ")
"""Units done, CPU time in nanoseconds, pid; little-endian, so that any program can read it."""
MIB = 1024 * 1024
BALLOON_STEP_BYTES = 4 * MIB
FSYNC_BYTES = 2 * MIB
FSYNC_EVERY_UNITS = 5

Unit = Callable[[int], bytes]


def text(bytes_wanted: int, seed: int) -> bytes:
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randrange(2, 9)).hex().encode() for _ in range(400)]
    return b" ".join(rng.choices(words, k=bytes_wanted // 10))


def compress_unit() -> Unit:
    block = text(192 * 1024, seed=1)
    return lambda number: hashlib.sha256(zlib.compress(block[number % 97 :], 6)).digest()


def hash_unit() -> Unit:
    return lambda number: hashlib.pbkdf2_hmac("sha256", b"cotenant", number.to_bytes(8, "big"), 12_000)


def sort_unit() -> Unit:
    base = random.Random(2).choices(range(1 << 30), k=15_000)

    def unit(number: int) -> bytes:
        ordered = sorted(value ^ number for value in base)
        return b"".join(value.to_bytes(8, "big") for value in ordered[:: len(ordered) // 16])

    return unit


def solve_unit() -> Unit:
    """One implicit step of the heat equation: a tridiagonal system by forward elimination and back substitution."""
    cells = 12_000

    def unit(number: int) -> bytes:
        heat = [((n + number) % 17) / 17 for n in range(cells)]
        upper = [0.0] * cells
        for n in range(1, cells):
            pivot = 3.0 + upper[n - 1]
            upper[n] = -1.0 / pivot
            heat[n] = (heat[n] + heat[n - 1]) / pivot
        for n in range(cells - 2, -1, -1):
            heat[n] -= upper[n] * heat[n + 1]
        return struct.pack("<d", sum(heat))

    return unit


class Greedy:
    """Compresses like its neighbour, but grows without asking and forces its writes to disk."""

    def __init__(self, balloon_bytes: int, directory: Path) -> None:
        self.work = compress_unit()
        self.balloon_bytes = balloon_bytes
        self.held: list[mmap.mmap] = []
        # Named files are left behind by a process that is killed; one without a name is not.
        self.file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self.block = os.urandom(FSYNC_BYTES)

    def __call__(self, number: int) -> bytes:
        held = len(self.held) * BALLOON_STEP_BYTES
        if held + BALLOON_STEP_BYTES <= self.balloon_bytes:
            chunk = mmap.mmap(-1, BALLOON_STEP_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for page in range(0, BALLOON_STEP_BYTES, mmap.PAGESIZE):
                chunk[page] = 1
            self.held.append(chunk)
        if number % FSYNC_EVERY_UNITS == 0:
            self.file.seek(0)
            self.file.write(self.block)
            self.file.flush()
            os.fsync(self.file.fileno())
        return self.work(number)


KINDS: dict[str, Callable[[], Unit]] = {
    "compress": compress_unit,
    "hash": hash_unit,
    "sort": sort_unit,
    "solve": solve_unit,
}


@dataclass(slots=True)
class Counter:
    """Shared with readers through the page cache: no write call per unit, and the last value survives a kill."""

    view: mmap.mmap | None = None

    def set(self, units: int, cpu_ns: int) -> None:
        if self.view is not None:
            COUNTER.pack_into(self.view, 0, units, cpu_ns, os.getpid())


@contextlib.contextmanager
def counter(path: Path | None) -> Iterator[tuple[Counter, int, int]]:
    """The counter and where it stood: a pod that was restarted counts on from its last unit."""
    if path is None:
        yield Counter(), 0, 0
        return
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END) < COUNTER.size:
            file.truncate(COUNTER.size)
        with mmap.mmap(file.fileno(), COUNTER.size) as view:
            units, cpu_ns, _pid = COUNTER.unpack_from(view)
            yield Counter(view), units, cpu_ns


def make_unit(args: argparse.Namespace) -> Unit:
    if args.kind == "greedy":
        return Greedy(args.balloon_mib * MIB, args.directory)
    return KINDS[args.kind]()


def work(args: argparse.Namespace) -> dict[str, object]:
    stopped = False

    def stop(_signum: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    unit = make_unit(args)
    deadline = time.monotonic() + args.seconds
    result = hashlib.sha256()
    done = 0
    with counter(args.counter) as (kept, units_before, cpu_before):
        while done < args.units and time.monotonic() < deadline and not stopped:
            result.update(unit(done))
            done += 1
            kept.set(units_before + done, cpu_before + time.process_time_ns())
    return {"kind": args.kind, "units": done, "cpu_s": round(time.process_time(), 3), "result": result.hexdigest()[:16]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Batch work with a result per unit.")
    parser.add_argument("--kind", choices=[*KINDS, "greedy"], required=True)
    parser.add_argument("--units", type=float, default=float("inf"), help="stop after so many (default: no limit)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long (default: no limit)")
    parser.add_argument("--counter", type=Path, help="file that holds units done and CPU time")
    parser.add_argument("--balloon-mib", type=int, default=256, help="greedy: memory to take")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="greedy: where it writes")
    print(json.dumps(work(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
