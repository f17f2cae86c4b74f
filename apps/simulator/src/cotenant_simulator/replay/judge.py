"""What became of the jobs, in the trace's own seconds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant_simulator.core.summary import completed
from cotenant_simulator.node.runtime import START_MS
from cotenant_simulator.replay.compose import Composed
from cotenant_simulator.replay.figures import spread
from cotenant_simulator.replay.model import Job

_BOUND_MS: Final = 10_000
"""Jobs shorter than this count as this long: the usual bounded slowdown."""
Events = Sequence[Mapping[str, Any]]


def job_figures(composed: Composed, events: Events) -> dict[str, Any]:
    """A job waits until its last member is bound for the first time; it has finished when all members have."""
    bound = _first(events, "pod.bound")
    finished = _succeeded(events)
    waits: list[int] = []
    slowdowns: list[float] = []
    apart: list[int] = []
    for name, job in composed.jobs.items():
        members = [f"Pod/default/{name}-{at}" for at in range(job.members)]
        starts = [bound[one] for one in members if one in bound]
        if len(starts) < job.members:
            continue
        waits.append((max(starts) - composed.submitted_ms[name]) * composed.speed_up)
        if job.gang:
            apart.append((max(starts) - min(starts)) * composed.speed_up)
        if all(one in finished for one in members) and job.duration_ms is not None:
            last_ms = max(finished[one] for one in members)
            # How long a container takes to start is the simulator's constant, not the trace's, and grows with speed_up.
            took_ms = last_ms - composed.submitted_ms[name] - START_MS
            slowdowns.append(_slowdown(took_ms * composed.speed_up, job))
    gangs = sum(job.gang for job in composed.jobs.values())
    return {
        "jobs": len(composed.jobs),
        "started": len(waits),
        "finished": len(slowdowns),
        "wait_s": spread(waits),
        "bounded_slowdown_mean": round(sum(slowdowns) / len(slowdowns), 2) if slowdowns else None,
        **({"gangs": gangs, "gang_members_apart_s": spread(apart)} if gangs else {}),
    }


def _slowdown(took_ms: int, job: Job) -> float:
    return max(1.0, took_ms / max(job.duration_ms or 0, _BOUND_MS))


def told_waits(jobs: Mapping[str, Job]) -> dict[str, Any] | None:
    """Of the jobs that were replayed, as the trace has them."""
    waits = [job.told_wait_ms for job in jobs.values() if job.told_wait_ms is not None]
    return spread(waits) if waits else None


def _first(events: Events, kind: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in events:
        if event["type"] == kind:
            found.setdefault(event["object"], event["t_ms"])
    return found


def _succeeded(events: Events) -> dict[str, int]:
    return {event["object"]: event["t_ms"] for event in events if completed(event)}
