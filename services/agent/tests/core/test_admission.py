from cotenant_agent.core.admission import refuse_capacity, refuse_digest
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, PODS

SLICE = {CPU: 2_000, MEMORY: 4 << 30, PODS: 2}


def test_a_binding_of_another_spec_is_refused():
    assert refuse_digest("a", "a") is None
    refusal = refuse_digest("a", "b")
    assert refusal is not None
    assert refusal.reason is ReasonCode.BIND_REJECTED


def test_exactly_full_is_not_over():
    assert refuse_capacity({CPU: 500}, [{CPU: 1_500}], SLICE) is None
    refusal = refuse_capacity({CPU: 501}, [{CPU: 1_500}], SLICE)
    assert refusal is not None
    assert "500m of 2 left" in refusal.message


def test_what_is_sold_twice_is_counted_apart_and_bounded_by_the_hardware():
    assert refuse_capacity({BATCH_CPU: 2_000}, [{CPU: 2_000}], SLICE) is None
    assert refuse_capacity({BATCH_MEMORY: (4 << 30) + 1}, [], SLICE) is not None


def test_the_number_of_pods_is_a_limit_too():
    assert refuse_capacity({}, [{}, {}], SLICE) is not None


def test_a_resource_that_the_slice_does_not_know_is_not_its_to_refuse():
    assert refuse_capacity({"example.com/thing": 1}, [], SLICE) is None
