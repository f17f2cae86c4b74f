"""A latency-critical HTTP service. Every GET renders a document, hashes it and sends it compressed.

The document's length is calibrated at the start so that one request costs about `--service-ms` of CPU on this
machine, and the line printed then says what came out. Standard library only; one process per core shares the port.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import html
import json
import os
import signal
import socket
import statistics
import sys
import time
import zlib
from dataclasses import dataclass

FIRST_GUESS_ROWS = 60
CALIBRATION_PAUSE_S = 0.003
REQUEST_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    body: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class Calibration:
    rows: int
    service_ms: float


def render(rows: int, salt: int) -> Response:
    lines = [
        f"<tr><td>{n}</td><td>{html.escape(f'item <{n * salt % 9973}>')}</td><td>{(n * salt) % 1000 / 7:.3f}</td></tr>"
        for n in range(rows)
    ]
    page = f"<html><body><h1>Report {salt}</h1><table>{''.join(lines)}</table></body></html>".encode()
    return Response(body=zlib.compress(page, 6), digest=hashlib.sha256(page).hexdigest())


def cpu_ms(rows: int, runs: int) -> float:
    """Processor time of one document: the median of runs with pauses between, as requests come, caches half cold."""
    costs = []
    for salt in range(1, runs + 1):
        time.sleep(CALIBRATION_PAUSE_S)
        started = time.process_time()
        render(rows, salt)
        costs.append((time.process_time() - started) * 1000)
    return statistics.median(costs)


def calibrate(target_ms: float) -> Calibration:
    """Cost is linear in the rows. The long second pass is for virtual machines, whose speed changes by the second."""
    rough = max(1, round(FIRST_GUESS_ROWS * target_ms / cpu_ms(FIRST_GUESS_ROWS, 20)))
    cost = cpu_ms(rough, 200)
    rows = max(1, round(rough * target_ms / cost))
    return Calibration(rows=rows, service_ms=cost * rows / rough)


class Worker(asyncio.Protocol):
    """One connection. A worker answers in the order of arrival and does one request's work at a time."""

    served = 0

    def __init__(self, number: int, calibration: Calibration) -> None:
        self.number = number
        self.calibration = calibration
        self.transport: asyncio.Transport | None = None
        self.pending = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while self.transport is not None and (end := self.pending.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.pending[:end])
            del self.pending[: end + 4]
            self.answer(head)
        if self.transport is not None and len(self.pending) > REQUEST_BYTES_MAX:
            self.refuse(b"431 Request Header Fields Too Large")

    def connection_lost(self, _exc: Exception | None) -> None:
        self.transport = None

    def answer(self, head: bytes) -> None:
        request = head.split(b"\r\n", 1)[0].split(b" ")
        if len(request) != 3 or request[0] != b"GET":
            self.refuse(b"405 Method Not Allowed")
        elif request[1] == b"/healthz":
            state = {"status": "ok", "worker": self.number, "service_ms": round(self.calibration.service_ms, 3)}
            self.send(json.dumps(state).encode(), b"application/json", b"")
        else:
            Worker.served += 1
            document = render(self.calibration.rows, Worker.served)
            extra = b"Content-Encoding: deflate\r\nETag: %s\r\n" % document.digest.encode()
            self.send(document.body, b"text/html", extra)

    def send(self, body: bytes, kind: bytes, extra: bytes) -> None:
        assert self.transport is not None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nX-Worker: %d\r\n%s\r\n"
        self.transport.write(head % (kind, len(body), self.number, extra) + body)

    def refuse(self, status: bytes) -> None:
        assert self.transport is not None
        self.transport.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        self.transport.close()
        self.transport = None


def listener(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((host, port))
    return sock


async def serve(number: int, sock: socket.socket, calibration: Calibration) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    server = await loop.create_server(lambda: Worker(number, calibration), sock=sock, backlog=1024)
    await stop.wait()
    server.close()


def fork_worker(number: int, host: str, port: int, calibration: Calibration) -> int:
    cpus = sorted(os.sched_getaffinity(0))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # Two workers on one core while batch work fills the others is the tail the kernel's balancer is too slow
            # to avoid: to it a core that runs only idle-class work looks as good as any.
            os.sched_setaffinity(0, {cpus[number % len(cpus)]})
            asyncio.run(serve(number, listener(host, port), calibration))
            status = 0
        finally:
            os._exit(status)
    return pid


def supervise(workers: int, host: str, port: int, calibration: Calibration) -> int:
    """Hold the port until SIGTERM or SIGINT. A worker that dies is a failure of the whole: say so and end."""
    pids = {fork_worker(number, host, port, calibration) for number in range(workers)}

    def stop(_signum: int, _frame: object) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    gone, status = os.wait()
    pids.discard(gone)
    print(f"worker process {gone} ended with status {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--service-ms", type=float, default=2.0, help="CPU time of one request to aim for")
    args = parser.parse_args()
    try:
        held = listener(args.host, args.port)
    except OSError as error:
        print(f"cannot bind {args.host}:{args.port}: {error.strerror}; choose another --port", file=sys.stderr)
        return 1
    calibration = calibrate(args.service_ms)
    print(
        f"serving http://{args.host}:{args.port} with {args.workers} workers; "
        f"{calibration.rows} rows a document, {calibration.service_ms:.2f} ms of CPU a request",
        flush=True,
    )
    with held:
        return supervise(args.workers, args.host, args.port, calibration)


if __name__ == "__main__":
    sys.exit(main())
