from typing import Any

from cotenant_simulator.replay.compose import Composed
from cotenant_simulator.replay.judge import job_figures
from cotenant_simulator.replay.model import Job


def event(t_ms: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"t_ms": t_ms, "type": kind, "object": "Pod/default/job-0", "data": data}


def composed() -> Composed:
    job = Job("job", 0, 10_000, {"cpu": 1_000})
    return Composed("", {}, 1, 60_000, [], {"job": job}, {"job": 0})


def test_a_job_that_was_evicted_has_not_finished():
    events = [event(1_000, "pod.bound"), event(5_000, "pod.finished", phase="Failed"), event(9_000, "pod.bound")]
    assert job_figures(composed(), events)["finished"] == 0
    ended = job_figures(composed(), [*events, event(21_000, "pod.finished", phase="Succeeded")])
    assert (ended["finished"], ended["bounded_slowdown_mean"]) == (1, 2.0)
    assert ended["wait_s"]["max"] == 1.0
