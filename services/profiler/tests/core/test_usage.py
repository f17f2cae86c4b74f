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
