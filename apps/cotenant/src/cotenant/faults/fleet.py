"""One process per service, as many copies as wanted, two nodes, one nats-server; each can be hurt alone."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotenant.errors import CotenantError
from cotenant.faults.plan import NATS
from cotenant.faults.proxy import Cable
from cotenant.stack import ports
from cotenant.stack.home import StackHome
from cotenant.stack.nats import NatsChild, prepare_nats
from cotenant.stack.processes import Child
from cotenant.stack.services import LEADERS
from cotenant_common.runtime.settings import variable_prefix

_NODE_MEMORY_BYTES: Final = 1 << 30
_STOP_S: Final = 8.0


@dataclass(slots=True)
class Member:
    """One process. ``up`` is what the run wants, not what is."""

    name: str
    child: Child
    cable: Cable
    health_url: str
    up: bool = True

    @property
    def pid(self) -> int | None:
        return self.child.pid


@dataclass(slots=True)
class Fleet:
    """``copies`` of every service that leads by a lease; an agent for each of ``nodes``."""

    root: Path
    cgroup_root: str
    copies: int = 1
    nodes: tuple[str, ...] = ("fault-0", "fault-1")
    members: dict[str, Member] = field(default_factory=dict)
    gateway_urls: list[str] = field(default_factory=list)
    _nats: NatsChild | None = None
    _ports: list[int] = field(default_factory=list)

    @property
    def home(self) -> StackHome:
        return StackHome(self.root)

    @property
    def nats(self) -> NatsChild:
        if self._nats is None:
            raise CotenantError("the fleet was not started")
        return self._nats

    @property
    def token(self) -> str:
        return self.home.token(self.home.api_token)

    def state_dir(self, node: str) -> Path:
        return self.root / f"agent-{node}"

    async def start(self) -> None:
        self.home.create()
        self._nats = prepare_nats(self.home, self._port())
        await self._nats.start()
        for service in LEADERS:
            for copy in range(self.copies):
                await self._add(f"{service}-{copy}", service, self._settings_of(service))
        for at, node in enumerate(self.nodes):
            await self._add(f"agent-{at}", "agent", self._settings_of_agent(at, node))

    async def stop(self) -> None:
        """Services first, all at once; pods are ended by ``cleanup``."""
        await asyncio.gather(*(self._stop(member) for member in self.members.values()))
        if self._nats is not None:
            await self._nats.stop()

    async def _stop(self, member: Member) -> None:
        if member.pid is not None:
            os.kill(member.pid, signal.SIGCONT)
        await member.child.stop(_STOP_S)
        await member.cable.stop()

    def kill(self, name: str) -> None:
        """At once and without a farewell; ``start_again`` brings it back."""
        pid = self._child(name).pid
        if name != NATS:
            self.members[name].up = False
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def start_again(self, name: str) -> None:
        child = self._child(name)
        if child.process is not None:
            await child.process.wait()
            child.process = None
        if name == NATS:
            await self.nats.start()
            return
        await child.start()
        self.members[name].up = True

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self._child(name).pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def revive(self) -> list[str]:
        """Start whatever ended by itself, as a supervisor would; the names of those."""
        ended = []
        for name, member in self.members.items():
            if member.up and member.pid is None:
                ended.append(name)
                await self.start_again(name)
        return ended

    def _child(self, name: str) -> Child:
        return self.nats.child if name == NATS else self.members[name].child

    def _port(self) -> int:
        self._ports.append(ports.choose("fault run", None, None, self._ports))
        return self._ports[-1]

    async def _add(self, name: str, service: str, settings: Mapping[str, Any]) -> None:
        cable = Cable(self._port(), self.nats.port)
        await cable.start()
        health_port = self._port()
        common = {
            "nats_servers": f"nats://{ports.LOOPBACK}:{cable.port}",
            "nats_token_file": self.home.nats_token,
            "http_port": health_port,
            "log_level": "info",
            "instance": name,
        }
        prefix = variable_prefix(service)
        child = Child(
            name=name,
            command=[sys.executable, "-m", f"cotenant_{service}"],
            log=self.home.logs / f"{name}.log",
            environment=dict(os.environ)
            | {prefix + key.upper(): str(value) for key, value in {**common, **settings}.items()},
        )
        self.members[name] = Member(name, child, cable, f"http://{ports.LOOPBACK}:{health_port}")
        await child.start()

    def _settings_of(self, service: str) -> dict[str, Any]:
        if service != "gateway":
            return {}
        self.home.token(self.home.api_token)
        port = self._port()
        self.gateway_urls.append(f"http://{ports.LOOPBACK}:{port}")
        return {"api_port": port, "api_token_file": self.home.api_token}

    def _settings_of_agent(self, at: int, node: str) -> dict[str, Any]:
        cpus = sorted(os.sched_getaffinity(0))
        return {
            "node": node,
            "state_dir": self.state_dir(node),
            "cgroup_root": self.cgroup_root,
            "cpus": str(cpus[at % len(cpus)]),
            "memory_bytes": _NODE_MEMORY_BYTES,
        }
