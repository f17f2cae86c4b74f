"""replay: a public trace, decided anew by the production services."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.cli.output import progress
from cotenant.cli.values import duration_ms
from cotenant.errors import BadInputError, ExitStatus

if TYPE_CHECKING:
    from cotenant_simulator.replay.run import Options


class ReplayFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


_NAMES: Final = "its columns tell; else one of the families in docs/replay.md, or columns."


def register(app: typer.Typer) -> None:
    app.command()(replay)


def replay(  # noqa: PLR0913, PLR0917 - each is an option of the command
    trace: Annotated[Path, typer.Argument(help="File, or folder of a known trace.")],
    policy: Annotated[
        str | None, typer.Option(help="YAML file with config and objects, as in a scenario; or conservative, observe.")
    ] = None,
    family: Annotated[str | None, typer.Option("--format", help=f"What the trace is; {_NAMES}")] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="FIELD=NAME", help="With --format columns; repeatable.")
    ] = None,
    beside: Annotated[
        Path | None, typer.Option("--with", help="A second trace on the same nodes, such as batch beside services.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=5_000, help="Nodes; of the trace's own if it has any.")
    ] = None,
    node_cpu: Annotated[str | None, typer.Option(help="Cores of a node that the trace does not name.")] = None,
    node_memory: Annotated[str | None, typer.Option(help="Memory of such a node.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many jobs or series.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Where to begin in the trace, such as 30d.")] = None,
    length: Annotated[str | None, typer.Option("--for", help="How much of the trace, such as 12h.")] = None,
    speed_up: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Trace seconds a virtual second; default by length.")
    ] = None,
    backlog: Annotated[
        bool | None, typer.Option(help="Endless batch work beside services; default where a trace has no jobs.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    write_scenario: Annotated[
        Path | None,
        typer.Option(help="Write the replay as a scenario for `cotenant simulate`, and its tables beside it."),
    ] = None,
    output: Annotated[ReplayFormat, typer.Option("--output", "-o")] = ReplayFormat.TABLE,
) -> int:
    """Feed a public trace to the services in virtual time: what would have waited, been evicted, been used."""
    from cotenant_simulator.errors import ScenarioError  # noqa: PLC0415
    from cotenant_simulator.replay import report, run  # noqa: PLC0415
    from cotenant_simulator.replay.model import TraceError  # noqa: PLC0415

    options = run.Options(
        trace=trace,
        format=family,
        columns=_columns(column or ()),
        beside=beside,
        policy=policy,
        nodes=nodes,
        node_cpu_milli=_quantity("--node-cpu", "cpu", node_cpu),
        node_memory_bytes=_quantity("--node-memory", "memory", node_memory),
        limit=limit,
        from_ms=_duration("--from", start),
        for_ms=_duration("--for", length),
        speed_up=speed_up,
        backlog=backlog,
        seed=seed,
    )
    try:
        data = _run(options, write_scenario)
    except (TraceError, ScenarioError) as error:
        raise BadInputError(str(error)) from error
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n" if output == "json" else report.table(data))
    return int(ExitStatus.DONE)


def _run(options: "Options", write_scenario: Path | None) -> dict[str, Any]:
    from cotenant_simulator.replay import run  # noqa: PLC0415

    with progress(f"reading {options.trace}") as shown:
        prepared = run.prepare(options, shown.say)
        written = [] if write_scenario is None else prepared.write(write_scenario)
        shown.say(run.described(prepared))
        data = run.replay(prepared).data
    return data | ({"written": [str(path) for path in written]} if written else {})


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    from cotenant_simulator.replay.families.columns import FIELDS  # noqa: PLC0415

    found: dict[str, str] = {}
    for pair in pairs:
        field, separator, name = pair.partition("=")
        if not separator or field not in FIELDS or not name:
            raise BadInputError(f"--column: expected FIELD=NAME with FIELD one of {', '.join(FIELDS)}, got {pair!r}")
        found[field] = name
    return found


def _duration(option: str, text: str | None) -> int | None:
    return None if text is None else duration_ms(option, text)


def _quantity(option: str, resource: str, text: str | None) -> int | None:
    from cotenant_common.model import resources  # noqa: PLC0415
    from cotenant_common.model.quantity import QuantityError  # noqa: PLC0415

    try:
        found = None if text is None else resources.parse(resource, text)
    except QuantityError as problem:
        raise BadInputError(f"{option}: {problem}") from problem
    if found == 0:
        raise BadInputError(f"{option}: expected more than zero, got {text}")
    return found
