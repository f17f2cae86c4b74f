"""simulate: what would happen, decided by the production services in virtual time."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cotenant.errors import BadInputError, ExitStatus


class SimulationFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    file: Annotated[Path, typer.Argument(help="Scenario; the format is in docs/scenarios.md.")],
    seed: Annotated[int | None, typer.Option(help="Instead of the file's.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run this many seeds and compare the outcomes.")] = None,
    chaos: Annotated[
        int | None, typer.Option(metavar="SEED", help="Inject random faults; check the invariants at every step.")
    ] = None,
    output: Annotated[SimulationFormat, typer.Option("--output", "-o")] = SimulationFormat.TABLE,
) -> int:
    """Run a scenario through the services in virtual time; status 1 when an expectation fails."""
    import cotenant_simulator  # noqa: PLC0415

    if len([option for option in (seed, seeds, chaos) if option is not None]) > 1:
        raise BadInputError("expected at most one of --seed, --seeds and --chaos")
    if output is SimulationFormat.JSON and (seeds is not None or chaos is not None):
        raise BadInputError("-o json shows one run; --seeds and --chaos print a table")
    if chaos is not None:
        text, status = cotenant_simulator.simulate_chaos(file, chaos)
    elif seeds is not None:
        text, status = cotenant_simulator.simulate_seeds(file, seeds)
    else:
        text, status = cotenant_simulator.simulate(file, output.value, seed)
    if status == ExitStatus.BAD_INPUT:
        raise BadInputError(text.strip())
    sys.stdout.write(text)
    return status
