"""install, uninstall, agent join, agent leave: Cotenant under systemd on plain hosts."""

import asyncio
import socket
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.lifecycle import CpusOption, MemoryOption
from cotenant.errors import BadInputError, CotenantError, ExitStatus, RefusedError

if TYPE_CHECKING:
    from cotenant.install.join import Membership

agent_app = typer.Typer(help="This machine as a node of a cluster.", no_args_is_help=True, rich_markup_mode=None)


class Role(StrEnum):
    """``all`` is one machine; ``server`` everything but the agent, for machines that others join."""

    ALL = "all"
    SERVER = "server"
    NATS = "nats"
    GATEWAY = "gateway"
    SCHEDULER = "scheduler"
    QUOTA = "quota"
    PROFILER = "profiler"
    DESCHEDULER = "descheduler"
    AGENT = "agent"


Systemd = Annotated[bool, typer.Option("--systemd", help="As systemd units, the only way there is so far.")]
RoleOption = Annotated[Role, typer.Option(help="Which units: all, server (all but the agent), or one of them.")]
Prefix = Annotated[
    Path | None, typer.Option(help="Write below this directory and touch nothing else, for building an image.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]


def register(app: typer.Typer) -> None:
    app.command()(install)
    app.command()(uninstall)
    agent_app.command("join")(join)
    agent_app.command("leave")(leave)
    app.add_typer(agent_app, name="agent")


def install(
    systemd: Systemd = False,
    role: RoleOption = Role.ALL,
    listen: Annotated[str, typer.Option(help="Address that nats-server listens on; joining nodes must reach it.")] = (
        "127.0.0.1"
    ),
    prefix: Prefix = None,
    dry_run: DryRun = False,
    show: Annotated[bool, typer.Option("--print", help="Print the files instead of writing them.")] = False,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Enable and start the units.")] = True,
) -> int:
    """Write units, configuration and secrets of the services, and start them. What is configured already stays."""
    from cotenant.install import apply, layout  # noqa: PLC0415

    _only_systemd(systemd)
    parts = layout.parts_of(role.value)
    paths, host = apply.paths_here(), apply.Host(prefix, print, dry_run)
    host.require_root()
    token = None if show else apply.kept_token(host, paths.bus_token)
    if role is Role.AGENT and token is None and not show:
        raise BadInputError("no bus was installed here; an agent alone joins one: see `cotenant agent join --help`")
    files = layout.plan_files(parts, paths, listen, token)
    if show:
        for file in files:
            print(f"# {file.path} (mode {file.mode:04o})")
            print("(a secret, made at installation)" if file.secret else file.text)
        return int(ExitStatus.DONE)
    apply.write_files(host, files)
    if Role.NATS.value not in parts and token is None:
        print(f"next     put the address of the bus into {paths.config} and its token into {paths.bus_token}")
    elif start:
        apply.start_units(host, [layout.unit_name(part) for part in parts], layout.TARGET)
    return int(ExitStatus.DONE)


def _only_systemd(systemd: bool) -> None:
    if not systemd:
        raise BadInputError("say --systemd: without it, `cotenant up` runs everything on this machine")


def uninstall(
    systemd: Systemd = False,
    role: RoleOption = Role.ALL,
    prefix: Prefix = None,
    purge: Annotated[bool, typer.Option("--purge", help="Configuration, secrets and state too.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Stop and remove the units. Pods of an agent on this machine end; configuration and state stay without --purge."""
    from cotenant.install import apply, layout  # noqa: PLC0415

    _only_systemd(systemd)
    host = apply.Host(prefix, print, dry_run)
    host.require_root()
    parts = layout.parts_of(role.value)
    paths = apply.paths_here()
    apply.stop_units(host, [layout.unit_name(part) for part in parts])
    clean = True
    if layout.AGENT in parts and not host.staged and not dry_run:
        clean = _end_node(host.place(paths.agent_config))
    gone = [paths.units / layout.unit_name(part) for part in parts]
    if role is Role.ALL:
        gone.append(paths.units / layout.TARGET)
    if purge:
        gone += layout.belongings(parts, paths)
    apply.remove_files(host, gone)
    return int(ExitStatus.DONE if clean else ExitStatus.CHECK_FAILED)


def join(  # noqa: PLR0913, PLR0917 - one parameter per option
    server: Annotated[list[str], typer.Option(help="nats-server of the cluster, nats://HOST:4222; repeatable.")],
    token: Annotated[
        str | None, typer.Option(help="Its token, or - to read it from standard input; others can see an option.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with its token.")] = None,
    own_user: Annotated[
        bool, typer.Option("--own-user", help="It is the password of this node's own user, agent-NODE.")
    ] = False,
    node: Annotated[str | None, typer.Option(help="Name of this node; default the host name.")] = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    prefix: Prefix = None,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start the agent.")] = True,
    dry_run: DryRun = False,
) -> int:
    """Make this machine a node of a running cluster: try the connection, write configuration, start the agent."""
    from cotenant.install import apply, layout  # noqa: PLC0415
    from cotenant.install import join as joining  # noqa: PLC0415

    member = replace(_member(server, joining.read_token(token, token_file), node, cpus, memory), own_user=own_user)
    paths = apply.paths_here()
    host = apply.Host(prefix, print, dry_run)
    host.require_root()
    print(f"checked  {asyncio.run(joining.check(member))}")
    apply.write_files(host, layout.agent_files(paths, member.servers, member.token, member.settings(), member.user))
    if not start or dry_run or host.staged:
        return int(ExitStatus.DONE)
    if host.has_systemd():
        apply.start_units(host, [layout.unit_name(layout.AGENT)], layout.TARGET)
    else:
        print("started  the agent in the foreground (no systemd runs here); Ctrl-C ends it, not its pods", flush=True)
        joining.run_in_foreground(host.place(paths.agent_config))
    return int(ExitStatus.DONE)


def _member(servers: list[str], token: str, node: str | None, cpus: str | None, memory: str | None) -> "Membership":
    from cotenant.install.join import Membership  # noqa: PLC0415
    from cotenant.stack.options import StackOptions  # noqa: PLC0415
    from cotenant.workload import parse_amount  # noqa: PLC0415

    # The same checks as for `cotenant up`: the name, and that this machine has these cpus.
    checked = StackOptions(home=Path("/"), node=node, cpus=cpus).checked()
    return Membership(
        servers=tuple(servers),
        token=token,
        node=checked.node or "",
        cpus=cpus,
        memory_bytes=parse_amount("memory", memory) if memory else None,
    )


def leave(
    keep_config: Annotated[bool, typer.Option("--keep-config", help="Keep configuration and credentials.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Take this machine out: stop the agent, end its pods, write every knob back, remove unit and credentials."""
    from cotenant.install import apply, layout  # noqa: PLC0415

    host = apply.Host(None, print, dry_run)
    host.require_root()
    paths = apply.paths_here()
    config = host.place(paths.agent_config)
    if not config.exists():
        raise BadInputError(f"{config}: no such file; this machine did not join by `cotenant agent join`")
    apply.stop_units(host, [layout.unit_name(layout.AGENT)])
    clean = dry_run or _end_node(config)
    gone = [paths.units / layout.unit_name(layout.AGENT)]
    if not host.others_installed(paths.units, layout.unit_name(layout.AGENT)):
        gone.append(paths.units / layout.TARGET)
    apply.remove_files(host, gone if keep_config else [*gone, paths.agent_config, paths.agent_token])
    return int(ExitStatus.DONE if clean else ExitStatus.CHECK_FAILED)


def _answers(port: int) -> bool:
    """A running agent would start again what we end."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _end_node(config: Path) -> bool:
    """True when nothing is left of the node; also when there never was one."""
    if not config.exists():
        return True
    from cotenant_agent.config import AgentSettings  # noqa: PLC0415
    from cotenant_agent.leave import leave as leave_node  # noqa: PLC0415
    from cotenant_agent.leave import sentence  # noqa: PLC0415
    from cotenant_common.runtime.settings import SettingsError, load_settings  # noqa: PLC0415

    try:
        settings = load_settings(AgentSettings, config)
    except SettingsError as error:
        raise CotenantError(str(error)) from error
    if _answers(settings.http_port):
        raise RefusedError(f"the agent of {settings.node} still runs (port {settings.http_port}); stop it first")
    end = leave_node(settings)
    print(sentence(settings.node, end))
    return end.clean
