"""Many runs: scenarios, policies and seeds, side by side on all processors; the results in the order of the trials."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, Final

from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.core.series import Series
from cotenant_simulator.policies import Policy, apply_policy
from cotenant_simulator.run import run

Say = Callable[[int, int], None]
"""Called with how many of how many are done."""
_FEW: Final = 3
"""Starting a process takes about as long as this many short scenarios."""


@dataclass(frozen=True, slots=True)
class Trial:
    """``arm`` names the policy that ``scenario`` holds already."""

    scenario: Scenario
    arm: str
    sample_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    source: str
    scenario: str
    arm: str
    seed: int
    virtual_ms: int
    summary: dict[str, Any]
    expectations: Sequence[dict[str, Any]]
    """As in the outcome, with ``line``."""
    errors_logged: int
    series: Series | None = None

    @property
    def held(self) -> int:
        return sum(one["ok"] for one in self.expectations)

    @property
    def ok(self) -> bool:
        return self.held == len(self.expectations)


def plan(
    scenarios: Sequence[Scenario], policies: Sequence[Policy], seeds: int, sample_ms: Callable[[int], int | None]
) -> list[Trial]:
    """Seeds count up from each scenario's own; the same ones under every policy. Raise ScenarioError."""
    trials = []
    for scenario in scenarios:
        for policy in policies:
            chosen = apply_policy(scenario, policy)
            trials += [
                Trial(replace(chosen, seed=seed), policy.name, sample_ms(scenario.duration_ms))
                for seed in range(scenario.seed, scenario.seed + seeds)
            ]
    return trials


def run_trials(trials: Sequence[Trial], say: Say = lambda _done, _all: None) -> list[Result]:
    """Raise ScenarioError for the first trial that cannot be run."""
    workers = min(os.cpu_count() or 1, len(trials))
    if workers == 1 or len(trials) <= _FEW:
        return _gathered(map(_try, trials), len(trials), say)
    # Not forked: whoever calls may have threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            return _gathered(pool.map(_try, trials), len(trials), say)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _gathered(found: Iterable[Result], count: int, say: Say) -> list[Result]:
    results: list[Result] = []
    for one in found:
        results.append(one)
        say(len(results), count)
    return results


def _try(trial: Trial) -> Result:
    scenario = trial.scenario
    outcome = run(scenario, sample_ms=trial.sample_ms)
    return Result(
        source=scenario.source,
        scenario=scenario.name,
        arm=trial.arm,
        seed=scenario.seed,
        virtual_ms=outcome.data["virtual_ms"],
        summary=outcome.data["summary"],
        expectations=[
            {**told, "line": verdict.expectation.line}
            for told, verdict in zip(outcome.data["expectations"], outcome.verdicts, strict=True)
        ],
        errors_logged=len(outcome.troubles),
        series=outcome.series,
    )
