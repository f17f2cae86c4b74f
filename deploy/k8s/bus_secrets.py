#!/usr/bin/env python3
"""Print the secrets of the bus for Kubernetes: `python3 deploy/k8s/bus_secrets.py DIR | kubectl apply -f -`.

DIR is what `cotenant contracts nats-conf --out DIR --auth nkey --agents NODE,…` wrote. With ``--own-login``, for
overlays with components/own-login, the agents' logins are left out: each goes to its node. The logins of the operator,
of applications and of outside tools stay in DIR. Needs Python alone.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

SERVICES = ("gateway", "scheduler", "quota", "profiler", "descheduler")
AGENTS = "agent-*.secret"
LARGEST_BYTES = 1 << 20
"""Of one secret, as Kubernetes has it."""


class BadDirectoryError(Exception):
    """The directory does not hold what is needed."""


def secrets_in(directory: Path, namespace: str, *, own_login: bool = False) -> list[dict[str, Any]]:
    """Raise BadDirectoryError."""
    found = [secret("cotenant-nats-auth", namespace, {"auth.conf": text_of(directory / "auth.conf")})]
    found += [
        secret(f"cotenant-bus-{service}", namespace, {"nkey": seed_of(directory / f"{service}.secret")})
        for service in SERVICES
    ]
    if own_login:
        return found
    agents = {path.name: seed_of(path) for path in sorted(directory.glob(AGENTS))}
    if not agents:
        raise BadDirectoryError(f"{directory}: expected logins of nodes, {AGENTS}; name the nodes with --agents")
    return [*found, secret("cotenant-bus-agents", namespace, agents)]


def secret(name: str, namespace: str, files: dict[str, str]) -> dict[str, Any]:
    size = sum(len(text.encode()) for text in files.values())
    if size > LARGEST_BYTES:
        raise BadDirectoryError(f"{name}: {size} bytes, and Kubernetes takes {LARGEST_BYTES} in one secret")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "cotenant"}},
        "type": "Opaque",
        "stringData": files,
    }


def seed_of(path: Path) -> str:
    seed = text_of(path)
    if not seed.startswith("SU"):
        raise BadDirectoryError(f"{path}: expected the seed of an nkey; make the directory with --auth nkey")
    return seed


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        made = "`cotenant contracts nats-conf --out DIR --auth nkey` makes it"
        raise BadDirectoryError(f"{path}: cannot be read: {error.strerror}; {made}") from error


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--namespace", default="cotenant")
    parser.add_argument("--own-login", action="store_true", help="leave out the agents' logins: each node has its own")
    given = parser.parse_args(arguments)
    try:
        found = secrets_in(given.directory, given.namespace, own_login=given.own_login)
    except BadDirectoryError as error:
        print(f"secrets: {error}", file=sys.stderr)
        return 3
    json.dump({"apiVersion": "v1", "kind": "List", "items": found}, sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
