"""Before anything is changed: what will be used, why root, and whether the user agrees."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich.console import Console

from cotenant.demo.programs import User
from cotenant.errors import RefusedError
from cotenant_agent.capability import Capabilities, Level, outlook

DELEGATED_VARIABLE: Final = "COTENANT_DEMO_DELEGATED"


def why_root(user: User) -> list[str]:
    return [
        "This demo runs as root, which it needs for two things:",
        "  groups of its own (cgroups) for the service and its neighbours, with weight, cap and memory limit;",
        "  real-time priority for the load generator, so that the measurement does not wait for what it measures.",
        f"Service, load generator and neighbours run as user {user.uid} ({user.why}).",
        "Every setting that is written is put back at the end, also after Ctrl-C, and compared.",
    ]


def means(found: Capabilities) -> list[str]:
    """What isolates here, strongest first, and what is missing."""
    view = outlook(found)
    lines = [f"isolation here is {view.summary}"]
    if view.level is not Level.FULL:
        lines += [f"  {line}" for line in view.lines]
    return lines


def delegated_command(
    found: Capabilities, arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> list[str] | None:
    """The same demo inside a delegated systemd scope; None where that is not needed, not possible, or done already."""
    if found.root or found.cgroup_version is not None or not found.can_delegate or DELEGATED_VARIABLE in environ:
        return None
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--property=Delegate=yes"]
    return [*scope, f"--setenv={DELEGATED_VARIABLE}=1", sys.executable, "-m", "cotenant.demo", *arguments]


def ask(console: Console, user: User, *, yes: bool, read: Callable[[str], str] = input) -> None:
    """Say why root is used. Ask on a terminal only; raise RefusedError on a no."""
    if os.geteuid() != 0:
        return
    for line in why_root(user):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if yes or not sys.stdin.isatty():
        return
    if read("Go on? [Y/n] ").strip().lower() not in ("", "y", "yes"):
        raise RefusedError("the demo was not started; without root it runs with fewer means: try it as another user")
