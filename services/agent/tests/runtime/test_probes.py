import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from cotenant_agent.runtime import (
    ContainerProber,
    ContainerProbes,
    ExecAction,
    HttpGetAction,
    Probe,
    ProbeResult,
    ProbeState,
    TcpSocketAction,
)
from cotenant_agent.runtime.probes import check
from cotenant_agent.runtime.testing import now_ms

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def no_exec(command: tuple[str, ...], timeout_ms: int) -> ProbeResult:
    raise AssertionError("not an exec probe")


@asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that gives one answer, or with None takes connections and says nothing."""
    asked: list[bytes] = []
    quiet = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n") if answer else b"")
        if answer is None:
            await quiet.wait()
        writer.write(answer or b"")
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        quiet.set()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(("status", "ok"), [(200, True), (204, True), (302, True), (404, False), (500, False)])
async def test_http_status_decides(status: int, ok: bool) -> None:
    async with listening(b"HTTP/1.1 %d X\r\n\r\n" % status) as (port, asked):
        action = HttpGetAction(port, path="ready?x=1", headers=(("X-Probe", "1"),))
        assert await check(Probe(action), no_exec) == ProbeResult(ok, f"HTTP status {status}")
    assert asked[0].startswith(b"GET /ready?x=1 HTTP/1.1\r\n")
    assert b"X-Probe: 1\r\n" in asked[0]


async def test_answer_that_is_not_http_fails() -> None:
    async with listening(b"hello there\r\n") as (port, _):
        assert not (await check(Probe(HttpGetAction(port)), no_exec)).ok


async def test_silent_server_fails_at_the_timeout() -> None:
    async with listening(None) as (port, _):
        result = await check(Probe(HttpGetAction(port), timeout_ms=30), no_exec)
    assert result == ProbeResult(False, "no answer within 30 ms")


async def test_tcp_probe_asks_for_a_connection_only() -> None:
    async with listening(None) as (port, _):
        assert (await check(Probe(TcpSocketAction(port)), no_exec)).ok
    assert not (await check(Probe(TcpSocketAction(port)), no_exec)).ok


async def test_host_names_are_not_looked_up() -> None:
    result = await check(Probe(TcpSocketAction(80, host="example.org")), no_exec)
    assert (result.ok, "example.org" in result.message) == (False, True)


async def test_prober_reports_changes_only_and_ends_with_a_restart() -> None:
    answers = iter([True, True, False, False])

    async def run_exec(command: tuple[str, ...], timeout_ms: int) -> ProbeResult:
        return ProbeResult(next(answers), f"ran {command[0]}")

    told: list[ProbeState] = []
    probes = ContainerProbes(
        startup=Probe(ExecAction(("started",)), period_ms=1),
        liveness=Probe(ExecAction(("alive",)), period_ms=1, failure_threshold=2),
    )
    prober = ContainerProber(probes, now_ms(), run_exec=run_exec, now_ms=now_ms, on_change=told.append)
    async with asyncio.timeout(10):
        await prober.run()
    assert [(state.started, state.ready, state.restart is None) for state in told] == [
        (True, True, True),
        (True, False, False),
    ]
    assert prober.state.restart == "liveness probe failed 2 times in a row: ran alive"
