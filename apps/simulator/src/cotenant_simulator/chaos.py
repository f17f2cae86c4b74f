"""Random faults against a scenario, invariants at every step, and the smallest file that still breaks one."""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from cotenant_gateway.core.yaml_source import SourceError
from cotenant_gateway.core.yaml_source import load as load_yaml
from cotenant_simulator import loop
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.core import durations
from cotenant_simulator.core.scenario import AGENT, BUS, SERVICES, FaultKind, Scenario
from cotenant_simulator.driver import Driver
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.hosting import SERVICE_CRASHED
from cotenant_simulator.run import parse
from cotenant_simulator.sources import read_text
from cotenant_simulator.traces import in_folder
from cotenant_simulator.watch import Violation, Watch

Data = dict[str, Any]

FAULTS: Final = 8
_LOOK_EVERY_MS: Final = 1_000
_SHORTEST_MS, _LONGEST_MS = 500, 15_000
_GAVE_UP: Final = "BusUnavailableError"
"""A service may die because the bus stays away: whoever started it starts it again."""
_QUIET_END: Final = 0.6
"""Faults begin in the first part only, so that what is broken at the end stays broken."""


@dataclass(frozen=True, slots=True)
class Report:
    """``file`` is the shrunken scenario when something broke, None otherwise."""

    seed: int
    faults: Sequence[Data]
    violations: Sequence[Violation] = ()
    file: str | None = None
    tried: int = 0

    @property
    def ok(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class _Shrinker:
    """Takes away one part after the other, as long as the same kind of thing still breaks."""

    source: str
    tried: int = 0
    violations: list[Violation] = field(default_factory=list)

    def breaks(self, data: Data) -> bool:
        self.tried += 1
        try:
            found = check(_scenario(data, self.source))
        except ScenarioError:
            return False  # what was taken away was needed
        if found:
            self.violations = found
        return bool(found)

    def shrink(self, data: Data) -> Data:
        smaller = True
        while smaller:
            smaller = False
            for section in ("timeline", "objects"):
                for at in reversed(range(len(data["spec"].get(section) or []))):
                    candidate = copy.deepcopy(data)
                    del candidate["spec"][section][at]
                    if self.breaks(candidate):
                        data, smaller = candidate, True
        return data


def chaos(text: str, source: str, seed: int, *, faults: int = FAULTS) -> Report:
    """Raise ScenarioError when the scenario is wrong before any fault."""
    scenario = _read(text, source)
    data = _plain(text, source)
    chosen = choose_faults(random.Random(seed), scenario.duration_ms, _nodes(data), faults)  # noqa: S311 - no secret
    disturbed = copy.deepcopy(data)
    disturbed["spec"]["timeline"] = [*(data["spec"].get("timeline") or []), *chosen]
    # What was expected of a quiet day says nothing about this one.
    disturbed["spec"].pop("expect", None)
    violations = check(_scenario(disturbed, source))
    if not violations:
        return Report(seed, chosen)
    shrinker = _Shrinker(source, violations=violations)
    smallest = shrinker.shrink(disturbed)
    smallest["metadata"] = {"name": f"{scenario.name}-chaos-{seed}"}
    file = yaml.safe_dump(smallest, sort_keys=False, allow_unicode=True, width=120)
    return Report(seed, chosen, shrinker.violations, file, shrinker.tried)


def _plain(text: str, source: str) -> Data:
    try:
        return copy.deepcopy(dict(load_yaml(text)[0].data))
    except SourceError as problem:
        raise ScenarioError(source, problem.line, "", str(problem)) from problem


def _scenario(data: Data, source: str) -> Scenario:
    return _read(yaml.safe_dump(data, sort_keys=False), source)


def _read(text: str, source: str) -> Scenario:
    return parse(text, source, in_folder(Path(source).parent))


def _nodes(data: Data) -> list[str]:
    return [one["metadata"]["name"] for one in data["spec"].get("objects") or [] if one.get("kind") == "Node"]


def choose_faults(chance: random.Random, duration_ms: int, nodes: Sequence[str], count: int) -> list[Data]:
    """Entries of a timeline, in its own words, by time."""
    targets = [{"service": name} for name in (*SERVICES, BUS)]
    targets += [{"service": AGENT, "node": name} for name in nodes]
    last_ms = max(1, round(duration_ms * _QUIET_END))
    chosen: list[tuple[int, Data]] = []
    for _ in range(count):
        at_ms = chance.randrange(last_ms) // 100 * 100
        lasts_ms = chance.randrange(_SHORTEST_MS, min(_LONGEST_MS, max(_SHORTEST_MS + 1, last_ms))) // 100 * 100
        fault = {**chance.choice(targets), "kind": chance.choice(list(FaultKind)).value}
        chosen.append((at_ms, {"at": durations.show(at_ms), "fault": fault, "for": durations.show(lasts_ms)}))
    return [entry for _, entry in sorted(chosen, key=lambda one: one[0])]


def check(scenario: Scenario) -> list[Violation]:
    """Run it and say what broke. A service that crashed by itself counts."""
    return loop.run(_check(scenario))


async def _check(scenario: Scenario) -> list[Violation]:
    cluster = Cluster(scenario.overrides, scenario.seed)
    with cluster.troubles.catching_all():
        driver = Driver(scenario, cluster)
        watch = Watch(cluster, driver.recorder)
        driver.look_every(_LOOK_EVERY_MS, watch.look, watch.finish)
        await driver.run()
    crashed = [
        Violation(one.t_ms, f"{one.service} crashed by itself: {one.details}")
        for one in cluster.troubles.found
        if one.event == SERVICE_CRASHED and _GAVE_UP not in one.details
    ]
    return [*watch.violations, *crashed]


def simulate_chaos(path: str | Path, seed: int) -> tuple[str, int]:
    """The text to print and the exit status: 0 all held, 1 something broke, 3 bad input."""
    try:
        report = chaos(read_text(Path(path)), str(path), seed)
    except ScenarioError as error:
        return f"{error}\n", 3
    lines = [f"{path}, chaos seed {seed}: {len(report.faults)} faults"]
    lines += [f"  at {one['at']} for {one['for']}: {_words(one['fault'])}" for one in report.faults]
    if report.ok:
        return "\n".join([*lines, "every invariant held"]) + "\n", 0
    lines += [f"BROKEN at {durations.show(one.t_ms)}: {one.message}" for one in report.violations]
    lines += [f"# the smallest scenario that still breaks, after {report.tried} tries:", report.file or ""]
    return "\n".join(lines), 1


def _words(fault: Data) -> str:
    return f"{fault['kind']} of {fault['service']}{' on ' + fault['node'] if 'node' in fault else ''}"
