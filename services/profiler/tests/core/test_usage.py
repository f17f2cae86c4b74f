from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.qos import PriorityBand
from cotenant_profiler.core.usage import PodSample, Sample, UsageWindow


def _sample(at_ms: int, cpu: int | None, *pods: str, memory: int = 5) -> Sample:
    usage = {"memory": memory} if cpu is None else {"cpu": cpu, "memory": memory}
    return Sample(at_ms, usage, usage, {uid: PodSample(PriorityBand.PROD, usage) for uid in pods})


def _window(*samples: Sample) -> Sample:
    window = UsageWindow(10_000)
    for sample in samples:
        window.add(sample)
    average = window.average()
    assert average is not None
    return average


def test_cpu_is_averaged_and_memory_is_the_newest() -> None:
    average = _window(_sample(0, 100, "p", memory=1), _sample(1000, 300, "p", memory=9))
    assert average.node == average.pods["p"].usage == {"cpu": 200, "memory": 9}


def test_an_unmeasured_sample_is_not_zero() -> None:
    assert _window(_sample(0, None), _sample(1000, 300)).node["cpu"] == 300
    assert "cpu" not in _window(_sample(0, None)).node


def test_pods_that_are_gone_do_not_linger() -> None:
    assert list(_window(_sample(0, 100, "gone", "p"), _sample(1000, 300, "p")).pods) == ["p"]


def test_samples_outside_the_window_are_forgotten() -> None:
    assert _window(_sample(0, 1000), _sample(10_000, 100)).node["cpu"] == 100


def test_a_late_or_repeated_sample_is_dropped() -> None:
    window = UsageWindow(10_000)
    assert window.average() is None
    assert window.add(_sample(1000, 100))
    assert not window.add(_sample(1000, 900))
    assert not window.add(_sample(500, 900))


_TABLES = [
    {},
    {"a": PodSample(PriorityBand.PROD, {"cpu": 100, "memory": 1})},
    {"a": PodSample(PriorityBand.PROD, {"cpu": 301, "memory": 2}), "b": PodSample(PriorityBand.BATCH, {"memory": 3})},
    {"b": PodSample(PriorityBand.BATCH, {"cpu": 7})},
]


def _mean(usages: list[int]) -> dict[str, int]:
    return {"cpu": sum(usages) // len(usages)} if usages else {}


@given(st.lists(st.tuples(st.integers(1, 4_000), st.sampled_from(range(len(_TABLES)))), min_size=1, max_size=40))
def test_the_running_means_are_those_of_the_window(steps: list[tuple[int, int]]) -> None:
    """Whatever comes and goes, and however often the very same table of pods is reported in a row."""
    window, kept, at_ms = UsageWindow(10_000), deque[Sample](), 0
    for step_ms, table in steps:
        at_ms += step_ms
        sample = Sample(at_ms, {"cpu": table}, {}, _TABLES[table])
        window.add(sample)
        kept.append(sample)
        while at_ms - kept[0].at_ms >= 10_000:
            kept.popleft()
        average = window.average()
        assert average is not None
        assert average.node == _mean([one.node["cpu"] for one in kept])
        expected = {}
        for uid, pod in _TABLES[table].items():
            known = [one.pods[uid].usage["cpu"] for one in kept if uid in one.pods and "cpu" in one.pods[uid].usage]
            memory = {"memory": pod.usage["memory"]} if "memory" in pod.usage else {}
            expected[uid] = PodSample(pod.band, _mean(known) | memory)
        assert average.pods == expected
