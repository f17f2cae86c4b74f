"""An open-loop Poisson load generator for HTTP services.

Arrivals are drawn before the run starts, and latency counts from the moment a request was *meant* to leave, so a slow
service cannot slow its own load down and hide. The generator reports its own lateness. Standard library only.

    python poisson.py --url http://127.0.0.1:8090/ --steps 10:6,40:6,20:6 --service-ms 2 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import math
import os
import random
import re
import selectors
import signal
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

TIMED_OUT = 599
CONNECTION_FAILED = 598
SWEEP_S = 0.1
LEAD_S = 0.2
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
WORKER = re.compile(rb"x-worker: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    share: float
    """Part of the whole machine that the requests should keep busy, 0 to 1."""
    seconds: float


def parse_steps(text: str) -> tuple[Step, ...]:
    """`10:6,40:6` is 10 % of the machine for 6 s, then 40 % for 6 s."""
    steps = []
    for part in text.split(","):
        percent, separator, seconds = part.partition(":")
        try:
            step = Step(share=float(percent) / 100, seconds=float(seconds))
        except ValueError:
            raise ValueError(f"a step is PERCENT:SECONDS, for example 40:6, got {part!r}") from None
        if not separator or step.share <= 0 or step.seconds <= 0:
            raise ValueError(f"a step needs a percentage and seconds above zero, got {part!r}")
        steps.append(step)
    return tuple(steps)


def arrivals(steps: Sequence[Step], cores: float, service_ms: float, seed: int) -> tuple[list[float], list[int]]:
    """Offsets in seconds and the step of each: a Poisson process of rate share x cores / service time in every step."""
    rng = random.Random(seed)
    offsets: list[float] = []
    of_step: list[int] = []
    started = 0.0
    for index, step in enumerate(steps):
        rate = step.share * cores / (service_ms / 1000)
        at = started + rng.expovariate(rate)
        while at < started + step.seconds:
            offsets.append(at)
            of_step.append(index)
            at += rng.expovariate(rate)
        started += step.seconds
    return offsets, of_step


def nearest_rank(ordered: Sequence[float], percent: float) -> float | None:
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(slots=True)
class Samples:
    """One row per request that was sent or given up. Arrays, so that the collector never has to walk them."""

    intended_s: array[float] = field(default_factory=lambda: array("d"))
    latency_ms: array[float] = field(default_factory=lambda: array("d"))
    late_ms: array[float] = field(default_factory=lambda: array("d"))
    status: array[int] = field(default_factory=lambda: array("i"))
    step: array[int] = field(default_factory=lambda: array("i"))

    def rows(self) -> Iterable[tuple[float, float, float, int, int]]:
        return zip(self.intended_s, self.latency_ms, self.late_ms, self.status, self.step, strict=True)

    def write(self, path: Path) -> None:
        lines = ["intended_s,latency_ms,late_ms,status,step"]
        lines += [
            f"{at:.6f},{latency:.4f},{late:.4f},{status},{step}" for at, latency, late, status, step in self.rows()
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def summary(self) -> dict[str, float | int | None]:
        latency = sorted(self.latency_ms)
        late = sorted(self.late_ms)
        return {
            "samples": len(latency),
            "errors": sum(1 for status in self.status if status != 200),
            "p50_ms": nearest_rank(latency, 50),
            "p99_ms": nearest_rank(latency, 99),
            "p999_ms": nearest_rank(latency, 99.9),
            "late_p50_ms": nearest_rank(late, 50),
            "late_p99_ms": nearest_rank(late, 99),
            "late_max_ms": late[-1] if late else None,
        }


@dataclass(slots=True, eq=False)
class Request:
    index: int
    intended: float
    late_ms: float = 0.0
    settled: bool = False


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.transport: asyncio.Transport | None = None
        self.worker = -1
        self.request: Request | None = None
        self.status = 0
        self.missing = -1
        self.head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.missing < 0:
            data = self.head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self.head = data
                return
            self.read_head(data[:end])
            data = data[end + 4 :]
        self.missing -= len(data)
        if self.missing <= 0:
            self.missing = -1
            self.client.answered(self, self.status)

    def read_head(self, head: bytes) -> None:
        self.head = b""
        self.status = int(head[9:12])
        length = LENGTH.search(head)
        worker = WORKER.search(head)
        self.missing = int(length[1]) if length else 0
        self.worker = int(worker[1]) if worker else 0

    def connection_lost(self, _exc: Exception | None) -> None:
        self.transport = None
        self.client.lost(self)


class Client:
    """A pool that sends each request to the worker with the fewest outstanding, as a load balancer would."""

    def __init__(self, url: str, per_worker: int, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"an http URL with a host is needed, got {url!r}")
        self.host, self.port = parts.hostname, parts.port or 80
        host_line = f"Host: {self.host}:{self.port}\r\n\r\n"
        self.wire = f"GET {parts.path or '/'} HTTP/1.1\r\n{host_line}".encode()
        self.probe = f"GET /healthz HTTP/1.1\r\n{host_line}".encode()
        self.per_worker = per_worker
        self.timeout_s = timeout_s
        self.idle: dict[int, list[Connection]] = {}
        self.busy: dict[int, set[Connection]] = {}
        self.waiting: deque[Request] = deque()
        self.outstanding: deque[Request] = deque()
        self.probing: dict[Connection, asyncio.Future[None]] = {}
        self.samples = Samples()
        self.open = 0
        self.reopening: set[asyncio.Task[None]] = set()
        self.started = 0.0
        self.of_step: Sequence[int] = ()

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self), self.host, self.port)
        probed = self.probing[connection] = loop.create_future()
        assert connection.transport is not None
        connection.transport.write(self.probe)
        try:
            await asyncio.wait_for(probed, self.timeout_s)
        finally:
            self.probing.pop(connection, None)
        return connection

    async def fill(self, workers: int) -> None:
        """The kernel spreads connections over the workers by a hash of the ports: open until every worker has some."""
        spare: list[Connection] = []
        for _ in range(workers * self.per_worker * 8):
            connection = await self.connect()
            self.busy.setdefault(connection.worker, set())
            pool = self.idle.setdefault(connection.worker, [])
            (pool if len(pool) < self.per_worker else spare).append(connection)
            if len(self.idle) >= workers and all(len(pool) >= self.per_worker for pool in self.idle.values()):
                break
        self.open = sum(len(pool) for pool in self.idle.values())
        for connection in spare:
            assert connection.transport is not None
            connection.transport.close()

    def submit(self, request: Request) -> None:
        self.outstanding.append(request)
        worker = min(self.idle, key=lambda number: len(self.busy[number]), default=-1)
        if worker >= 0 and not self.idle[worker]:
            worker = next((number for number, pool in self.idle.items() if pool), -1)
        if worker < 0:
            self.waiting.append(request)
        else:
            self.send(self.idle[worker].pop(), request)

    def send(self, connection: Connection, request: Request) -> None:
        assert connection.transport is not None
        connection.request = request
        self.busy[connection.worker].add(connection)
        connection.transport.write(self.wire)

    def answered(self, connection: Connection, status: int) -> None:
        if probed := self.probing.get(connection):
            if not probed.done():
                probed.set_result(None)
            return
        request, connection.request = connection.request, None
        if request is not None:
            self.settle(request, status)
        self.busy[connection.worker].discard(connection)
        self.offer(connection)

    def offer(self, connection: Connection) -> None:
        while self.waiting:
            request = self.waiting.popleft()
            if not request.settled:
                self.send(connection, request)
                return
        self.idle[connection.worker].append(connection)

    def lost(self, connection: Connection) -> None:
        if probed := self.probing.get(connection):
            if not probed.done():
                probed.set_exception(ConnectionError("closed before the first answer"))
            return
        pool = self.idle.get(connection.worker, [])
        known = connection in pool or connection in self.busy.get(connection.worker, ())
        if connection in pool:
            pool.remove(connection)
        self.busy.get(connection.worker, set()).discard(connection)
        if connection.request is not None:
            self.settle(connection.request, CONNECTION_FAILED)
            connection.request = None
        if known:
            self.open -= 1
            task = asyncio.ensure_future(self.reopen())
            self.reopening.add(task)
            task.add_done_callback(self.reopening.discard)

    async def reopen(self) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                connection = await self.connect()
                self.open += 1
                self.busy.setdefault(connection.worker, set())
                self.idle.setdefault(connection.worker, [])
                self.offer(connection)
                return
            await asyncio.sleep(SWEEP_S)

    def settle(self, request: Request, status: int) -> None:
        if request.settled:
            return
        request.settled = True
        now = asyncio.get_running_loop().time()
        self.samples.intended_s.append(request.intended - self.started)
        self.samples.latency_ms.append((now - request.intended) * 1000)
        self.samples.late_ms.append(request.late_ms)
        self.samples.status.append(status)
        self.samples.step.append(self.of_step[request.index])

    def sweep(self) -> None:
        """Give up what is older than the timeout. Requests are in order of intent, so the oldest decide."""
        limit = asyncio.get_running_loop().time() - self.timeout_s
        while self.outstanding and (self.outstanding[0].settled or self.outstanding[0].intended < limit):
            self.settle(self.outstanding.popleft(), TIMED_OUT)
        for connections in list(self.busy.values()):
            for connection in [c for c in connections if c.request is not None and c.request.settled]:
                assert connection.transport is not None
                connection.transport.abort()

    async def run(self, offsets: Sequence[float], of_step: Sequence[int], started: float, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self.of_step = of_step
        self.started = started
        position = 0
        done = asyncio.Event()

        def fire() -> None:
            nonlocal position
            while position < len(offsets):
                intended = self.started + offsets[position]
                now = loop.time()
                if now < intended:
                    loop.call_at(intended, fire)
                    return
                self.submit(Request(position, intended, late_ms=(now - intended) * 1000))
                position += 1
            done.set()

        def sweep() -> None:
            self.sweep()
            loop.call_later(SWEEP_S, sweep)

        loop.call_at(self.started, fire)
        loop.call_later(SWEEP_S, sweep)
        while not stop.is_set() and not (done.is_set() and not self.outstanding):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), SWEEP_S)


async def generate(args: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    client = Client(args.url, args.per_worker, args.timeout)
    try:
        await client.fill(args.workers)
    except (OSError, TimeoutError) as error:
        print(f"cannot reach {args.url}: {error or type(error).__name__}; is the service running?", file=sys.stderr)
        return 4
    offsets, of_step = arrivals(args.steps, args.cores, args.service_ms, args.seed)
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection in the middle would be the generator's latency, not the service's
    before = time.process_time()
    started = asyncio.get_running_loop().time() + LEAD_S
    if args.announce:
        print(json.dumps({"started_monotonic_s": started}), flush=True)
    await client.run(offsets, of_step, started, stop)
    if args.samples:
        client.samples.write(args.samples)
    seconds = sum(step.seconds for step in args.steps)
    report = {
        **client.samples.summary(),
        "planned": len(offsets),
        "seconds": seconds,
        "cpu_s": time.process_time() - before,
        "cpu_percent_of_a_core": 100 * (time.process_time() - before) / seconds,
    }
    print(json.dumps({key: round(v, 4) if isinstance(v, float) else v for key, v in report.items()}))
    return 130 if stop.is_set() else 0


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="Open-loop Poisson load; latency from the intended send time.")
    parser.add_argument("--url", default="http://127.0.0.1:8090/")
    parser.add_argument(
        "--steps", type=parse_steps, default="10:6,40:6,20:6", help="PERCENT:SECONDS,... of the machine"
    )
    parser.add_argument("--cores", type=float, default=cores)
    parser.add_argument("--service-ms", type=float, default=2.0, help="CPU time of one request")
    parser.add_argument("--workers", type=int, default=cores, help="processes that share the service's port")
    parser.add_argument("--per-worker", type=int, default=16, help="connections per worker")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds from the intended send time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--announce", action="store_true", help="print the moment of the start, in monotonic seconds")
    parser.add_argument("--samples", type=Path, help="write every sample to this CSV file")
    args = parser.parse_args()
    # epoll rounds a timer up to whole milliseconds, select does not: half a millisecond matters here.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(generate(args))
    finally:
        loop.close()


if __name__ == "__main__":
    sys.exit(main())
