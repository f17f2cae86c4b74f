"""Make this machine a node of a cluster that runs elsewhere: try the connection first, then write anything."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from cotenant.errors import BadInputError, CotenantError, NoConnectionError, RefusedError
from cotenant.stack.home import boot_id
from cotenant_common.bus.login import Login
from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import BusError
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import HEARTBEATS, NODES, SPECS
from cotenant_common.contracts.messages.state import NodeInventory
from cotenant_common.contracts.permissions import agent_user
from cotenant_common.model.ids import encode_token

_CONNECT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Membership:
    servers: tuple[str, ...]
    token: str
    node: str
    cpus: str | None = None
    memory_bytes: int | None = None
    own_user: bool = False
    """``token`` is the password of the node's own user, not what everyone shares."""

    @property
    def user(self) -> str | None:
        return agent_user(self.node).name if self.own_user else None

    def login(self) -> Login:
        secret = SecretStr(self.token)
        return Login(token=secret) if self.user is None else Login(user=self.user, password=secret)

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"node": self.node, "cpus": self.cpus, "memory_bytes": self.memory_bytes}
        return {name: value for name, value in found.items() if value is not None}


def read_token(text: str | None, file: Path | None) -> str:
    """From the option, a file, or ``-`` for standard input; the process list shows the option to everybody."""
    if (text is None) == (file is None):
        raise BadInputError("expected one of --token and --token-file")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"--token-file: cannot read {file}: {error.strerror}") from error
    elif text == "-":
        text = sys.stdin.readline()
    found = (text or "").strip()
    if not found:
        raise BadInputError("the token is empty")
    return found


async def check(member: Membership) -> str:
    """What was found, in a sentence. Raise CotenantError when the agent could not work there."""
    try:
        bus = await connect(member.servers, name="cotenant-join", login=member.login(), timeout_s=_CONNECT_S)
    except BusError as error:
        raise NoConnectionError(f"{error}; is the token right and the port open?") from error
    try:
        return await _examine(bus, member)
    except BusError as error:
        raise CotenantError(f"connected to {member.servers[0]}, but: {error}") from error
    finally:
        await bus.close()


async def _examine(bus: NatsBus, member: Membership) -> str:
    if await bus.snapshots().find(SPECS.stream) is None:
        return f"{member.servers[0]} answers, and no gateway has used it yet"
    for spec in (NODES, HEARTBEATS):
        if await bus.snapshots().find(spec.stream) is None:
            return f"{member.servers[0]} answers, this is its first node"
    key = encode_token(member.node)
    alive = await (await bus.bucket(HEARTBEATS)).get(key)
    entry = await (await bus.bucket(NODES)).get(key)
    if alive is not None and entry is not None and entry.value is not None:
        other = codec.decode(NodeInventory, entry.value).boot_id
        if other and other != boot_id():
            raise RefusedError(
                f"another machine reports as node {member.node!r} at this moment; choose another name with --node"
            )
    return f"{member.servers[0]} answers, the cluster is there"


def run_in_foreground(config: Path) -> None:
    """Become the agent; returns only when that fails."""
    environment = {**os.environ, "COTENANT_CONFIG": str(config)}
    os.execve(sys.executable, [sys.executable, "-m", "cotenant_agent"], environment)  # noqa: S606 - no shell wanted
