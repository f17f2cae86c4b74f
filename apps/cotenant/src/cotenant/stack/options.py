"""What a user may choose about a stack."""

import json
import os
import socket
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from cotenant.errors import BadInputError
from cotenant.stack.home import StackHome
from cotenant_common.model.ids import is_dns_subdomain
from cotenant_common.telemetry.logging import Level

Policy = Literal["default", "conservative", "observe"]


@dataclass(frozen=True, slots=True)
class StackOptions:
    """``cpus`` is the slice in kernel list format (``0-3``); unset slices mean the whole machine.

    ``cgroup_root`` names the stack's own group; two stacks on one machine need two names.
    """

    home: Path
    node: str | None = None
    cpus: str | None = None
    memory_bytes: int | None = None
    gateway_port: int | None = None
    nats_port: int | None = None
    cgroup_root: str | None = None
    processes: bool = False
    bus_users: bool = False
    """A login of its own for every service, which may write what it owns; else one token for all."""
    policy: Policy | None = None
    log_level: Level = "info"

    @property
    def state(self) -> StackHome:
        return StackHome(self.home)

    def checked(self) -> "StackOptions":
        """Fill the defaults in. Raise BadInputError for what cannot work."""
        if sys.platform != "linux":
            raise BadInputError(f"the stack needs Linux, this is {sys.platform}; `cotenant doctor` says more")
        node = self.node or default_node_name()
        if not is_dns_subdomain(node):
            raise BadInputError(f"--node {node!r}: expected lower-case letters, digits, '-' and '.'")
        if self.cpus is not None:
            missing = sorted(_cpu_list(self.cpus) - os.sched_getaffinity(0))
            if missing:
                raise BadInputError(f"--cpus {self.cpus}: this machine lets us use no cpu {missing[0]}")
        for name, port in (("--port", self.gateway_port), ("--nats-port", self.nats_port)):
            if port is not None and not 0 < port < 65_536:
                raise BadInputError(f"{name} {port}: expected 1 to 65535")
        return replace(self, node=node)

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "StackOptions":
        raw = json.loads(text)
        return cls(**raw | {"home": Path(raw["home"])})


def default_node_name() -> str:
    """The host name as a Kubernetes name."""
    name = socket.gethostname().lower().replace("_", "-").strip("-.")
    return name if is_dns_subdomain(name) else "localhost"


def _cpu_list(text: str) -> set[int]:
    found: set[int] = set()
    try:
        for part in text.split(","):
            low, dash, high = part.partition("-")
            found.update(range(int(low), int(high if dash else low) + 1))
    except ValueError:
        raise BadInputError(f"--cpus {text!r}: expected a list such as 0-3,8") from None
    if not found:
        raise BadInputError(f"--cpus {text!r}: no cpu in it")
    return found
