from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_profiler.core.facts import PodFacts
from cotenant_profiler.core.models import NodeModels
from cotenant_profiler.core.predictor import Forecast, PodPeak, cautious, class_forecast, pod_forecast
from cotenant_profiler.core.usage import PodSample, Sample

HOUR = 3_600_000
DAY = 24 * HOUR


def _amounts(cpu_milli: int) -> dict[str, int]:
    return {"cpu": cpu_milli, "memory": cpu_milli}


NORMAL = PodPeak("normal", _amounts(2000), _amounts(500))
COLD = PodPeak("cold", _amounts(1000), None)
FAILED = PodPeak("failed", _amounts(500), None)


def test_a_pod_gives_up_what_lies_above_its_peak_and_margin() -> None:
    assert pod_forecast([NORMAL], _amounts(8000)).reclaimable == _amounts(1450)


def test_prod_and_system_together() -> None:
    assert class_forecast(_amounts(3000), _amounts(1300), _amounts(8000)).reclaimable == _amounts(1570)


def test_the_smaller_forecast_and_the_higher_peak_hold() -> None:
    both = cautious(
        pod_forecast([NORMAL, COLD], _amounts(8000)),
        class_forecast(_amounts(3000), _amounts(1300), _amounts(8000)),
    )
    assert both == Forecast(_amounts(1450), _amounts(1550))


def test_a_small_node_bounds_both_forecasts() -> None:
    assert pod_forecast([NORMAL], _amounts(1000)).reclaimable == _amounts(450)
    assert class_forecast(_amounts(3000), _amounts(1300), _amounts(1000)).reclaimable == _amounts(0)


def test_unpredicted_pods_count_with_their_request() -> None:
    assert pod_forecast([NORMAL, COLD, FAILED], _amounts(8000)).peak == _amounts(550 + 1000 + 500)


def _sample(cpu_milli: int) -> Sample:
    pods = {"p": PodSample(PriorityBand.PROD, _amounts(cpu_milli)), "b": PodSample(PriorityBand.BATCH, _amounts(9999))}
    return Sample(0, _amounts(0), _amounts(100), pods)


def _pod(created_ms: int = 0) -> PodFacts:
    return PodFacts("p", PriorityBand.PROD, QosClass.LS, _amounts(2000), created_ms=created_ms)


def test_a_model_learns_once_a_minute_and_speaks_after_a_day() -> None:
    models = NodeModels()
    assert models.learn(_sample(500), 0) is True
    assert models.learn(_sample(500), 59_999) is False
    for hour in range(1, 25):
        models.learn(_sample(500), hour * HOUR)
    assert models.forecast([_pod()], _amounts(8000), DAY - 1) is None
    forecast = models.forecast([_pod()], _amounts(8000), DAY)
    assert forecast is not None
    # Prod and system peak at 500 and 100; a peak is the end of its bucket, and ten percent of margin come on top.
    assert 2000 - (550 + 130) * 1.1 <= forecast.reclaimable["cpu"] <= 2000 - 600 * 1.1


def test_a_young_pod_gives_up_nothing_though_the_node_is_known() -> None:
    models = NodeModels()
    for hour in range(26):
        models.learn(_sample(500), hour * HOUR)
    forecast = models.forecast([_pod(created_ms=10 * HOUR)], _amounts(8000), 25 * HOUR)
    assert forecast is not None
    assert forecast.reclaimable == _amounts(0)


def test_a_pod_that_is_measured_by_half_is_not_learned() -> None:
    models = NodeModels(cold_start_ms=0)
    models.learn(Sample(0, {}, _amounts(100), {"p": PodSample(PriorityBand.PROD, {"cpu": 5})}), 0)
    forecast = models.forecast([_pod()], _amounts(8000), 1)
    assert forecast is not None
    assert forecast.reclaimable == _amounts(0)
