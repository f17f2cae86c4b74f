"""The stack's logins, made once: a user of the bus for each service, node and tool, and the API token.

Runs as root in a one-shot container, because a fresh volume belongs to root and the services do not run as root. All of
it stays in /logins, which no other container mounts; each user gets a copy of its own in a volume of its own, readable
by the user of that container alone. ``--rotate`` makes everything new.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from cotenant.bus_users import CONFIG, write_users
from cotenant.errors import BadInputError
from cotenant_common.contracts.permissions import observer_user
from cotenant_common.contracts.server_config import Login

NODES = ("node-a", "node-b")
SERVICES = ("gateway", "scheduler", "quota", "profiler", "descheduler")
SERVICE, COMMAND_LINE, OBSERVER, ROOT = 10001, 10003, 10004, 0
"""Users of the containers: docker-compose.yml and deploy/docker/Dockerfile."""
LOGINS, TO, DATA = Path("/logins"), Path("/to"), Path("/data")
API_TOKEN = "api-token"
NKEY = "nkey"


def shares(observers: list[str]) -> dict[str, tuple[int, Mapping[str, str]]]:
    """Per volume its owner, and the names there of the files that its container gets."""
    users = {service: service for service in SERVICES} | {node: f"agent-{node}" for node in NODES}
    found: dict[str, tuple[int, Mapping[str, str]]] = {
        name: (ROOT if name in NODES else SERVICE, {NKEY: f"{user}.secret"}) for name, user in users.items()
    }
    found["gateway"] = SERVICE, {NKEY: "gateway.secret", API_TOKEN: API_TOKEN}
    # Public halves only, but who may do what is nobody else's business.
    found["nats"] = SERVICE, {CONFIG: CONFIG}
    found["cli"] = COMMAND_LINE, {NKEY: "operator.secret", API_TOKEN: API_TOKEN}
    found["observers"] = OBSERVER, {f"{name}.secret": f"{name}.secret" for name in observers}
    return found


def hand_out(folder: Path, owner: int, files: Mapping[str, Path]) -> None:
    """Make the folder hold these files and nothing else."""
    own(folder, owner, 0o700)
    for left in {path.name for path in folder.iterdir()} - set(files):
        (folder / left).unlink()
    for name, source in files.items():
        write(folder / name, source.read_text(), owner)


def write(path: Path, text: str, owner: int) -> None:
    """Never half written: a container may start in the middle of a rotation."""
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    own(fresh, owner, 0o400)
    fresh.replace(path)


def own(path: Path, owner: int, mode: int) -> None:
    path.chmod(mode)
    os.chown(path, owner, owner)


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--rotate"]):
        sys.exit(f"setup: expected nothing or --rotate, got {' '.join(arguments)}")
    rotate = bool(arguments)
    observers = [name.strip() for name in os.environ.get("COTENANT_OBSERVERS", "").split(",") if name.strip()]
    own(LOGINS, ROOT, 0o700)
    try:
        # Seeds, because the bus of this stack is not encrypted: no secret passes it, and the server keeps none.
        write_users(LOGINS, NODES, observers, Login.NKEY, rotate=rotate)
    except BadInputError as error:
        sys.exit(f"setup: COTENANT_OBSERVERS: {error}")
    if rotate or not (LOGINS / API_TOKEN).exists():
        write(LOGINS / API_TOKEN, secrets.token_urlsafe(32) + "\n", ROOT)
    for name, (owner, files) in shares([observer_user(each).name for each in observers]).items():
        hand_out(TO / name, owner, {own_name: LOGINS / kept for own_name, kept in files.items()})
    own(DATA, SERVICE, 0o700)


if __name__ == "__main__":
    main(sys.argv[1:])
