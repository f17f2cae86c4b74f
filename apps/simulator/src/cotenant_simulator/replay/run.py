"""From a trace and a policy to a scenario, and from its outcome to figures."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotenant_simulator.core import durations
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.replay import generated, judge
from cotenant_simulator.replay.compose import Composed, Layout, compose
from cotenant_simulator.replay.family import Source, find
from cotenant_simulator.replay.gather import EmptyWindowError, Gathered, ReadAgain, Window, gather
from cotenant_simulator.replay.model import Item, LeftOut, Site, TraceError
from cotenant_simulator.replay.policy import Written, written_policy
from cotenant_simulator.run import Outcome, parse, run
from cotenant_simulator.traces import in_memory

Say = Callable[[str], None]
MOST_JOBS: Final = 4_000
"""A scenario is one document of at most 200,000 values; a job takes some forty."""


@dataclass(frozen=True, slots=True)
class Options:
    """What None leaves to the trace's family."""

    trace: Path
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    beside: Path | None = None
    policy: str | None = None
    nodes: int | None = None
    node_cpu_milli: int | None = None
    node_memory_bytes: int | None = None
    limit: int | None = None
    from_ms: int | None = None
    for_ms: int | None = None
    speed_up: int | None = None
    backlog: bool | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Prepared:
    options: Options
    source: Source
    gathered: Gathered
    composed: Composed
    scenario: Scenario
    notes: Sequence[str]

    def write(self, path: Path) -> list[Path]:
        """The scenario and its tables beside it. Raise TraceError."""
        texts = {path: self.composed.text} | {path.parent / name: text for name, text in self.composed.tables.items()}
        try:
            for target, text in texts.items():
                target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise TraceError(f"{path}: cannot be written: {error.strerror}") from error
        return list(texts)


@dataclass(frozen=True, slots=True)
class Replayed:
    data: dict[str, Any]
    outcome: Outcome


def _quiet(_: str) -> None: ...


def prepare(options: Options, say: Say = _quiet) -> Prepared:
    """Raise TraceError or ScenarioError."""
    policy = Written() if options.policy is None else written_policy(options.policy)
    source = find(options.trace, options.format)
    say(f"reading {options.trace} as {source.family.name}")
    gathered = _gathered(source, options, options)
    if options.beside is not None:
        say(f"reading {options.beside} beside it")
        elsewhere = replace(options, from_ms=None, columns={})
        gathered = gathered.beside(_gathered(find(options.beside, None), options, elsewhere))
    notes = list(source.family.notes)
    layout = _layout(source, gathered, policy, options)
    if not gathered.jobs and not gathered.services:
        limit = _limit(source, options)
        gathered.jobs = generated.gpu_jobs(gathered.machines, limit, options.seed)
    if len(gathered.jobs) > MOST_JOBS:
        raise TraceError(f"expected at most {MOST_JOBS:,} jobs, got {len(gathered.jobs):,}; say a lower --limit")
    if any(job.gang for job in gathered.jobs):
        notes.append("gangs are not held together yet: members start one by one, and gang_members_apart_s says how far")
    composed = compose(gathered, layout)
    scenario = parse(composed.text, f"{layout.name}.yaml", in_memory(composed.tables))
    return Prepared(options, source, gathered, composed, scenario, notes)


def _gathered(source: Source, sizes: Options, window: Options) -> Gathered:
    defaults = source.family.defaults
    left_out = LeftOut()
    site = Site(
        sizes.node_cpu_milli or defaults.node_cpu_milli,
        sizes.node_memory_bytes or defaults.node_memory_bytes,
        left_out,
        window.columns,
    )
    wanted = Window(
        window.from_ms,
        defaults.for_ms if window.for_ms is None else window.for_ms,
        _limit(source, window),
        defaults.most_members,
    )
    read = partial(_read, source, site)
    if window.from_ms is None and defaults.from_ms is not None:
        usual = _if_any(read, replace(wanted, from_ms=defaults.from_ms), site)
        if usual is not None:
            return usual
    return gather(read, wanted, left_out)


def _if_any(read: ReadAgain, usual: Window, site: Site) -> Gathered | None:
    """None: this is another cut of the trace than the usual one, and begins elsewhere."""
    try:
        return gather(read, usual, site.left_out)
    except EmptyWindowError:
        site.left_out.clear()
        return None


def _limit(source: Source, options: Options) -> int:
    """So many fit on the usual nodes; more nodes take more."""
    defaults = source.family.defaults
    return options.limit or max(1, defaults.limit * (options.nodes or defaults.nodes) // defaults.nodes)


def _read(source: Source, site: Site, left_out: LeftOut) -> Iterator[Item]:
    told = replace(site, left_out=left_out)
    for path in source.files:
        yield from source.family.read(path, told)


def _layout(source: Source, gathered: Gathered, policy: Written, options: Options) -> Layout:
    family = source.family.defaults
    defaults = replace(
        family,
        node_cpu_milli=options.node_cpu_milli or family.node_cpu_milli,
        node_memory_bytes=options.node_memory_bytes or family.node_memory_bytes,
    )
    backlog = options.backlog if options.backlog is not None else family.backlog and not gathered.jobs
    nodes = options.nodes or family.nodes
    name = f"replay-{source.family.name}"
    return Layout(name, options.seed, nodes, defaults, backlog, options.speed_up, policy.config, policy.objects)


def replay(prepared: Prepared) -> Replayed:
    """Raise ScenarioError when the gateway refuses what the trace or the policy asks."""
    outcome = run(prepared.scenario)
    composed, gathered, family = prepared.composed, prepared.gathered, prepared.source.family
    data = {
        "trace": {"family": family.name, "files": [str(file) for file in prepared.source.files]},
        "policy": prepared.options.policy,
        "seed": prepared.options.seed,
        "speed_up": composed.speed_up,
        "virtual_ms": outcome.data["virtual_ms"],
        "replayed": {
            "nodes": {"used": len(composed.machines), "in_trace": len(gathered.machines)},
            "services": {"used": len(gathered.services), "in_trace": gathered.services_seen},
            "jobs": {"used": len(gathered.jobs), "in_trace": gathered.jobs_seen},
        },
        "left_out": [
            {"reason": reason, "count": count, "first_at": gathered.left_out.places[reason]}
            for reason, count in gathered.left_out.counts.items()
        ],
        "notes": list(prepared.notes),
        "told_by_trace": told(prepared),
        "jobs": judge.job_figures(composed, outcome.data["events"]) if gathered.jobs else None,
        "summary": outcome.data.get("summary"),
        "outcome_sha256": hashlib.sha256(outcome.json().encode()).hexdigest(),
    }
    return Replayed(data, outcome)


def told(prepared: Prepared) -> dict[str, Any]:
    waits = judge.told_waits(prepared.composed.jobs)
    of_these = {} if waits is None else {"wait_s_of_these_jobs": waits}
    return {**prepared.source.family.told(prepared.source.files), **of_these}


def described(prepared: Prepared) -> str:
    """One line before it runs: what was taken of how much."""
    gathered, composed = prepared.gathered, prepared.composed
    parts = [_of(len(composed.machines), len(gathered.machines), "nodes")]
    if gathered.services:
        parts.append(_of(len(gathered.services), gathered.services_seen, "series", "first "))
    if gathered.jobs:
        parts.append(_of(len(gathered.jobs), gathered.jobs_seen, "jobs", "first "))
    length = durations.show(composed.duration_ms // 1_000 * 1_000)
    return f"{', '.join(parts)}; {length} of virtual time, {composed.speed_up} times as fast as the trace"


def _of(used: int, there: int, what: str, first: str = "") -> str:
    return f"{first}{used:,} of {there:,} {what}" if there > used else f"{used:,} {what}"
