"""doctor, up, status, down, demo: the stack on this machine."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cotenant.cli import output as out
from cotenant.cli import session
from cotenant.cli.brakes import freeze_line
from cotenant.cli.output import Column, Format, Output, field, progress, show_data, show_table
from cotenant.cli.values import duration_s
from cotenant.errors import BadInputError, ExitStatus

NodeOption = Annotated[str | None, typer.Option("--node", help="Node name; default the host name.")]
CpusOption = Annotated[str | None, typer.Option(help="CPUs of the slice, for example 0-3; default all.")]
MemoryOption = Annotated[str | None, typer.Option(help="Memory of the slice, for example 4Gi; default all.")]

LogLevel = Literal["debug", "info", "warning", "error"]
Policy = Literal["default", "conservative", "observe"]


def register(app: typer.Typer) -> None:
    for command in (doctor, up, status, down, demo):
        app.command()(command)


_MARKS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "fault": ("✗", "red"), "info": (" ", "")}


def doctor(output: Output = Format.TABLE) -> int:
    """Say what this machine allows and what you will get; changes nothing."""
    from cotenant.doctor import examine  # noqa: PLC0415

    report = examine(session.home())
    if output in (Format.JSON, Format.YAML):
        show_data(report.as_data(), output)
    else:
        _print_report(report.as_data())
    return int(ExitStatus.CHECK_FAILED if report.faults else ExitStatus.DONE)


def _print_report(report: dict[str, Any]) -> None:
    from rich.text import Text  # noqa: PLC0415

    console = out.console()
    topic = None
    for finding in report["findings"]:
        if finding["topic"] != topic:
            topic = finding["topic"]
            console.print(Text(topic, style="bold"))
        sign, style = _MARKS[finding["mark"]]
        console.print(Text.assemble("  ", (sign, style), f" {finding['name']}: {finding['value']}"))
    console.print(Text("you will get", style="bold"))
    console.print(Text(f"  {report['summary']}"))
    for line in report["you_get"]:
        console.print(Text(f"  {line}"))


def up(  # noqa: PLR0913, PLR0917 - one parameter per option
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay attached; Ctrl-C stops the services.")] = False,
    processes: Annotated[bool, typer.Option("--processes", help="One operating system process per service.")] = False,
    bus_users: Annotated[
        bool,
        typer.Option("--bus-users", help="A login per service that may write what it owns, not one token for all."),
    ] = False,
    node: NodeOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    port: Annotated[int | None, typer.Option(help="Port of the gateway on 127.0.0.1; default any free one.")] = None,
    nats_port: Annotated[int | None, typer.Option(help="Port of nats-server on 127.0.0.1.")] = None,
    cgroup_root: Annotated[str | None, typer.Option(help="Name of the stack's own cgroup.")] = None,
    policy: Annotated[Policy | None, typer.Option(help="Defaults of the node policy; observe writes no knob.")] = None,
    observe: Annotated[bool, typer.Option("--observe", help="Only look: the same as --policy observe.")] = False,
    log_level: Annotated[LogLevel, typer.Option(help="How much the services log.")] = "info",
    timeout: Annotated[str, typer.Option(help="How long to wait for the services.")] = "60s",
) -> int:
    """Start nats-server and every service on this machine and register it as a node."""
    from cotenant.stack.options import StackOptions  # noqa: PLC0415
    from cotenant.workload import parse_amount  # noqa: PLC0415

    if observe and policy not in (None, "observe"):
        raise BadInputError(f"--observe and --policy {policy} contradict each other")
    options = StackOptions(
        home=session.home().root,
        node=node,
        cpus=cpus,
        memory_bytes=parse_amount("memory", memory) if memory else None,
        gateway_port=port,
        nats_port=nats_port,
        cgroup_root=cgroup_root,
        processes=processes,
        bus_users=bus_users,
        policy="observe" if observe else policy,
        log_level=log_level,
    ).checked()
    if foreground:
        from cotenant.stack.run import main as run_here  # noqa: PLC0415

        ended = run_here(options, print)
        if session.home().record.exists():
            print("cotenant: pods go on; `cotenant up` adopts them, `cotenant down` ends them", file=sys.stderr)
        return ended
    from cotenant.stack import control  # noqa: PLC0415

    with progress("starting") as shown:
        record = control.start_detached(options, duration_s(timeout), shown.say)
    print(f"cotenant is up: node {record.node}, gateway {record.gateway_url}, nats {record.nats_url}")
    return int(ExitStatus.DONE)


_STATUS_COLUMNS = (
    field("SERVICE", "service"),
    field("STATE", "state"),
    field("PID", "pid"),
    Column("MEMORY", lambda row: out.memory(row.get("memory_bytes"))),
    Column("CPU%", lambda row: None if row.get("cpu_percent") is None else f"{row['cpu_percent']:.1f}"),
    field("REASON", "reason"),
)


def status(output: Output = Format.TABLE) -> int:
    """Show every service of the stack; status 4 when none runs, 1 when one is not ready."""
    from cotenant.stack import asking, control  # noqa: PLC0415

    found = control.inspect(session.home())
    if output in (Format.JSON, Format.YAML):
        told = asking.gateway_status(found.record.gateway_url, session.home()) if found.record and found.running else {}
        show_data(found.as_data() | {name: told.get(name) for name in ("freeze", "observing")}, output)
    elif found.record is None or not found.running:
        print(
            f"no stack runs in {session.home().root}" + ("; an earlier one was not taken down" if found.record else "")
        )
    else:
        record = found.record
        print(f"node {record.node}, gateway {record.gateway_url}, nats {record.nats_url}, state {session.home().root}")
        show_table(found.rows, _STATUS_COLUMNS)
        if (line := freeze_line(asking.gateway_status(record.gateway_url, session.home()))) is not None:
            print(line)
    if not found.running:
        return int(ExitStatus.NO_CONNECTION)
    return int(ExitStatus.DONE if found.ready else ExitStatus.CHECK_FAILED)


def down(
    keep_state: Annotated[
        bool, typer.Option("--keep-state", help="Keep objects, events and logs for the next up.")
    ] = False,
    grace: Annotated[
        str | None, typer.Option(help="At most this long for pods to end; default their own period.")
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Stop pods and services; leave no process, no cgroup and no changed knob behind."""
    from cotenant.stack import control  # noqa: PLC0415

    with progress("stopping services", quiet=output is Format.JSON) as shown:
        report = control.take_down(
            session.home(), keep_state=keep_state, grace_s=duration_s(grace) if grace else None, say=shown.say
        )
    if output in (Format.JSON, Format.YAML):
        show_data(report.as_data(), output)
    else:
        print(report.sentence())
    return int(ExitStatus.DONE if report.clean else ExitStatus.CHECK_FAILED)


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all four arms.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="One short round; its figures do not hold.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before root is used.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the arrivals.")] = 1,
    output_dir: Annotated[Path, typer.Option(help="Where demo-result.json and demo-result.svg go.")] = Path(),
    examples: Annotated[Path | None, typer.Option(help="Folder of the example programs.")] = None,
) -> int:
    """Show co-location on this machine in four arms and measure it; needs no running stack."""
    from cotenant.demo import DemoOptions, run_demo  # noqa: PLC0415

    options = DemoOptions(rounds=rounds, quick=quick, yes=yes, seed=seed, output_dir=output_dir, examples=examples)
    return int(asyncio.run(run_demo(options)))
