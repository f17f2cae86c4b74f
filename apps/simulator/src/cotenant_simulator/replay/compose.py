"""What was gathered, as the text of a scenario and the tables it names."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any, Final

import yaml

from cotenant_common.model import resources
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.core import durations
from cotenant_simulator.replay import manifests
from cotenant_simulator.replay.gather import Gathered
from cotenant_simulator.replay.model import Defaults, Job, Machine, Series, Service

TARGET_MS: Final = 600_000
"""Virtual time to aim at when nobody says how much faster than the trace to go."""
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400)
SETTLE_MS: Final = 10_000
"""Nodes register and report before the trace begins."""
_TAIL_MS: Final = 30_000
_SYSTEM: Final = {"cpu": "200m", "memory": "1Gi"}
BACKLOG_UNIT_MS: Final = 3_600_000
_BACKLOG_UNITS_PER_NODE: Final = 10
_MOST_COMPLETIONS: Final = 100_000
BACKLOG: Final = "backlog"


@dataclass(frozen=True, slots=True)
class Layout:
    """How the replay is set up. ``speed_up`` None: as fast as ``TARGET_MS`` asks for."""

    name: str
    seed: int
    nodes: int
    defaults: Defaults
    backlog: bool
    speed_up: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    objects: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Composed:
    text: str
    tables: Mapping[str, str]
    speed_up: int
    duration_ms: int
    machines: Sequence[Machine]
    jobs: Mapping[str, Job]
    """By the name that the object has; times of the trace, counted from the start of the replay."""
    submitted_ms: Mapping[str, int]
    """Virtual."""


def compose(gathered: Gathered, layout: Layout) -> Composed:
    length_ms = trace_length_ms(gathered)
    speed_up = layout.speed_up or next((step for step in _STEPS if length_ms // step <= TARGET_MS), _STEPS[-1])
    duration_ms = SETTLE_MS + length_ms // speed_up + _TAIL_MS
    machines = chosen_machines(gathered.machines, layout)
    jobs = _named(gathered.jobs)
    submitted = {name: SETTLE_MS + job.submit_ms // speed_up for name, job in jobs.items()}
    tables = _Tables(layout.name, speed_up)
    services = [manifests.service(one, tables.usage(one)) for one in gathered.services]
    timeline: list[Any] = [{"at": "0s", "usage": {"node": one.name, "system": _SYSTEM}} for one in machines]
    if layout.backlog:
        timeline.append({"at": durations.show(SETTLE_MS), "apply": [_backlog(machines, speed_up, duration_ms)]})
    timeline += _arrivals(jobs, submitted, speed_up)
    spec = {
        "seed": layout.seed,
        "duration": durations.show(duration_ms),
        **({"config": dict(layout.config)} if layout.config else {}),
        "objects": [*(manifests.node(one) for one in machines), *layout.objects, *services],
        "timeline": timeline,
    }
    scenario = {"apiVersion": "cotenant.io/v1", "kind": "Scenario", "metadata": {"name": layout.name}, "spec": spec}
    text = yaml.dump(scenario, Dumper=_DUMPER, sort_keys=False, width=120, default_flow_style=None)
    return Composed(text, tables.texts(), speed_up, duration_ms, machines, jobs, submitted)


_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def trace_length_ms(gathered: Gathered) -> int:
    """To the end of the series and of the jobs; the last jobs get as long again as all of them took to arrive, no
    longer, for one job of a month would make the replay a month.
    """
    series = (one.end_ms for service in gathered.services for one in service.demand.values())
    arriving_ms = max((job.submit_ms for job in gathered.jobs), default=0)
    ends = (job.submit_ms + (job.duration_ms or 0) for job in gathered.jobs)
    return max(max(series, default=0), min(max(ends, default=0), 2 * arriving_ms + 3_600_000))


def chosen_machines(machines: Sequence[Machine], layout: Layout) -> list[Machine]:
    """Of the trace's own evenly spread over its list, so that every kind is there in its share; else made up."""
    count = min(layout.nodes, len(machines)) if machines else layout.nodes
    if machines:
        return [machines[at * len(machines) // count] for at in range(count)]
    capacity = {CPU: layout.defaults.node_cpu_milli, MEMORY: layout.defaults.node_memory_bytes}
    return [Machine(f"node-{at + 1}", {**capacity, **layout.defaults.devices}) for at in range(count)]


def _named(jobs: Sequence[Job]) -> dict[str, Job]:
    """Traces repeat names; objects may not."""
    named: dict[str, Job] = {}
    for job in jobs:
        name, again = job.name, 1
        while name in named:
            again += 1
            name = f"{job.name}-{again}"
        named[name] = replace(job, name=name)
    return named


def _arrivals(jobs: Mapping[str, Job], submitted: Mapping[str, int], speed_up: int) -> list[dict[str, Any]]:
    """One entry an instant."""
    by_time: dict[int, list[Any]] = {}
    for name, job in jobs.items():
        lasts_ms = None if job.duration_ms is None else max(1, job.duration_ms // speed_up)
        by_time.setdefault(submitted[name], []).append(manifests.job(job, lasts_ms))
    return [{"at": durations.show(at_ms), "apply": objects} for at_ms, objects in sorted(by_time.items())]


def _backlog(machines: Sequence[Machine], speed_up: int, duration_ms: int) -> dict[str, Any]:
    """Units of an hour and a tenth of a machine; one more of each machine's fill than could ever run waits."""
    cpu_milli = max(1, min(one.capacity[CPU] for one in machines) // _BACKLOG_UNITS_PER_NODE)
    memory = min(one.capacity[MEMORY] for one in machines) // (4 * _BACKLOG_UNITS_PER_NODE)
    unit = Job(BACKLOG, 0, BACKLOG_UNIT_MS, {CPU: cpu_milli, MEMORY: memory})
    parallelism = sum(one.capacity[CPU] // cpu_milli for one in machines)
    lasts_ms = max(1_000, BACKLOG_UNIT_MS // speed_up)
    rounds = duration_ms // lasts_ms + 2
    return manifests.backlog(unit, min(_MOST_COMPLETIONS, parallelism * rounds), parallelism, lasts_ms)


class _Tables:
    """One table for all series with the same times."""

    def __init__(self, name: str, speed_up: int) -> None:
        self._name = name
        self._speed_up = speed_up
        self._grids: dict[tuple[int, ...], dict[str, Sequence[int | None]]] = {}

    def usage(self, service: Service) -> str:
        """The annotation; what never changes needs no table."""
        return json.dumps({name: self._one(service.name, name, series) for name, series in service.demand.items()})

    def _one(self, service: str, resource: str, series: Series) -> Any:
        if len(series.values) == 1 and series.values[0] is not None:
            return resources.render(resource, series.values[0])
        columns = self._grids.setdefault(tuple(series.times_ms), {})
        column = f"{service}.{resource}"
        columns[column] = series.values
        unit = "1m" if resource == CPU else "1"
        return {"trace": self._file(tuple(series.times_ms)), "column": column, "time": "t_s", "unit": unit}

    def _file(self, times_ms: tuple[int, ...]) -> str:
        return f"{self._name}-demand-{list(self._grids).index(times_ms) + 1}.csv"

    def texts(self) -> dict[str, str]:
        return {self._file(times): self._table(times, columns) for times, columns in self._grids.items()}

    def _table(self, times_ms: Sequence[int], columns: Mapping[str, Sequence[int | None]]) -> str:
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["t_s", *columns])
        before_ms = -1
        for at, at_ms in enumerate(times_ms):
            # What comes first holds while the nodes settle; of samples that fall on one instant the first is taken.
            t_ms = SETTLE_MS + at_ms // self._speed_up if at_ms else 0
            if t_ms == before_ms:
                continue
            before_ms = t_ms
            values = [column[at] for column in columns.values()]
            writer.writerow([_seconds(t_ms), *("" if value is None else value for value in values)])
        return out.getvalue()


def _seconds(ms: int) -> str:
    seconds, rest = divmod(ms, 1_000)
    return f"{seconds}.{rest:03}" if rest else str(seconds)
