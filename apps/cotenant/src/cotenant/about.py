"""Versions."""

import platform
import subprocess
from importlib.metadata import version

from cotenant.errors import CotenantError


def versions() -> dict[str, str]:
    return {"cotenant": version("cotenant"), "python": platform.python_version(), "nats-server": server_version()}


def server_version() -> str:
    from cotenant.stack.nats import find_server  # noqa: PLC0415

    try:
        done = subprocess.run([find_server(), "--version"], capture_output=True, text=True, timeout=5, check=True)
    except (CotenantError, OSError, subprocess.SubprocessError):
        return "not found"
    return done.stdout.strip().rpartition(" ")[2].removeprefix("v")
