from cotenant_simulator.core.series import MOST_POINTS, Point, Series, default_sample_ms
from cotenant_simulator.core.summary import PodFacts


def point(t_ms: int) -> Point:
    nobody = {"cpu": {}, "memory": {}}
    return Point(t_ms, 1, 0, {"cpu": 1_000, "memory": 1}, nobody, nobody, 0, {}, {})


def event(t_ms: int, kind: str, reason: str | None = None) -> dict[str, object]:
    return {"t_ms": t_ms, "type": kind, "object": "Pod/default/a", "reason": reason, "data": {}}


def test_any_duration_gives_some_hundred_points_at_most():
    assert default_sample_ms(30_000) == 1_000
    for duration_ms in (599_000, 600_000, 601_000, 86_400_000):
        step_ms = default_sample_ms(duration_ms)
        assert step_ms % 1_000 == 0
        assert duration_ms / step_ms <= MOST_POINTS


def test_queue_and_evictions_follow_the_events():
    series = Series(1_000, [point(500), point(1_500), point(2_500)])
    events = [event(1_000, "pod.queued"), event(2_000, "pod.bound"), event(2_400, "pod.evicted", "NodeHot")]
    series.finish(events, {"default/a": PodFacts("batch")})
    assert [one["batch"] for one in series.waiting] == [0, 1, 0]
    assert [one["NodeHot"] for one in series.evictions] == [0, 0, 1]
    named = [reading for t_ms, reading in series.readings() if t_ms == 1_500]
    assert ("waiting_pods", "batch", 1) in named
