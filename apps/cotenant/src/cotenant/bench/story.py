"""The seed story in numbers: how many machines the same work needs with and without sharing them.

A fleet is enough when, in the simulation, (1) every service runs and no service is pressed for a single second, and
(2) all batch work ends before the scenario does and got at least 95 % of the CPU time it asked for, because a simulated
job ends by the clock even when it was starved. Shared: services and batch on the same machines. Apart: the smallest
fleet that is enough for the services alone, and the smallest that is enough for the batch work alone, added up.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from cotenant.bench import rig
from cotenant.errors import BadInputError
from cotenant_common.model import resources
from cotenant_common.model.resources import BATCH_CPU
from cotenant_simulator.core import durations
from cotenant_simulator.run import Outcome, parse, run
from cotenant_simulator.traces import in_folder

FLEET: Final = "story-fleet-from-10-to-50-percent"
FESTIVAL: Final = "story-double-eleven"
ENOUGH_WORK_PERCENT: Final = 95
Story = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """``jobs`` None: all the story's. ``told`` says what a reader should think of."""

    name: str
    scenario: str
    told: str
    jobs: frozenset[str] | None = None


STEPS: Final = (
    Step("10 %", FLEET, "services alone", frozenset()),
    Step("30 %", FLEET, "with the first batch job", frozenset({"batch-30"})),
    Step("50 %", FLEET, "with both batch jobs", frozenset({"batch-30", "batch-50"})),
    Step("double eleven", FESTIVAL, "services at ten times their traffic, batch steps back by plan"),
)


@dataclass(frozen=True, slots=True)
class Run:
    enough: bool
    summary: Mapping[str, Any]


@dataclass(slots=True)
class Fleets:
    """Runs one kind of work on fleets of different sizes, each size once."""

    folder: Path
    story: Story
    say: Callable[[str], None]
    _runs: dict[int, Run] = field(default_factory=dict)

    def on(self, nodes: int) -> Run:
        if nodes not in self._runs:
            self.say(f"on {nodes} machines")
            story = on_nodes(self.story, nodes)
            outcome = run(parse(yaml.safe_dump(story), self.story["metadata"]["name"], in_folder(self.folder)))
            self._runs[nodes] = Run(is_enough(story, outcome), outcome.data["summary"])
        return self._runs[nodes]

    def smallest(self, most: int) -> int | None:
        """None: ``most`` are not enough. What is enough stays so when machines are added."""
        if not self.on(most).enough:
            return None
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.on(middle).enough else (middle + 1, high)
        return low


def measure(folder: Path, most: int, say: rig.Say) -> dict[str, Any]:
    """Raise BadInputError when the scenarios are not there."""
    machine = rig.describe()
    stories = {step.scenario: _load(folder, step.scenario) for step in STEPS}
    services = {
        name: Fleets(folder, without(story, {"Job", "ConfigMap"}), _saying(say, f"{name}: services alone")).smallest(
            most
        )
        for name, story in stories.items()
    }
    steps = [_step(folder, step, stories[step.scenario], services[step.scenario], most, say) for step in STEPS]
    return {"bench": "story", "steps": steps, "settings": {"nodes": most}, "rig": machine}


def _step(folder: Path, step: Step, whole: Story, services: int | None, most: int, say: rig.Say) -> dict[str, Any]:
    story = whole if step.jobs is None else with_jobs(whole, step.jobs)
    shared = Fleets(folder, story, _saying(say, f"{step.name}: shared"))
    together = shared.smallest(most)
    alone = Fleets(folder, without(story, {"Deployment", "ConfigMap"}), _saying(say, f"{step.name}: batch alone"))
    batch = alone.smallest(most) if list(jobs_of(story)) else 0
    apart = None if services is None or batch is None else services + batch
    summary = shared.on(together or most).summary
    return {
        "step": step.name,
        "scenario": step.scenario,
        "told": step.told,
        "machines": {"shared": together, "apart": apart, "services_alone": services, "batch_alone": batch},
        "saved_percent": None if together is None or not apart else round(100 * (apart - together) / apart, 1),
        "service_pressure_minutes": summary["pressure_minutes"],
        "cpu_percent": summary["utilisation_percent"]["cpu"]["total"],
        "batch_delay_s": {name: summary["batch_delay"][name] for name in ("mean_s", "p95_s")},
        "batch_core_minutes": round((summary["batch_work"]["done_cpu_milli_s"] or 0) / 60_000, 1),
        "batch_wasted_core_minutes": round((summary["batch_work"]["wasted_cpu_milli_s"] or 0) / 60_000, 1),
    }


TITLES: Final = ("STEP", "SHARED", "APART", "SAVED", "PRESSURE MIN", "CPU MEAN", "BATCH DELAY S", "BATCH CORE MIN")


def rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One a step, by TITLES. A number of machines that was not found is shown as more than were tried."""
    more = f"> {found['settings']['nodes']}"
    return [
        dict(
            zip(
                TITLES,
                (
                    one["step"],
                    one["machines"]["shared"] or more,
                    one["machines"]["apart"] or more,
                    None if one["saved_percent"] is None else f"{one['saved_percent']:g} %",
                    one["service_pressure_minutes"],
                    f"{one['cpu_percent']:.0f} %",
                    one["batch_delay_s"]["mean_s"],
                    one["batch_core_minutes"],
                ),
                strict=True,
            )
        )
        for one in found["steps"]
    ]


def _saying(say: rig.Say, what: str) -> Callable[[str], None]:
    return lambda text: say(f"{what}, {text}")


def _load(folder: Path, name: str) -> Story:
    path = folder / f"{name}.yaml"
    try:
        story = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}; run this in the repository or say --scenarios") from error
    del story["spec"]["expect"]
    return dict(story)


# The same story with other machines and with part of its work


def on_nodes(story: Story, count: int) -> Story:
    """As many machines like the story's first."""
    changed = copy.deepcopy(story)
    spec = changed["spec"]
    first = next(one for one in spec["objects"] if one["kind"] == "Node")
    system = next(entry["usage"] for entry in spec["timeline"] if "system" in entry.get("usage", {}))
    names = [f"n{number}" for number in range(1, count + 1)]
    nodes = [{**first, "metadata": {"name": name}} for name in names]
    spec["objects"] = [*nodes, *(one for one in spec["objects"] if one["kind"] != "Node")]
    usages = [{"at": "0s", "usage": {**system, "node": name}} for name in names]
    spec["timeline"] = [*usages, *(entry for entry in spec["timeline"] if "system" not in entry.get("usage", {}))]
    return changed


def without(story: Story, kinds: set[str]) -> Story:
    return _only(story, lambda one: one["kind"] not in kinds)


def with_jobs(story: Story, names: frozenset[str]) -> Story:
    return _only(story, lambda one: one["kind"] != "Job" or one["metadata"]["name"] in names)


def _only(story: Story, wanted: Callable[[Mapping[str, Any]], bool]) -> Story:
    changed = copy.deepcopy(story)
    spec = changed["spec"]
    spec["objects"] = [one for one in spec["objects"] if wanted(one)]
    timeline = []
    for entry in spec["timeline"]:
        verb = next((name for name in ("apply", "delete") if name in entry), None)
        if verb is not None:
            entry[verb] = [one for one in entry[verb] if wanted({"metadata": one, **one})]
        if verb is None or entry[verb]:
            timeline.append(entry)
    spec["timeline"] = timeline
    return changed


# Whether a fleet is enough


def jobs_of(story: Story) -> Iterator[Mapping[str, Any]]:
    for entry in story["spec"]["timeline"]:
        yield from (one for one in entry.get("apply", ()) if one["kind"] == "Job")


def asked_milli_s(jobs: Sequence[Mapping[str, Any]]) -> int:
    """CPU time of all units, in milli-core seconds."""
    return sum(job["spec"]["completions"] * _unit_milli_s(job["spec"]["template"]) for job in jobs)


def _unit_milli_s(template: Mapping[str, Any]) -> int:
    annotations = template["metadata"]["annotations"]
    lasts_ms = durations.parse_ms(annotations["cotenant.io/sim-duration"])
    requests = template["spec"]["containers"][0]["resources"]["requests"]
    return resources.parse(BATCH_CPU, requests[BATCH_CPU]) * lasts_ms // 1_000


def is_enough(story: Story, outcome: Outcome) -> bool:
    jobs = list(jobs_of(story))
    summary, pods = outcome.data["summary"], outcome.data["pods"].values()
    if summary["pressure_minutes"] or any(pod["qos"] == "LS" and pod["phase"] != "Running" for pod in pods):
        return False
    ended = sum(pod["qos"] == "BE" and pod["phase"] == "Succeeded" for pod in pods)
    done = summary["batch_work"]["done_cpu_milli_s"] or 0
    return ended == sum(job["spec"]["completions"] for job in jobs) and (
        100 * done >= ENOUGH_WORK_PERCENT * asked_milli_s(jobs)
    )
