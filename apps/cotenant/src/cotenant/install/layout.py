"""Which files an installation under systemd has, and their contents. Plain data: nothing is written here."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from cotenant.install.units import NATS, Paths, render_target, render_unit
from cotenant.stack.services import LEADERS, SERVICES

AGENT: Final = "agent"
SERVER_ROLE: Final = "server"
ALL_ROLE: Final = "all"
USER: Final = "cotenant"
SYSUSERS: Final = PurePosixPath("/etc/sysusers.d/cotenant.conf")
TARGET: Final = "cotenant.target"
HEALTH_PORTS: Final[Mapping[str, int]] = {name: 9101 + at for at, name in enumerate(SERVICES)}
"""On loopback; fixed, so that a scrape configuration can name them."""
API_PORT: Final = 7070
NATS_PORT: Final = 4222


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """``keep``: what stands there already is the administrator's and stays. ``owner`` None is root."""

    path: PurePosixPath
    text: str
    mode: int
    owner: str | None = None
    keep: bool = False
    secret: bool = False


def parts_of(role: str) -> tuple[str, ...]:
    """The units of a role, in the order in which they are started."""
    if role == ALL_ROLE:
        return (NATS, *SERVICES)
    if role == SERVER_ROLE:
        return (NATS, *LEADERS)
    return (role,)


def unit_name(part: str) -> str:
    return f"cotenant-{part}.service"


def plan_files(parts: Iterable[str], paths: Paths, listen: str, token: str | None = None) -> list[PlannedFile]:
    """``token`` is the bus token that this host has already; a new installation makes one."""
    chosen = tuple(parts)
    token = token or secrets.token_urlsafe(32)
    files = [_unit(part, paths) for part in chosen]
    files.append(PlannedFile(paths.units / TARGET, render_target(), 0o644))
    if set(chosen) - {AGENT}:
        files += [
            PlannedFile(SYSUSERS, _SYSUSERS, 0o644),
            PlannedFile(paths.config, _config(chosen, paths), 0o640, owner=USER, keep=True),
            PlannedFile(paths.bus_token, token + "\n", 0o600, owner=USER, keep=True, secret=True),
        ]
    if "gateway" in chosen:
        api = secrets.token_urlsafe(32)
        files.append(PlannedFile(paths.api_token, api + "\n", 0o600, owner=USER, keep=True, secret=True))
    if NATS in chosen:
        files += [
            PlannedFile(paths.nats_config, _nats_config(paths, listen), 0o640, owner=USER, keep=True),
            PlannedFile(paths.nats_auth, _nats_auth(token), 0o600, owner=USER, keep=True, secret=True),
        ]
    if AGENT in chosen:
        own = PlannedFile(paths.agent_token, token + "\n", 0o600, keep=True, secret=True)
        files += [agent_config(paths, (_local_url(),), {}), own]
    return files


def _unit(part: str, paths: Paths) -> PlannedFile:
    return PlannedFile(paths.units / unit_name(part), render_unit(part, paths), 0o644)


def agent_files(
    paths: Paths, servers: tuple[str, ...], token: str, settings: Mapping[str, Any], user: str | None = None
) -> list[PlannedFile]:
    """What ``cotenant agent join`` writes: it replaces the configuration and the credentials of an earlier join."""
    config = agent_config(paths, servers, settings, user)
    return [
        _unit(AGENT, paths),
        PlannedFile(paths.units / TARGET, render_target(), 0o644),
        PlannedFile(config.path, config.text, config.mode),
        PlannedFile(paths.agent_token, token + "\n", 0o600, secret=True),
    ]


def agent_config(
    paths: Paths, servers: tuple[str, ...], settings: Mapping[str, Any], user: str | None = None
) -> PlannedFile:
    secret = str(paths.agent_token)
    login = {"nats_token_file": secret} if user is None else {"nats_user": user, "nats_password_file": secret}
    common = {"nats_servers": list(servers), **login}
    own = {"http_port": HEALTH_PORTS[AGENT], "state_dir": str(paths.state / AGENT), **settings}
    text = _AGENT_HEAD + yaml.safe_dump({"common": common, AGENT: own}, sort_keys=False)
    return PlannedFile(paths.agent_config, text, 0o600, keep=True)


def belongings(parts: Iterable[str], paths: Paths) -> list[PurePosixPath]:
    """Configuration, secrets and state of these units, and only of these: the others may still run."""
    chosen = set(parts)
    found: list[PurePosixPath] = []
    if NATS in chosen:
        found += [paths.nats_config.parent, paths.state / NATS]
    if AGENT in chosen:
        found += [paths.agent_config, paths.agent_token, paths.state / AGENT]
    if "gateway" in chosen:
        found.append(paths.api_token)
    if chosen >= set(parts_of(SERVER_ROLE)):
        found += [paths.config, paths.bus_token, SYSUSERS]
    return found


def _local_url() -> str:
    return f"nats://127.0.0.1:{NATS_PORT}"


def _config(parts: tuple[str, ...], paths: Paths) -> str:
    sections: dict[str, dict[str, Any]] = {
        "common": {"nats_servers": [_local_url()], "nats_token_file": str(paths.bus_token), "log_level": "info"}
    }
    for part in parts:
        if part in HEALTH_PORTS and part != AGENT:
            sections[part] = {"http_port": HEALTH_PORTS[part]}
    if "gateway" in sections:
        sections["gateway"] |= {
            "api_host": "127.0.0.1",
            "api_port": API_PORT,
            "api_token_file": str(paths.api_token),
        }
    return _CONFIG_HEAD + yaml.safe_dump(sections, sort_keys=False)


def _nats_config(paths: Paths, listen: str) -> str:
    # JSON strings are valid in the server's format; none of these values holds a quote.
    return (
        "# nats-server of this installation; `nats-server -t -c FILE` checks it.\n"
        "server_name: cotenant\n"
        f'listen: "{listen}:{NATS_PORT}"\n'
        'http: "127.0.0.1:8222"\n'
        "# A tree of quotas is one message: some thousands of quotas fit.\n"
        "max_payload: 8MB\n"
        "# Bindings and specs are promises: an acknowledged write must survive a power cut.\n"
        f'jetstream {{ store_dir: "{paths.state / NATS}", sync_interval: always, max_file_store: 4GB }}\n'
        "# Who may connect. Relative to this file.\n"
        f'include "{paths.nats_auth.name}"\n'
    )


def _nats_auth(token: str) -> str:
    return f'authorization {{ token: "{token}" }}\n'


_CONFIG_HEAD: Final = (
    "# Settings of the services on this host; `cotenant config validate SERVICE FILE` checks them. Each may also\n"
    "# come as COTENANT_<SERVICE>_<SETTING>. What is not named has its default; each service's config.py explains it.\n"
)
_AGENT_HEAD: Final = (
    "# The agent of this node. A slice of the machine instead of all of it: cpus: 0-7 and memory_bytes: 8589934592.\n"
)
_SYSUSERS: Final = f'# Owns the services and nats-server; the agent is root.\nu {USER} - "Cotenant" /var/lib/cotenant\n'
