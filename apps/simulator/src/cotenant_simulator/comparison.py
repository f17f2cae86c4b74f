"""What many runs say: per scenario and policy each figure with its interval, and the paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cotenant_simulator.core.statistics import Difference, Estimate, marked, median_of, paired
from cotenant_simulator.core.summary import BY_REASON, FIGURES, figure, flattened
from cotenant_simulator.report import columns
from cotenant_simulator.trials import Result

METHOD: Final = {
    "estimate": "median over the seeds",
    "interval": "95 % percentile bootstrap of the median, 2000 resamples",
    "difference": "mean of the paired differences, second policy less the first, with Student's 95 % interval",
    "notable": "Holm's correction over all figures of a scenario at 5 %",
}
_MOST_COLUMNS: Final = 4


@dataclass(frozen=True, slots=True)
class ArmOf:
    """All runs of one scenario under one policy."""

    name: str
    results: Sequence[Result]
    figures: Mapping[str, Estimate | None]

    @property
    def held(self) -> int:
        return sum(result.held for result in self.results)

    @property
    def expected(self) -> int:
        return sum(len(result.expectations) for result in self.results)


@dataclass(frozen=True, slots=True)
class Compared:
    """One scenario. ``differences`` is empty without a second policy."""

    source: str
    scenario: str
    arms: Sequence[ArmOf]
    differences: Mapping[str, Difference]


def compared(results: Sequence[Result]) -> list[Compared]:
    """In the order in which the scenarios come."""
    sources: dict[str, list[Result]] = {}
    for result in results:
        sources.setdefault(result.source, []).append(result)
    return [_compared(source, members) for source, members in sources.items()]


def _compared(source: str, results: Sequence[Result]) -> Compared:
    names = figure_names(results)
    by_arm: dict[str, list[Result]] = {}
    for result in results:
        by_arm.setdefault(result.arm, []).append(result)
    values = {
        arm: {name: [figure(one.summary, name) for one in runs] for name in names} for arm, runs in by_arm.items()
    }
    arms = [
        ArmOf(arm, runs, {name: median_of([each for each in values[arm][name] if each is not None]) for name in names})
        for arm, runs in by_arm.items()
    ]
    differences: dict[str, Difference] = {}
    if len(arms) == 2:
        first, second = (values[arm.name] for arm in arms)
        found = {name: paired(first[name], second[name]) for name in names}
        differences = marked({name: one for name, one in found.items() if one is not None})
    return Compared(source, results[0].scenario, arms, differences)


def figure_names(results: Sequence[Result]) -> list[str]:
    """All that any of them tells, reasons of evictions after their total."""
    reasons = sorted({name for one in results for name in flattened(one.summary) if name.startswith(BY_REASON)})
    at = FIGURES.index("evictions.total") + 1
    return [*FIGURES[:at], *reasons, *FIGURES[at:]]


def as_data(found: Sequence[Compared]) -> dict[str, Any]:
    return {"method": METHOD, "scenarios": [_data(one) for one in found]}


def _data(one: Compared) -> dict[str, Any]:
    return {
        "file": one.source,
        "scenario": one.scenario,
        "policies": [
            {
                "policy": arm.name,
                "expectations": {"held": arm.held, "of": arm.expected},
                "figures": {name: None if each is None else asdict(each) for name, each in arm.figures.items()},
                "runs": [
                    {"seed": run.seed, "summary": run.summary, "expectations": list(run.expectations)}
                    for run in arm.results
                ],
            }
            for arm in one.arms
        ],
        "differences": {name: asdict(each) for name, each in one.differences.items()} or None,
    }


# Text


def as_text(found: Sequence[Compared]) -> str:
    """One scenario per table; or one table, when there is one policy and the scenarios fit beside one another."""
    single = all(len(one.arms) == 1 for one in found)
    side_by_side = single and 1 < len(found) <= _MOST_COLUMNS
    tables = [_side_by_side(found)] if side_by_side else [_table(one) for one in found]
    return "\n\n".join([*tables, *_failures(found), _footnote(found)]) + "\n"


def _side_by_side(found: Sequence[Compared]) -> str:
    arms = [one.arms[0] for one in found]
    header = ("FIGURE", *(one.scenario for one in found))
    rows = [("expectations held", *(_held(arm) for arm in arms)), ("seeds", *(str(len(arm.results)) for arm in arms))]
    rows += [(name, *(shown(arm.figures.get(name)) for arm in arms)) for name in known(arms)]
    return columns(header, rows)


def _table(one: Compared) -> str:
    rows: list[tuple[str, ...]] = [("expectations held", *(_held(arm) for arm in one.arms))]
    compares = bool(one.differences)
    if compares:
        rows = [(*rows[0], "", "")]
    for name in known(one.arms):
        cells = [name, *(shown(arm.figures[name]) for arm in one.arms)]
        if compares:
            difference = one.differences.get(name)
            cells += [shown_difference(difference), verdict(difference)]
        rows.append(tuple(cells))
    names = [arm.name for arm in one.arms]
    header = ("FIGURE", *names, f"{names[-1]} - {names[0]}", "") if compares else ("FIGURE", *names)
    runs = len(one.arms[0].results)
    return f"{one.scenario} ({one.source}), {runs} {'seed' if runs == 1 else 'seeds'}\n{columns(header, rows)}"


def _held(arm: ArmOf) -> str:
    return f"{arm.held} of {arm.expected}" if arm.expected else "none written"


def known(arms: Sequence[ArmOf]) -> list[str]:
    """Rows that say something: known and not zero in some arm."""
    names = dict.fromkeys(name for arm in arms for name in arm.figures)
    estimates = {name: [each for arm in arms if (each := arm.figures.get(name)) is not None] for name in names}
    return [name for name, found in estimates.items() if any(one.value or one.low or one.high for one in found)]


def number(value: float) -> str:
    text = f"{value:,.3f}" if abs(value) < 1_000 else f"{value:,.0f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def shown(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def shown_difference(one: Difference | None) -> str:
    if one is None:
        return "-"
    sign = "+" if one.mean > 0 else ""
    if one.low is None or one.high is None or one.low == one.high:
        return f"{sign}{number(one.mean)}"
    return f"{sign}{number(one.mean)} [{number(one.low)}, {number(one.high)}]"


def verdict(one: Difference | None) -> str:
    if one is None or one.p is None:
        return ""
    if one.mean == 0 and one.low == one.high:
        return "the same"
    return "differs" if one.notable else "may be noise"


def _failures(found: Sequence[Compared]) -> list[str]:
    lines = []
    for one in found:
        for arm in one.arms:
            for at, expectation in enumerate(arm.results[0].expectations):
                seeds = [str(run.seed) for run in arm.results if not run.expectations[at]["ok"]]
                if seeds:
                    which = f", policy {arm.name}" if len(one.arms) > 1 else ""
                    lines.append(f"FAILED {one.source}:{expectation['line']}{which}, seed {', '.join(seeds)}")
    return ["\n".join(lines)] if lines else []


def _footnote(found: Sequence[Compared]) -> str:
    several = any(len(arm.results) > 1 for one in found for arm in one.arms)
    lines = ["Figures that are 0 or not known everywhere are left out; - is not known."]
    if several:
        lines.append("Median over the seeds [95 % bootstrap interval]; without brackets, all seeds agree.")
    if several and any(one.differences for one in found):
        lines.append("Difference: mean over pairs of one seed [Student's 95 % interval]; differs: Holm at 5 %.")
    return "\n".join(lines)
