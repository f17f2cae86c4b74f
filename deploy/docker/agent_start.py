#!/usr/bin/env python3
"""Start the agent in a container so that its pods outlive the container.

A container engine ends a container that shares the host's process ids by killing every process in its cgroups. Pods are
in groups of the agent's own for the controllers that the agent writes; in all others (on cgroup v1: devices, blkio, …)
they would stay in the container's group and die with it. So the agent leaves those before its first pod starts.

``--logins DIR`` is for where one description serves all nodes: of the files agent-NODE.secret, the agent logs in with
its own node's.
"""

import os
import sys
from pathlib import Path

from cotenant_agent.cgroup.files import PROCS, V1_CONTROLLERS
from cotenant_common.contracts.permissions import agent_user
from cotenant_common.model.ids import InvalidNameError

CGROUP_FS = Path(os.environ.get("COTENANT_AGENT_CGROUP_FS", "/sys/fs/cgroup"))


def leave_foreign_groups(cgroup_fs: Path) -> list[str]:
    """Names of the v1 hierarchies whose root this process now belongs to; none on cgroup v2."""
    own = {(cgroup_fs / name).resolve() for name in V1_CONTROLLERS}
    left = []
    for hierarchy in sorted({path.resolve() for path in cgroup_fs.iterdir() if path.is_dir()}):
        if hierarchy not in own and not (hierarchy / "cgroup.controllers").exists() and (hierarchy / PROCS).exists():
            (hierarchy / PROCS).write_text(str(os.getpid()))
            left.append(hierarchy.name)
    return left


def own_login(logins: Path, node: str | None) -> dict[str, str]:
    """Settings of the agent. Raise ValueError saying what is missing."""
    if not node:
        raise ValueError("--logins needs COTENANT_AGENT_NODE")
    try:
        user = agent_user(node).name
    except InvalidNameError as error:
        raise ValueError(f"COTENANT_AGENT_NODE: {error}") from error
    login = logins / f"{user}.secret"
    if not login.is_file():
        raise ValueError(f"no login for node {node}: expected {login}; add the node to --agents of nats-conf")
    return {"COTENANT_AGENT_NATS_USER": user, "COTENANT_AGENT_NATS_NKEY_FILE": str(login)}


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            pass
        case ["--logins", logins]:
            try:
                os.environ.update(own_login(Path(logins), os.environ.get("COTENANT_AGENT_NODE")))
            except ValueError as error:
                sys.exit(f"agent: {error}")
        case _:
            sys.exit(f"agent: expected --logins DIR or nothing, got {' '.join(arguments)}")
    if not (CGROUP_FS / "cgroup.controllers").exists():
        try:
            leave_foreign_groups(CGROUP_FS)
        except OSError as error:
            sys.exit(
                f"agent: cannot leave the container's groups under {CGROUP_FS}: {error}; it needs root, the host's "
                "cgroup namespace and /sys/fs/cgroup mounted for writing"
            )
    os.execv(sys.executable, [sys.executable, "-m", "cotenant_agent"])


if __name__ == "__main__":
    main(sys.argv[1:])
