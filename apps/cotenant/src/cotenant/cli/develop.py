"""bench, contracts, config, version: for those who build on it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cotenant.cli.output import Format, Output, progress, show_data, show_table
from cotenant.cli.output import field as column
from cotenant.cli.values import duration_ms
from cotenant.errors import BadInputError, CotenantError, ExitStatus

bench_app = typer.Typer(
    help="Measure; every result names the machine it was taken on.", no_args_is_help=True, rich_markup_mode=None
)
contracts_app = typer.Typer(
    help="Documents generated from the declarations.", no_args_is_help=True, rich_markup_mode=None
)
config_app = typer.Typer(help="Settings files.", no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    bench_app.command("startup")(bench_startup)
    bench_app.command("idle")(bench_idle)
    bench_app.command("agent")(bench_agent)
    bench_app.command("scheduler")(bench_scheduler)
    bench_app.command("quota")(bench_quota)
    bench_app.command("simulate")(bench_simulate)
    bench_app.command("faults")(bench_faults)
    bench_app.command("plan")(bench_plan)
    bench_app.command("reality")(bench_reality)
    bench_app.command("story")(bench_story)
    contracts_app.command("write")(contracts_write)
    contracts_app.command("check")(contracts_check)
    contracts_app.command("nats-conf")(contracts_nats_conf)
    config_app.command("validate")(config_validate)
    app.add_typer(bench_app, name="bench")
    app.add_typer(contracts_app, name="contracts")
    app.add_typer(config_app, name="config")
    app.command()(version)


def _report(result: dict[str, Any], output: Format) -> int:
    if output in (Format.JSON, Format.YAML):
        show_data(result, output)
    else:
        figures = [{"figure": name, "value": value} for name, value in result["figures"].items()]
        show_table(figures, (column("FIGURE", "figure"), column("VALUE", "value")))
        rig = result["rig"]
        where = f"{rig['cpu_model']}, {rig['cores']} cores, kernel {rig['kernel']}"
        print(f"on {where}, python {rig['python']}, load {rig['load']}")
    return int(ExitStatus.DONE)


def bench_startup(
    samples: Annotated[int, typer.Option(min=2, help="Pods to submit, one after the other.")] = 30,
    output: Output = Format.TABLE,
) -> int:
    """Time from submit to running on an idle stack."""
    from cotenant.bench import startup  # noqa: PLC0415

    with progress(f"submitting {samples} pods") as shown:
        return _report(startup.measure(samples, shown.say), output)


def bench_idle(
    seconds: Annotated[int, typer.Option(min=2, help="How long to measure.")] = 20,
    processes: Annotated[
        bool, typer.Option("--processes", help="One process per service, and the figures of each.")
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Resident memory and CPU of a stack that has nothing to do, nats-server included."""
    from cotenant.bench import idle  # noqa: PLC0415

    measure = idle.measure_each if processes else idle.measure
    with progress(f"measuring for {seconds} s") as shown:
        return _report(measure(seconds, shown.say), output)


def bench_agent(
    pods: Annotated[int, typer.Option(min=0, help="Pods on the node.")] = 50,
    seconds: Annotated[int, typer.Option(min=2, help="How long to measure.")] = 20,
    output: Output = Format.TABLE,
) -> int:
    """CPU of the agent alone while it measures its pods once a second."""
    from cotenant.bench import agent  # noqa: PLC0415

    with progress(f"starting {pods} pods") as shown:
        return _report(agent.measure(pods, seconds, shown.say), output)


class Mix(StrEnum):
    ONE = "one"
    TEMPLATES = "templates"
    DISTINCT = "distinct"


def bench_scheduler(
    nodes: Annotated[int, typer.Option(min=1)] = 1000,
    pods: Annotated[int, typer.Option(min=1)] = 2000,
    mix: Annotated[Mix, typer.Option(help="Pods of one shape, of twenty, or all different.")] = Mix.TEMPLATES,
    noisy: Annotated[
        bool, typer.Option("--noisy", help="With pods that fit nowhere, endings and node reports.")
    ] = False,
    bus: Annotated[
        bool, typer.Option("--bus", help="Submit to bound over a real nats-server; without, the core alone.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="The figures are the median of so many.")] = 3,
    output: Output = Format.TABLE,
) -> int:
    """Pods placed per second: the scheduling core alone, or the whole service over a bus."""
    from cotenant.bench import scheduler  # noqa: PLC0415

    with progress(f"placing {pods} pods on {nodes} nodes") as shown:
        return _report(
            scheduler.measure(nodes, pods, mix.value, noisy=noisy, bus=bus, runs=runs, say=shown.say), output
        )


def bench_quota(
    quotas: Annotated[int, typer.Option(min=2, help="Quotas in one tree.")] = 1000,
    dimensions: Annotated[int, typer.Option(min=1, max=16)] = 4,
    levels: Annotated[int, typer.Option(min=1, max=8)] = 3,
    admissions: Annotated[int, typer.Option(min=1, help="Pods that arrive, are charged and end, per run.")] = 50_000,
    runs: Annotated[int, typer.Option(min=1, help="The figures are the median of so many.")] = 3,
    output: Output = Format.TABLE,
) -> int:
    """Shares recomputed after one leaf's demand changes, and pods charged per second, without a bus."""
    from cotenant.bench import quota  # noqa: PLC0415

    with progress(f"a tree of {quotas} quotas") as shown:
        return _report(
            quota.measure(quotas, dimensions, levels, runs=runs, admissions=admissions, say=shown.say), output
        )


def bench_simulate(
    nodes: Annotated[int, typer.Option(min=1)] = 10,
    pods: Annotated[int, typer.Option(min=0, help="Services, and jobs that arrive over time.")] = 80,
    duration: Annotated[str, typer.Option(help="Virtual time, such as 10m or 24h; at least 1m.")] = "10m",
    telemetry: Annotated[str, typer.Option(help="Interval of the nodes' reports and of their control loops.")] = "1s",
    seed: Annotated[int, typer.Option(min=0)] = 1,
    runs: Annotated[int, typer.Option(min=1, help="The figures are the median of so many.")] = 3,
    output: Output = Format.TABLE,
) -> int:
    """Virtual seconds that the simulator gets through in a second, with every service and an agent per node."""
    from cotenant.bench import simulate  # noqa: PLC0415

    duration_ms = _milliseconds("--duration", duration, least_ms=60_000)
    telemetry_ms = _milliseconds("--telemetry", telemetry, least_ms=100)
    with progress(f"{nodes} nodes") as shown:
        return _report(
            simulate.measure(nodes, pods, duration_ms, telemetry_ms, runs=runs, seed=seed, say=shown.say), output
        )


def _milliseconds(option: str, text: str, *, least_ms: int) -> int:
    from cotenant_simulator.core import durations  # noqa: PLC0415

    found = duration_ms(option, text)
    if found < least_ms:
        raise BadInputError(f"{option}: expected at least {durations.show(least_ms)}, got {text}")
    return found


def bench_plan(
    nodes: Annotated[int, typer.Option(min=2)] = 100,
    pods_per_node: Annotated[int, typer.Option(min=0, max=30, help="Running before the plan.")] = 10,
    output: Output = Format.TABLE,
) -> int:
    """Time and memory of `cotenant plan` for one drained node and twenty new pods, on a simulated cluster."""
    from cotenant.bench import plan  # noqa: PLC0415

    with progress(f"{nodes} nodes") as shown:
        return _report(plan.measure(nodes, pods_per_node, shown.say), output)


def bench_reality(
    result: Annotated[Path, typer.Argument(help="demo-result.json of a run of the demo.")] = Path("demo-result.json"),
    scenario: Annotated[
        Path | None, typer.Option(help="Write the scenario that was simulated here, for `cotenant simulate`.")
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Simulate the demo's arms from what it measured alone; print measured, simulated and the deviation."""
    from cotenant.bench import reality  # noqa: PLC0415

    with progress(f"reading {result}") as shown:
        found = reality.compare(result, shown.say, scenario)
    if output in (Format.JSON, Format.YAML):
        show_data(found, output)
    else:
        titles = ("arm", "what", "measured", "simulated", "deviation")
        show_table(found["figures"], [column(title.upper(), title) for title in titles])
        print(f"simulated on {found['machine']['cores']} cores from what the arm alone measured in {result}")
    return int(ExitStatus.DONE)


def bench_faults(
    faults: Annotated[int, typer.Option(min=0, help="Random faults, one after the other.")] = 100,
    seed: Annotated[int, typer.Option(help="Draws the faults and the load.")] = 1,
    copies: Annotated[int, typer.Option(min=1, max=3, help="Processes of every service but the agents.")] = 1,
    rounds: Annotated[int, typer.Option(min=0, help="Before: kill each alone so often and time its recovery.")] = 3,
    keep: Annotated[Path | None, typer.Option(help="New directory for the processes' logs and state, kept.")] = None,
    output: Output = Format.TABLE,
) -> int:
    """Kill, pause and cut off real processes while pods come and go; status 1 when anything is wrong afterwards."""
    from cotenant.faults import run as faults_run  # noqa: PLC0415

    if keep is not None and keep.exists():
        raise BadInputError(f"--keep {keep}: is there already")
    with progress(f"starting {copies} of every service") as shown:
        found = faults_run.measure(faults, seed, copies, rounds, shown.say, keep)
    _report(found, output)
    if found["violations"]:
        raise CotenantError(f"{len(found['violations'])} violations: {'; '.join(found['violations'][:3])}")
    return int(ExitStatus.DONE)


def bench_story(
    nodes: Annotated[int, typer.Option(min=1, max=100, help="Try at most so many machines.")] = 10,
    scenarios: Annotated[Path, typer.Option(help="Where the story's scenarios lie.")] = Path("scenarios"),
    output: Output = Format.TABLE,
) -> int:
    """How many machines the seed story needs with and without sharing them, found by simulation."""
    from cotenant.bench import story  # noqa: PLC0415

    with progress("reading the story") as shown:
        found = story.measure(scenarios, nodes, shown.say)
    if output in (Format.JSON, Format.YAML):
        show_data(found, output)
    else:
        show_table(story.rows(found), [column(title, title) for title in story.TITLES])
    return int(ExitStatus.DONE)


Root = Annotated[Path, typer.Option("--root", help="Root of the repository.")]


def contracts_write(root: Root = Path()) -> int:
    """Write the documents that are generated from the contracts and from the metrics that the sources declare."""
    for name, text in _rendered(root).items():
        path = root / name
        if not path.parent.is_dir():
            raise BadInputError(f"{path.parent}: no such directory; run this in the repository or say --root")
        path.write_text(text)
        print(f"{name} written")
    return int(ExitStatus.DONE)


def contracts_check(root: Root = Path()) -> int:
    """Check that every generated document says what the code says; status 1 when one is stale."""
    stale = [name for name, text in _rendered(root).items() if _read(root / name) != text]
    if stale:
        raise CotenantError(f"stale: {', '.join(stale)}; run `cotenant contracts write`")
    print("contracts are up to date")
    return int(ExitStatus.DONE)


class BusLogin(StrEnum):
    PASSWORD = "password"  # noqa: S105 - the kind, not one
    NKEY = "nkey"


def contracts_nats_conf(
    out: Annotated[Path | None, typer.Option("--out", help="Directory for auth.conf and every user's secret.")] = None,
    agents: Annotated[str, typer.Option(help="Nodes, comma-separated: one user each.")] = "",
    observers: Annotated[str, typer.Option(help="Outside tools, comma-separated: they may read events.")] = "",
    auth: Annotated[BusLogin, typer.Option(help="What users prove themselves with.")] = BusLogin.PASSWORD,
    tls: Annotated[
        tuple[Path, Path, Path] | None, typer.Option(metavar="CERT KEY CA", help="Files of the server, for TLS.")
    ] = None,
    verify_clients: Annotated[bool, typer.Option("--verify-clients", help="TLS in both directions.")] = False,
    rotate: Annotated[bool, typer.Option("--rotate", help="New secrets for everyone.")] = False,
) -> int:
    """Make nats-server's users and permissions: an agent writes its node's keys only, a service what it owns."""
    from cotenant import bus_users  # noqa: PLC0415
    from cotenant_common.contracts import server_config  # noqa: PLC0415

    if verify_clients and tls is None:
        raise BadInputError("--verify-clients: expected --tls CERT KEY CA beside it")
    if out is None:
        print(server_config.render_template("What `--out DIR` would write, without its secrets."), end="")
        return int(ExitStatus.DONE)
    chosen = (
        None if tls is None else server_config.Tls(tls[0].resolve(), tls[1].resolve(), tls[2].resolve(), verify_clients)
    )
    login = server_config.Login(auth.value)
    for path in bus_users.write_users(out, _names(agents), _names(observers), login, chosen, rotate=rotate):
        print(f"{path} written")
    return int(ExitStatus.DONE)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _rendered(root: Path) -> dict[str, str]:
    from cotenant_common.contracts import render  # noqa: PLC0415
    from cotenant_common.telemetry import catalogue  # noqa: PLC0415

    try:
        metrics = catalogue.render(catalogue.find(root))
    except catalogue.CatalogueError as error:
        raise CotenantError(str(error)) from error
    return {**render.rendered(), catalogue.METRICS_PATH: metrics}


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def config_validate(
    service: Annotated[str, typer.Argument(help="gateway, scheduler, quota, descheduler, profiler or agent.")],
    file: Annotated[Path | None, typer.Argument(help="Settings file; default the environment alone.")] = None,
    output: Output = Format.YAML,
) -> int:
    """Read a service's settings as it would at start, and print the effective values."""
    from cotenant.stack import services  # noqa: PLC0415

    if file is not None and not file.exists():
        raise BadInputError(f"{file}: no such file")
    show_data(services.effective_settings(service, file), output)
    return int(ExitStatus.DONE)


def version(output: Output = Format.TABLE) -> int:
    """Print the version of cotenant and of what it runs on."""
    from cotenant import about  # noqa: PLC0415

    found = about.versions()
    if output in (Format.JSON, Format.YAML):
        show_data(found, output)
    else:
        print(", ".join(f"{name} {value}" for name, value in found.items()))
    return int(ExitStatus.DONE)
