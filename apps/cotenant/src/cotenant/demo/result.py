"""The figures as `demo-result.json`, the targets, and the verdict in words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cotenant.demo.plan import Arm
from cotenant.demo.stats import ArmResult

P99_OVER_ALONE_MAX: Final = 1.3
BUSY_MIN: Final = 0.90
WORK_SHARE_MIN: Final = 0.85
UNCONTROLLED_OVER_COTENANT_MIN: Final = 2.0
SAMPLES_MIN: Final = 1000


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    wanted: str
    got: float | None
    met: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Everything about a run that is not a figure of an arm."""

    duration_s: float
    machine: Mapping[str, Any]
    knobs_written: int
    knob_differences: Sequence[str]
    means: Sequence[str]
    calibration: Mapping[str, Any]
    pending: Mapping[str, Any] | None = None
    interrupted: bool = False
    quick: bool = False


def ratio(upper: float | None, lower: float | None) -> float | None:
    return upper / lower if upper is not None and lower else None


def ratios(arms: Mapping[Arm, ArmResult]) -> dict[str, float | None]:
    p99 = {arm: found.p99_ms for arm, found in arms.items()}
    cotenant = p99.get(Arm.COTENANT)
    return {
        "p99_cotenant_over_alone": ratio(cotenant, p99.get(Arm.ALONE)),
        "p99_uncontrolled_over_cotenant": ratio(p99.get(Arm.UNCONTROLLED), cotenant),
        "p99_weights_over_cotenant": ratio(p99.get(Arm.WEIGHTS), cotenant),
    }


def targets(arms: Mapping[Arm, ArmResult]) -> tuple[Target, ...]:
    """What this project promises for a 2-core machine, against what this run saw."""
    found = ratios(arms)
    cotenant = arms[Arm.COTENANT]
    fewest = min(arm.samples for arm in arms.values())
    return (
        _at_most("service p99 with Cotenant over alone", P99_OVER_ALONE_MAX, found["p99_cotenant_over_alone"]),
        _at_least("machine busy with Cotenant", BUSY_MIN, cotenant.busy),
        _at_least("neighbour work of what the leftover CPU could do", WORK_SHARE_MIN, cotenant.work_share),
        _at_least(
            "service p99 uncontrolled over Cotenant",
            UNCONTROLLED_OVER_COTENANT_MIN,
            found["p99_uncontrolled_over_cotenant"],
        ),
        _at_least("samples in the arm with the fewest", SAMPLES_MIN, float(fewest)),
    )


def _at_most(name: str, limit: float, got: float | None) -> Target:
    return Target(name, f"at most {limit:g}", got, got is not None and got <= limit)


def _at_least(name: str, limit: float, got: float | None) -> Target:
    return Target(name, f"at least {limit:g}", got, got is not None and got >= limit)


def arm_json(found: ArmResult) -> dict[str, Any]:
    """The published keys first; what is ours comes after and never replaces one of them."""
    own = {name: value for name, value in asdict(found).items() if name != "arm"}
    published = {
        "busy": found.busy,
        "p50_ms": found.p50_ms,
        "p99_ms": found.p99_ms,
        "p999_ms": found.p999_ms,
        "samples": found.samples,
        "errors": found.errors,
        "work_per_s": found.work_per_s,
        "work_share": 0.0 if found.work_units == 0 else found.work_share,
    }
    extra = {name: value for name, value in own.items() if name not in published}
    return {name: _rounded(value) for name, value in (published | extra).items()}


def document(arms: Mapping[Arm, ArmResult], run: Run) -> dict[str, Any]:
    complete = set(arms) == set(Arm)
    return {
        "arms": {str(arm): arm_json(arms[arm]) for arm in Arm if arm in arms},
        "ratios": {name: _rounded(value) for name, value in ratios(arms).items()},
        "knobs_restored": not run.knob_differences,
        "duration_s": _rounded(run.duration_s),
        "machine": dict(run.machine),
        "targets": [asdict(target) for target in targets(arms)] if complete else [],
        "knobs_written": run.knobs_written,
        "knob_differences": list(run.knob_differences),
        "means": list(run.means),
        "calibration": dict(run.calibration),
        "pending": None if run.pending is None else dict(run.pending),
        "interrupted": run.interrupted,
        "quick": run.quick,
    }


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def verdict(arms: Mapping[Arm, ArmResult], *, quick: bool) -> list[str]:
    """Plain sentences, the missed targets among them."""
    if set(arms) != set(Arm):
        return ["the run ended early: there are no figures for every arm"]
    found = ratios(arms)
    cotenant = arms[Arm.COTENANT]
    lines = [
        f"with Cotenant the machine was {cotenant.busy:.0%} busy and the service's p99 {_ms(cotenant.p99_ms)}: "
        f"{_times(found['p99_cotenant_over_alone'])} that of the service alone",
        f"uncontrolled it was {_times(found['p99_uncontrolled_over_cotenant'])} Cotenant's, "
        f"with minimal weight alone {_times(found['p99_weights_over_cotenant'])}",
        f"batch got {_percent(cotenant.work_share)} of what the leftover CPU could do, "
        f"{cotenant.work_per_s:.0f} units a second",
    ]
    missed = [target for target in targets(arms) if not target.met]
    if missed:
        lines += [f"missed: {target.name}, wanted {target.wanted}, got {_figure(target.got)}" for target in missed]
        lines.append(_why_missed(arms, quick=quick))
    else:
        lines.append("every target of the project for a 2-core machine was met")
    return lines


def _why_missed(arms: Mapping[Arm, ArmResult], *, quick: bool) -> str:
    if quick:
        return "a quick run is too short for its figures to hold; run it without --quick"
    busy_alone = arms[Arm.ALONE].other_cores
    if busy_alone > 0.15:
        return (
            f"others used {busy_alone:.2f} cores of this machine while the service ran alone: "
            "the figures hold for an otherwise idle machine"
        )
    return "the figures of each round are in demo-result.json; the picture shows when it happened"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} ms"


def _times(value: float | None) -> str:
    return "an unknown multiple of" if value is None else f"{value:.2f} times"


def _percent(value: float | None) -> str:
    return "an unknown part" if value is None else f"{value:.0%}"


def _figure(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.3g}"
