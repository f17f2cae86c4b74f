import pytest

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_descheduler.core.classify import Heat, NodeLoad, Thresholds, classify

GIB = 1 << 30


def load(
    cpu: int | None = 1000,
    memory: int | None = GIB,
    prod_cpu: int = 500,
    memory_pressure: float | None = None,
    wait_ms: float | None = None,
) -> NodeLoad:
    usage = {name: value for name, value in ((CPU, cpu), (MEMORY, memory)) if value is not None}
    return NodeLoad(
        node="n1",
        at_ms=0,
        allocatable={CPU: 4000, MEMORY: 10 * GIB},
        usage=usage,
        prod_usage={CPU: prod_cpu, MEMORY: GIB},
        memory_pressure=memory_pressure,
        run_queue_wait_ms=wait_ms,
    )


def test_a_node_that_batch_fills_to_its_line_is_fine() -> None:
    assert classify(load(cpu=3800), Thresholds()).heat is Heat.FINE


def test_usage_over_the_line_is_hot_and_names_what_must_leave() -> None:
    verdict = classify(load(cpu=3900), Thresholds())
    assert verdict.heat is Heat.HOT
    assert verdict.excess == {CPU: 100}
    assert "cpu usage 97.5 % is over 95 %" in verdict.sentence()


def test_prod_usage_has_a_lower_line_than_total_usage() -> None:
    verdict = classify(load(cpu=3000, prod_cpu=2700), Thresholds())
    assert [cause.what for cause in verdict.causes] == ["cpu prod usage"]
    assert verdict.excess == {CPU: 100}


def test_unknown_usage_is_never_hot() -> None:
    assert classify(load(cpu=None, memory=None), Thresholds()).heat is Heat.FINE


def test_a_line_that_is_unset_never_binds() -> None:
    off = Thresholds(total={}, prod={}, memory_pressure=None, run_queue_wait_ms=None)
    assert classify(load(cpu=4000, memory_pressure=99, wait_ms=900), off).heat is Heat.FINE


@pytest.mark.parametrize(
    ("memory_gib", "pressure", "heat"),
    [(9, 50, Heat.HOT), (9.2, 50, Heat.DANGER), (9.2, None, Heat.FINE), (9.8, None, Heat.DANGER)],
)
def test_short_memory_is_danger_only_with_pressure_or_when_nearly_gone(
    memory_gib: float, pressure: float | None, heat: Heat
) -> None:
    assert classify(load(memory=int(memory_gib * GIB), memory_pressure=pressure), Thresholds()).heat is heat


def test_waiting_services_make_a_node_hot_without_naming_an_amount() -> None:
    verdict = classify(load(wait_ms=400), Thresholds())
    assert verdict.heat is Heat.HOT
    assert verdict.excess == {}
    assert "ms/s" in verdict.sentence()
