"""bench, contracts, config, version: for those who build on it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cotenant.cli.output import Format, Output, progress, show_data, show_table
from cotenant.cli.output import field as column
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
    contracts_app.command("write")(contracts_write)
    contracts_app.command("check")(contracts_check)
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
    output: Output = Format.TABLE,
) -> int:
    """Resident memory and CPU of a stack that has nothing to do, nats-server included."""
    from cotenant.bench import idle  # noqa: PLC0415

    with progress(f"measuring for {seconds} s") as shown:
        return _report(idle.measure(seconds, shown.say), output)


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
    runs: Annotated[int, typer.Option(min=1, help="The figures are the median of so many.")] = 3,
    output: Output = Format.TABLE,
) -> int:
    """Decisions per second of the scheduling cycle, without a bus."""
    from cotenant.bench import scheduler  # noqa: PLC0415

    with progress(f"placing {pods} pods on {nodes} nodes") as shown:
        return _report(scheduler.measure(nodes, pods, mix.value, noisy=noisy, runs=runs, say=shown.say), output)


Root = Annotated[Path, typer.Option("--root", help="Root of the repository.")]


def contracts_write(root: Root = Path()) -> int:
    """Write the documents that are generated from the contracts."""
    from cotenant_common.contracts import render  # noqa: PLC0415

    for name, text in render.rendered().items():
        path = root / name
        if not path.parent.is_dir():
            raise BadInputError(f"{path.parent}: no such directory; run this in the repository or say --root")
        path.write_text(text)
        print(f"{name} written")
    return int(ExitStatus.DONE)


def contracts_check(root: Root = Path()) -> int:
    """Check that every generated document says what the code says; status 1 when one is stale."""
    from cotenant_common.contracts import render  # noqa: PLC0415

    stale = [name for name, text in render.rendered().items() if _read(root / name) != text]
    if stale:
        raise CotenantError(f"stale: {', '.join(stale)}; run `cotenant contracts write`")
    print("contracts are up to date")
    return int(ExitStatus.DONE)


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
