from cotenant_descheduler.core.classify import Heat
from cotenant_descheduler.core.detector import AnomalyCondition, Counters, Transition, acted, mark

QUICK = AnomalyCondition(consecutive_abnormalities=1, consecutive_normalities=0, timeout_ms=60_000)


def run(heats: list[Heat], condition: AnomalyCondition, step_ms: int = 1000) -> list[Transition]:
    counters, seen = Counters(), []
    for index, heat in enumerate(heats):
        counters, transition = mark(counters, heat, index * step_ms, condition)
        seen.append(transition)
    return seen


def test_the_alarm_needs_one_more_than_n_abnormal_samples() -> None:
    assert run([Heat.FINE, Heat.HOT, Heat.HOT, Heat.FINE], QUICK) == [
        Transition.NONE,
        Transition.NONE,
        Transition.HOT,
        Transition.COOLED,
    ]


def test_the_default_raises_on_the_sixth_sample() -> None:
    assert run([Heat.HOT] * 7, AnomalyCondition()).index(Transition.HOT) == 5


def test_a_normal_sample_starts_the_count_anew() -> None:
    assert Transition.HOT not in run([*[Heat.HOT] * 5, Heat.FINE, *[Heat.HOT] * 5], AnomalyCondition())


def test_danger_does_not_wait() -> None:
    assert run([Heat.DANGER], AnomalyCondition()) == [Transition.HOT]


def test_an_alarm_ends_after_its_timeout_even_with_few_normal_samples() -> None:
    condition = AnomalyCondition(consecutive_abnormalities=0, consecutive_normalities=100, timeout_ms=60_000)
    assert run([Heat.HOT, Heat.FINE, Heat.FINE], condition, step_ms=30_000)[-1] is Transition.COOLED


def test_acting_on_a_node_keeps_its_alarm_but_not_its_count() -> None:
    counters, _ = mark(Counters(), Heat.DANGER, 0, AnomalyCondition())
    assert acted(counters).anomalous
    assert acted(counters).abnormal == 0
