"""Several scenarios, seeds and policies side by side: the table, the JSON, the files beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cotenant_simulator import comparison, files, report
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.core.series import default_sample_ms
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.html.page import page
from cotenant_simulator.policies import UNCHANGED, Policy, choose_policy, named_apart
from cotenant_simulator.run import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, load
from cotenant_simulator.trials import Result, Say, plan, run_trials


@dataclass(frozen=True, slots=True)
class Many:
    """``seed`` None: each file's own is the first. ``policies``: none, or the two that are compared.

    ``sample_ms`` None: as far apart as gives some hundred points, when a file needs them.
    """

    paths: Sequence[Path]
    seed: int | None = None
    seeds: int = 1
    policies: Sequence[str] = ()
    sample_ms: int | None = None
    csv: Path | None = None
    html: Path | None = None
    output: Literal["table", "json"] = "table"


def simulate_many(options: Many, say: Say = lambda _done, _all: None) -> tuple[str, int]:
    """The text to print and the exit status: 1 when an expectation failed in any run, 3 for bad input."""
    try:
        scenarios = _scenarios(options)
        policies = named_apart([choose_policy(name) for name in options.policies]) or [UNCHANGED]
        _check_targets(options)
        results = _run(options, scenarios, policies, say)
        found = comparison.compared(results)
        written = []
        if options.csv is not None:
            written += files.write_csv(options.csv, results)
        if options.html is not None:
            files.write_text(options.html, page(found, _texts(scenarios, policies)))
            written.append(options.html)
    except ScenarioError as error:
        return f"{error}\n", EXIT_BAD_INPUT
    status = EXIT_OK if all(result.ok for result in results) else EXIT_FAILED
    if options.output == "json":
        return report.as_json(comparison.as_data(found)), status
    told = [f"warning: {warning}" for warning in _warnings(scenarios, policies)]
    told += [f"written: {path}" for path in written]
    return comparison.as_text(found) + "".join(f"{line}\n" for line in told), status


def _check_targets(options: Many) -> None:
    if options.csv is not None:
        files.check_target(options.csv, folder=not files.is_table(options.csv))
    if options.html is not None:
        files.check_target(options.html)


def _texts(scenarios: Sequence[Scenario], policies: Sequence[Policy]) -> list[tuple[str, str]]:
    """The files as they stand now; one that has gone meanwhile is left out."""
    sources = [*(one.source for one in scenarios), *(one.source for one in policies)]
    names = [source for source in sources if Path(source).is_file()]
    return [(name, Path(name).read_text(encoding="utf-8")) for name in names]


def _warnings(scenarios: Sequence[Scenario], policies: Sequence[Policy]) -> list[str]:
    said = [*(one.warnings for one in scenarios), *(one.warnings for one in policies)]
    return list(dict.fromkeys(text for warnings in said for text in warnings))


def _scenarios(options: Many) -> list[Scenario]:
    if (twice := next((path for path in options.paths if list(options.paths).count(path) > 1), None)) is not None:
        raise ScenarioError(str(twice), None, "", "given twice; each scenario is compared with the others once")
    loaded = [load(path) for path in options.paths]
    return loaded if options.seed is None else [replace(one, seed=options.seed) for one in loaded]


def _run(options: Many, scenarios: Sequence[Scenario], policies: Sequence[Policy], say: Say) -> list[Result]:
    wanted = options.csv is not None or options.html is not None

    def sample_ms(duration_ms: int) -> int | None:
        return (options.sample_ms or default_sample_ms(duration_ms)) if wanted else None

    return run_trials(plan(scenarios, policies, options.seeds, sample_ms), say)
