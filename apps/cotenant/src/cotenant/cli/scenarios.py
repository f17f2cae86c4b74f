"""simulate: what would happen, decided by the production services in virtual time."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.output import progress
from cotenant.cli.values import duration_ms
from cotenant.errors import BadInputError, ExitStatus

if TYPE_CHECKING:
    from cotenant_simulator import Many


class SimulationFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(  # noqa: PLR0913, PLR0917 - each is an option of the command
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenarios; the format: docs/scenarios.md.")],
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the file's; the first one with --seeds.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run this many seeds and compare the outcomes.")] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="POLICY_A POLICY_B",
            help="The same seeds under two policies: YAML files, or none, conservative, observe.",
        ),
    ] = None,
    sample: Annotated[str | None, typer.Option(help="Time between two points of the series, such as 10s.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write summary and series: one file if it ends in .csv, else a folder.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report with plots, one file.")] = None,
    chaos: Annotated[
        int | None, typer.Option(metavar="SEED", help="Inject random faults; check the invariants at every step.")
    ] = None,
    output: Annotated[SimulationFormat, typer.Option("--output", "-o")] = SimulationFormat.TABLE,
) -> int:
    """Run scenarios through the services in virtual time; status 1 when an expectation fails."""
    import cotenant_simulator  # noqa: PLC0415

    sample_ms = _sample_ms(sample)
    if sample_ms is not None and csv is None and html is None:
        raise BadInputError("--sample says how dense a series is: add --csv or --html, which show it")
    many = cotenant_simulator.Many(
        files,
        seed=seed,
        seeds=seeds or 1,
        policies=compare or (),
        sample_ms=sample_ms,
        csv=csv,
        html=html,
        output=output.value,
    )
    alone = len(files) == 1 and seeds is None and compare is None and csv is None and html is None
    if chaos is not None:
        if not alone or seed is not None or output is SimulationFormat.JSON:
            raise BadInputError("--chaos takes one FILE and no other option; it prints what broke, as text")
        text, status = cotenant_simulator.simulate_chaos(files[0], chaos)
    elif alone:
        text, status = cotenant_simulator.simulate(files[0], output.value, seed)
    else:
        text, status = _simulate_many(many)
    if status == ExitStatus.BAD_INPUT:
        raise BadInputError(text.strip())
    sys.stdout.write(text)
    return status


def _simulate_many(many: "Many") -> tuple[str, int]:
    import cotenant_simulator  # noqa: PLC0415

    with progress("simulating") as shown:
        return cotenant_simulator.simulate_many(many, lambda done, runs: shown.say(f"{done} of {runs} runs"))


def _sample_ms(text: str | None) -> int | None:
    found = None if text is None else duration_ms("--sample", text)
    if found is not None and (found < 1_000 or found % 1_000):
        raise BadInputError(f"--sample: expected whole seconds from 1s, got {text}")
    return found
