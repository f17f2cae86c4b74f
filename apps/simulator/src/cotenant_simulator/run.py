"""From the text of a scenario to its outcome, its words, and an exit status."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cotenant_simulator import loop, report
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.config import read_config
from cotenant_simulator.core.checks import Verdict
from cotenant_simulator.core.reading import read_scenario
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.driver import Driver
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.hosting import Trouble

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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(str(path), None, "", f"cannot be read: {error}") from error
    return read_scenario(text, str(path), read_config)


def parse(text: str, source: str = "scenario") -> Scenario:
    """Raise ScenarioError."""
    return read_scenario(text, source, read_config)


def run(scenario: Scenario | Path | str, *, seed: int | None = None) -> Outcome:
    """A path, the text of a file, or what ``load`` gave. Raise ScenarioError."""
    if isinstance(scenario, Path):
        scenario = load(scenario)
    elif isinstance(scenario, str):
        scenario = parse(scenario)
    chosen = scenario if seed is None else replace(scenario, seed=seed)
    return loop.run(_run(chosen))


async def _run(scenario: Scenario) -> Outcome:
    cluster = Cluster(scenario.overrides, scenario.seed)
    with cluster.troubles.catching_all():
        driver = Driver(scenario, cluster)
        data = await driver.run()
    return Outcome(scenario, data, driver.verdicts, cluster.troubles.found)


def simulate(path: str | Path, output: Literal["table", "json"] = "table", seed: int | None = None) -> tuple[str, int]:
    """The text to print and the exit status: 0, 1 when an expectation failed, 3 for bad input."""
    try:
        outcome = run(Path(path), seed=seed)
    except ScenarioError as error:
        return f"{error}\n", EXIT_BAD_INPUT
    return (outcome.json() if output == "json" else outcome.table()), outcome.exit_status
