"""From the text of a scenario to its outcome, its words, and an exit status."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from cotenant_simulator import loop, report
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.config import read_config
from cotenant_simulator.core.checks import Verdict
from cotenant_simulator.core.reading import read_scenario
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.core.series import Series
from cotenant_simulator.driver import Driver
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.hosting import Trouble
from cotenant_simulator.sources import read_text
from cotenant_simulator.traces import OpenTable, in_folder, with_courses

HERE: Final = in_folder(Path())
_COLLECT_AFTER: Final = (200_000, 20, 50)
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """``data`` is what ``-o json`` prints; ``troubles`` are errors that services logged, for people."""

    scenario: Scenario
    data: dict[str, Any]
    verdicts: list[Verdict]
    troubles: list[Trouble] = field(default_factory=list)
    series: Series | None = None

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def exit_status(self) -> int:
        return EXIT_OK if self.ok else EXIT_FAILED

    def json(self) -> str:
        return report.as_json(self.data)

    def table(self) -> str:
        return report.as_table(self.scenario, self.data, self.verdicts, self.troubles)


def load(path: Path) -> Scenario:
    """Raise ScenarioError."""
    return parse(read_text(path), str(path), in_folder(path.parent))


def parse(text: str, source: str = "scenario", open_table: OpenTable = HERE) -> Scenario:
    """``open_table`` finds the tables that the text names, else they lie in the working folder. Raise ScenarioError."""
    return with_courses(read_scenario(text, source, read_config), open_table)


def run(scenario: Scenario | Path | str, *, seed: int | None = None, sample_ms: int | None = None) -> Outcome:
    """A path, the text of a file, or what ``load`` gave; with ``sample_ms`` it keeps a series. Raise ScenarioError."""
    if isinstance(scenario, Path):
        scenario = load(scenario)
    elif isinstance(scenario, str):
        scenario = parse(scenario)
    chosen = scenario if seed is None else replace(scenario, seed=seed)
    with _rare_collections():
        return loop.run(_run(chosen, sample_ms))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Nearly everything here dies by its reference count; looking for cycles among what lives took a tenth of the time.

    The young generation is larger by far than what one instant leaves behind, and old ones are still looked at.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _run(scenario: Scenario, sample_ms: int | None = None) -> Outcome:
    cluster = Cluster(scenario.overrides, scenario.seed)
    with cluster.troubles.catching_all():
        driver = Driver(scenario, cluster, sample_ms)
        data = await driver.run()
    return Outcome(scenario, data, driver.verdicts, cluster.troubles.found, driver.accounts.series)


def simulate(path: str | Path, output: Literal["table", "json"] = "table", seed: int | None = None) -> tuple[str, int]:
    """The text to print and the exit status: 0, 1 when an expectation failed, 3 for bad input."""
    try:
        outcome = run(Path(path), seed=seed)
    except ScenarioError as error:
        return f"{error}\n", EXIT_BAD_INPUT
    return (outcome.json() if output == "json" else outcome.table()), outcome.exit_status
