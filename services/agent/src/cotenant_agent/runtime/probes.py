"""Asks the probes of one container and reports what they change."""

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Awaitable, Callable

from cotenant_agent.runtime.probe_core import (
    ContainerProbes,
    HttpGetAction,
    Probe,
    ProbeKind,
    ProbeResult,
    ProbeState,
    TcpSocketAction,
    initial,
    next_at_ms,
    observe,
)

ExecProbe = Callable[[tuple[str, ...], int], Awaitable[ProbeResult]]
"""Runs a command beside the container: the command and its timeout in milliseconds."""

_STATUS_LINE_BYTES = 4096


class ContainerProber:
    """One task per probe, so that a hanging readiness check never delays liveness."""

    def __init__(
        self,
        probes: ContainerProbes,
        started_at_ms: int,
        *,
        run_exec: ExecProbe,
        now_ms: Callable[[], int],
        on_change: Callable[[ProbeState], None],
    ) -> None:
        self._probes = probes
        self._state = initial(probes, started_at_ms)
        self._run_exec = run_exec
        self._now_ms = now_ms
        self._on_change = on_change
        self._started = asyncio.Event()
        if self._state.started:
            self._started.set()

    @property
    def state(self) -> ProbeState:
        return self._state

    async def run(self) -> None:
        """Until cancelled, or until a probe asks for a restart."""
        async with asyncio.TaskGroup() as tasks:
            for kind in ProbeKind:
                probe = self._probes.get(kind)
                if probe is not None:
                    tasks.create_task(self._ask(kind, probe), name=f"{kind} probe")

    async def _ask(self, kind: ProbeKind, probe: Probe) -> None:
        if kind is not ProbeKind.STARTUP:
            await self._started.wait()
        while (due_ms := next_at_ms(self._state, kind)) is not None:
            delay_ms = due_ms - self._now_ms()
            if delay_ms > 0:
                await asyncio.sleep(delay_ms / 1000)
                continue
            self._apply(kind, await check(probe, self._run_exec))

    def _apply(self, kind: ProbeKind, result: ProbeResult) -> None:
        before = self._state
        self._state = observe(self._probes, before, kind, result, self._now_ms())
        if self._state.started or self._state.restart is not None:
            self._started.set()
        outcome = (self._state.started, self._state.ready, self._state.restart)
        if outcome != (before.started, before.ready, before.restart):
            self._on_change(self._state)


async def check(probe: Probe, run_exec: ExecProbe) -> ProbeResult:
    """One question. A failure to ask is a failed probe, with what went wrong as its message."""
    action = probe.action
    try:
        async with asyncio.timeout(probe.timeout_ms / 1000):
            if isinstance(action, HttpGetAction):
                return await _http_get(action)
            if isinstance(action, TcpSocketAction):
                return await _tcp_socket(action)
    except TimeoutError:
        return ProbeResult(False, f"no answer within {probe.timeout_ms} ms")
    except (OSError, ValueError, asyncio.LimitOverrunError) as error:
        return ProbeResult(False, str(error) or type(error).__name__)
    # The shim holds this deadline: cancelling here would leave the command running.
    return await run_exec(action.command, probe.timeout_ms)


def _address(host: str) -> str:
    # A name would be looked up in asyncio's thread pool, and a pod has no address but this machine's.
    return "127.0.0.1" if host in ("", "localhost") else str(ipaddress.ip_address(host))


async def _tcp_socket(action: TcpSocketAction) -> ProbeResult:
    _, writer = await asyncio.open_connection(_address(action.host), action.port)
    await _close(writer)
    return ProbeResult(True, f"port {action.port} accepts connections")


async def _http_get(action: HttpGetAction) -> ProbeResult:
    """200 to 399 is success, as for the kubelet; certificates are not verified, as there."""
    address = _address(action.host)
    context = None
    if action.scheme.upper() == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(address, action.port, ssl=context, limit=_STATUS_LINE_BYTES)
    try:
        writer.write(_request(action, address))
        await writer.drain()
        status = int((await reader.readline()).split()[1])
    except IndexError:
        return ProbeResult(False, "the answer is not HTTP")
    finally:
        await _close(writer)
    return ProbeResult(200 <= status < 400, f"HTTP status {status}")


def _request(action: HttpGetAction, address: str) -> bytes:
    path = action.path if action.path.startswith("/") else f"/{action.path}"
    headers = {"Host": f"{address}:{action.port}", "User-Agent": "cotenant-probe", "Accept": "*/*"}
    headers |= dict(action.headers) | {"Connection": "close"}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in the probe's path or headers")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
