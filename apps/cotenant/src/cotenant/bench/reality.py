"""The simulator against the machine: what the demo measured, and what a simulation of its arms says."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from cotenant.bench import arms
from cotenant.bench.arms import Given, Step
from cotenant.demo.plan import LOAD_SHARES, NEIGHBOUR_MEMORY_BYTES, Arm, neighbour_milli
from cotenant.errors import BadInputError
from cotenant_simulator import parse
from cotenant_simulator.gauges import Sample, run_gauged

Json = dict[str, Any]

FIGURES: Final[Mapping[str, str]] = {
    "busy_percent": "machine busy, percent",
    "service_cores": "cores the service got",
    "batch_cores": "cores the neighbours got",
    "batch_share_percent": "neighbours' part of what was left over, percent",
    "admitted": "neighbours running, mean",
    "admitted_cores": "cores they asked for together",
    "evictions": "neighbours that left before their end",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm over the measured time. Means; ``evictions`` is a count per segment."""

    busy_percent: float
    service_cores: float
    batch_cores: float
    batch_share_percent: float | None
    admitted: float
    admitted_cores: float
    evictions: float


def read_result(path: Path) -> Json:
    """Raise BadInputError for what is no whole result of a demo."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInputError(f"{path}: not JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("segments"), list):
        raise BadInputError(f"{path}: segments: required; expected the demo-result.json of `cotenant demo`")
    found = [segment.get("arm") for segment in body["segments"]]
    missing = [str(arm) for arm in Arm if str(arm) not in found]
    if missing:
        raise BadInputError(f"{path}: segments: nothing of the arms {', '.join(missing)}: the run ended early")
    return body


def given_by(body: Json) -> Given:
    """The simulator gets the machine and the arm without neighbours, and nothing of the arms it is to predict."""
    cores, segment_s = int(body["machine"]["cores"]), float(body["calibration"]["segment_s"])
    held = float(body["arms"][str(Arm.UNCONTROLLED)].get("memory_over_grant_bytes") or 0)
    return Given(
        cores=cores,
        memory_bytes=int(body["machine"]["memory_bytes"]),
        steps=_steps(_segments(body, Arm.ALONE), segment_s, cores),
        segment_s=segment_s,
        balloon_bytes=round(held) + NEIGHBOUR_MEMORY_BYTES,
    )


def _steps(alone: Sequence[Json], segment_s: float, cores: int) -> list[Step]:
    count = len(LOAD_SHARES)
    seen = [one for segment in alone for one in segment["timeline"]]
    found = []
    for number in range(count):
        begin_s, end_s = number * segment_s / count, (number + 1) * segment_s / count
        part = [one for one in seen if begin_s < one["at_s"] <= end_s + 1e-6]
        service = sum(one["service_cores"] for one in part) / len(part)
        busy = cores * sum(one["busy_ratio"] for one in part) / len(part)
        found.append(Step(round(1000 * service), round(1000 * max(0.0, busy - service))))
    return found


# What was measured


def measured(body: Json) -> dict[Arm, Figures]:
    cores = float(body["machine"]["cores"])
    return {arm: _measured_arm(body["arms"][str(arm)], _segments(body, arm), cores) for arm in Arm}


def _segments(body: Json, arm: Arm) -> list[Json]:
    return [segment for segment in body["segments"] if segment["arm"] == str(arm)]


def _measured_arm(figures: Json, segments: Sequence[Json], cores: float) -> Figures:
    seen = [one for segment in segments for one in segment["timeline"]]
    batch = [work["cpu_s"] for segment in segments for work in segment["work"].values()]
    seconds = float(figures["seconds"])
    batch_cores = sum(batch) / seconds
    left = min(float(figures["leftover_core_s"]) / seconds, cores)
    admitted = _mean([one["admitted"] for one in seen])
    return Figures(
        busy_percent=100 * float(figures["busy"]),
        service_cores=float(figures["service_cores"]),
        batch_cores=batch_cores,
        batch_share_percent=None if not batch or left <= 0 else 100 * batch_cores / left,
        admitted=admitted,
        admitted_cores=_asked_cores(admitted, cores),
        evictions=_mean([_leavings([one["admitted"] for one in segment["timeline"]]) for segment in segments]),
    )


def _leavings(admitted: Sequence[int]) -> int:
    """The demo counts who runs twice a second, and so does the gauge; who runs no more has left."""
    return sum(max(0, before - after) for before, after in pairwise(admitted))


# What is simulated


def simulated(given: Given) -> dict[Arm, Figures]:
    _, samples = run_gauged(parse(arms.text(given), "demo-arms.yaml"))
    begin_ms, end_ms = round(1000 * given.load_at_s), round(1000 * given.end_s)
    within = [sample for sample in samples if begin_ms < sample.t_ms <= end_ms]
    return {arm: _simulated_arm(arm, [one for one in within if one.node == str(arm)]) for arm in Arm}


def _simulated_arm(arm: Arm, samples: Sequence[Sample]) -> Figures:
    service = f"{arms.NAMESPACE}/{arms.service_name(arm)}"
    served = [one.pods.get(service, 0.0) for one in samples]
    batch = [sum(given for key, given in one.pods.items() if key != service) for one in samples]
    left = [one.capacity_milli - one.system_milli - milli for one, milli in zip(samples, served, strict=True)]
    admitted = [one.held - 1 for one in samples]
    return Figures(
        busy_percent=100 * _mean([one.busy_milli / one.capacity_milli for one in samples]),
        service_cores=_mean(served) / 1000,
        batch_cores=_mean(batch) / 1000,
        batch_share_percent=None if not any(admitted) else 100 * _mean(batch) / max(_mean(left), 1e-9),
        admitted=_mean(admitted),
        admitted_cores=_asked_cores(_mean(admitted), samples[0].capacity_milli / 1000),
        evictions=float(_leavings(admitted)),
    )


def _asked_cores(admitted: float, cores: float) -> float:
    return admitted * neighbour_milli(round(cores)) / 1000


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# Side by side


def _write_scenario(path: Path, given: Given) -> None:
    try:
        path.write_text(arms.text(given), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error


def compare(path: Path, say: Callable[[str], None], scenario: Path | None = None) -> Json:
    """``scenario`` is where what was simulated is written. Raise BadInputError."""
    body = read_result(path)
    try:
        given, found = given_by(body), measured(body)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BadInputError(
            f"{path}: not a result of this version's demo: {type(error).__name__}: {error}; run `cotenant demo` again"
        ) from error
    say(f"simulating {len(Arm)} arms of {given.segment_s:g} s")
    model = simulated(given)
    if scenario is not None:
        _write_scenario(scenario, given)
    rows = [_row(arm, name, found[arm], model[arm]) for arm in Arm for name in FIGURES]
    return {
        "result": str(path),
        "machine": body["machine"],
        "given": {
            "cores": given.cores,
            "segment_s": given.segment_s,
            "steps": [{"service_milli": step.service_milli, "system_milli": step.system_milli} for step in given.steps],
        },
        "quick": bool(body.get("quick")),
        "figures": rows,
    }


def _row(arm: Arm, name: str, found: Figures, model: Figures) -> Json:
    was, said = getattr(found, name), getattr(model, name)
    deviation = None if was is None or said is None else round(said - was, 3)
    return {
        "arm": str(arm),
        "figure": name,
        "what": FIGURES[name],
        "measured": None if was is None else round(was, 3),
        "simulated": None if said is None else round(said, 3),
        "deviation": deviation,
    }
