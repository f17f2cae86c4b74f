from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_profiler.core.batch import batch_terms
from cotenant_profiler.core.facts import LooseUsage, NodeFacts, PodFacts
from cotenant_profiler.core.strategy import CalculatePolicy, Strategy

G = 10**9
PROD, BATCH = PriorityBand.PROD, PriorityBand.BATCH


def _amounts(cores: int, gigabytes: int) -> dict[str, int]:
    return {"cpu": 1000 * cores, "memory": gigabytes * G}


def _pod(uid: str, band: PriorityBand, used: tuple[int, int] | None, **more: Any) -> PodFacts:
    usage = {} if used is None else _amounts(*used)
    return PodFacts(uid, band, more.pop("qos", QosClass.LS), more.pop("request", usage), usage)


PODS = (
    _pod("ls", PROD, (11, 11)),
    _pod("be", BATCH, (10, 10), qos=QosClass.BE),
    _pod("pending", PROD, (22, 22)),
)


def _node(**more: Any) -> NodeFacts:
    given_node = {
        "capacity": _amounts(100, 120),
        "allocatable": _amounts(100, 120),
        "system_usage": _amounts(7, 12),
        "pods": PODS,
    }
    return NodeFacts(**{**given_node, **more})


def _strategy(cpu: int = 65, memory: int = 65, **more: Any) -> Strategy:
    return Strategy(reclaim_percent={"cpu": cpu, "memory": memory}, **more)


def _sold(node: NodeFacts, strategy: Strategy | None = None) -> tuple[int | None, float | None]:
    terms = batch_terms(node, strategy or _strategy())
    cpu, memory = terms["cpu"], terms["memory"]
    return cpu and cpu.result, memory and memory.result / G


def test_by_usage() -> None:
    assert _sold(_node()) == (25_000, 33)


@pytest.mark.parametrize(
    ("reservation", "sold"),
    [({"cpu": 20_000}, (12_000, 33)), ({"cpu": 5_000}, (25_000, 33)), ({"memory": 20 * G}, (25_000, 25))],
)
def test_a_reservation_counts_above_system_usage(reservation: Mapping[str, int], sold: tuple[int, int]) -> None:
    assert _sold(_node(reservation=reservation)) == sold


def test_the_largest_of_system_annotation_and_kubelet_reserve_counts() -> None:
    node = _node(allocatable=_amounts(90, 100), reservation={"cpu": 8_000, "memory": 14 * G})
    assert _sold(node) == (22_000, 25)


@pytest.mark.parametrize(("reserved", "memory"), [(0, 36), (5, 31), (20, 16)])
def test_memory_by_request(reserved: int, memory: int) -> None:
    pods = (*PODS[:2], _pod("pending", PROD, (22, 22), request=_amounts(22, 49)))
    strategy = _strategy(70, 80, policy={"memory": CalculatePolicy.REQUEST})
    assert _sold(_node(pods=pods, reservation={"memory": reserved * G}), strategy) == (30_000, memory)


def test_exclusive_cores_count_by_request_and_their_memory_by_usage() -> None:
    pods = (*PODS[:2], _pod("lse", PROD, (22, 22), qos=QosClass.LSE, request=_amounts(27, 27)))
    assert _sold(_node(pods=pods)) == (20_000, 33)


def test_a_pod_without_metrics_counts_by_request_and_nothing_goes_below_zero() -> None:
    node = _node(
        capacity=_amounts(20, 40),
        allocatable=_amounts(20, 40),
        system_usage=_amounts(0, 0),
        pods=(_pod("new", PROD, None, request=_amounts(20, 20)),),
    )
    assert _sold(node) == (0, 6)


def test_by_the_larger_of_use_and_request_a_pod_without_metrics_counts_too() -> None:
    strategy = _strategy(100, 100, policy=dict.fromkeys(("cpu", "memory"), CalculatePolicy.MAX_USAGE_REQUEST))
    pods = (
        _pod("idle", PROD, (1, 1), request=_amounts(10, 10)),
        _pod("busy", PROD, (12, 12), request=_amounts(10, 10)),
        _pod("new", PROD, None, request=_amounts(5, 5)),
    )
    assert _sold(_node(pods=pods), strategy) == (100_000 - 7_000 - 27_000, 120 - 12 - 27)


def test_usage_of_a_pod_that_ended_counts_by_its_band() -> None:
    node = _node(
        pods=(_pod("ls", PROD, (20, 20)),),
        system_usage=_amounts(5, 5),
        dangling=(LooseUsage(PROD, _amounts(5, 5)), LooseUsage(BATCH, _amounts(9, 9))),
    )
    assert _sold(node)[0] == 35_000


def test_host_applications_above_batch_count_as_system() -> None:
    hosts = (LooseUsage(PROD, _amounts(2, 2)), LooseUsage(BATCH, _amounts(9, 9)))
    assert _sold(_node(host_applications=hosts)) == (23_000, 31)


def test_more_than_the_node_may_be_sold() -> None:
    assert _sold(_node(), _strategy(110, 100)) == (110_000 - 7_000 - 33_000, 75)


def test_the_cap_on_the_result_is_of_capacity() -> None:
    terms = batch_terms(_node(), _strategy(batch_threshold_percent={"cpu": 10}))
    assert terms["cpu"] is not None
    assert terms["cpu"].result == 10_000
    assert terms["cpu"].message.endswith("= 25, capped at 10% of capacity: 10")


def test_faster_cpus_sell_more() -> None:
    assert _sold(_node(normalization_percent=120))[0] == 30_000
    assert _sold(_node(normalization_percent=80))[0] == 25_000


def test_unknown_system_usage_sells_nothing_of_that_resource() -> None:
    assert _sold(_node(system_usage={"memory": 12 * G})) == (None, 33)


def test_every_number_is_explained() -> None:
    terms = batch_terms(_node(), _strategy())
    assert terms["cpu"] is not None
    assert terms["cpu"].message == "cpu 100 − 35 above the 65% line − 7 system − 33 used by prod and mid = 25"


@given(
    st.lists(st.tuples(st.sampled_from(PriorityBand), st.integers(0, 50), st.none() | st.integers(0, 50)), max_size=6),
    st.sampled_from(CalculatePolicy),
    st.integers(0, 120),
)
def test_never_negative_and_never_more_than_the_line(
    rows: list[tuple[PriorityBand, int, int | None]], policy: CalculatePolicy, line: int
) -> None:
    pods = tuple(
        PodFacts(str(i), band, QosClass.NONE, {"cpu": asked * 1000}, {} if used is None else {"cpu": used * 1000})
        for i, (band, asked, used) in enumerate(rows)
    )
    term = batch_terms(_node(pods=pods), _strategy(line, policy=dict.fromkeys(("cpu", "memory"), policy)))["cpu"]
    assert term is not None
    assert 0 <= term.result <= max(0, term.capacity * line // 100)
    assert term.result == max(0, term.capacity - term.margin - term.system - term.prod_used)
