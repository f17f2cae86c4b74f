"""The same story with other dice: one row per seed, and how far they lie apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.report import columns
from cotenant_simulator.run import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, Outcome, load, run

FIGURES: Final = ("expectations failed", "pods running", "pods succeeded", "bound", "evicted", "mean wait ms")


@dataclass(frozen=True, slots=True)
class Row:
    seed: int
    figures: tuple[float, ...]
    """In the order of FIGURES; a mean of nothing is 0."""


def figures_of(outcome: Outcome) -> tuple[float, ...]:
    phases = [pod["phase"] for pod in outcome.data["pods"].values()]
    events: Sequence[Mapping[str, Any]] = outcome.data["events"]
    waits = waiting_ms(events)
    return (
        sum(not verdict.ok for verdict in outcome.verdicts),
        phases.count("Running"),
        phases.count("Succeeded"),
        sum(event["type"] == "pod.bound" for event in events),
        sum(event["type"] == "pod.evicted" for event in events),
        round(fmean(waits)) if waits else 0,
    )


def waiting_ms(events: Sequence[Mapping[str, Any]]) -> list[int]:
    """From queued to bound, each time a pod was."""
    queued: dict[str, int] = {}
    waits = []
    for event in events:
        if event["type"] == "pod.queued":
            queued[event["object"]] = event["t_ms"]
        elif event["type"] == "pod.bound" and event["object"] in queued:
            waits.append(event["t_ms"] - queued.pop(event["object"]))
    return waits


def compare(path: Path, count: int) -> list[Row]:
    """Seeds from the file's own upwards. Raise ScenarioError."""
    scenario = load(path)
    return [Row(seed, figures_of(run(scenario, seed=seed))) for seed in range(scenario.seed, scenario.seed + count)]


def simulate_seeds(path: str | Path, count: int) -> tuple[str, int]:
    """The table and the exit status: 1 when an expectation failed for any seed."""
    try:
        rows = compare(Path(path), count)
    except ScenarioError as error:
        return f"{error}\n", EXIT_BAD_INPUT
    table = [(str(row.seed), *(f"{value:g}" for value in row.figures)) for row in rows]
    across = list(zip(*(row.figures for row in rows), strict=True))
    table.append(("mean", *(f"{fmean(values):.4g}" for values in across)))
    table.append(("range", *(f"{min(values):g} to {max(values):g}" for values in across)))
    failed = any(row.figures[0] for row in rows)
    header = ("SEED", *(name.upper() for name in FIGURES))
    return columns(header, table) + "\n", EXIT_FAILED if failed else EXIT_OK
