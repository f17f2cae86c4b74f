from typing import Any

import pytest

from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_profiler.core.facts import LooseUsage, NodeFacts, PodFacts
from cotenant_profiler.core.mid import mid_terms
from cotenant_profiler.core.strategy import Strategy

G = 10**9


def _amounts(cores: int, gigabytes: int) -> dict[str, int]:
    return {"cpu": 1000 * cores, "memory": gigabytes * G}


def _node(**more: Any) -> NodeFacts:
    given_node = {"capacity": _amounts(100, 210), "allocatable": _amounts(100, 210), "system_usage": _amounts(0, 0)}
    return NodeFacts(**{**given_node, **more})


def _thresholds(cpu: int, memory: int) -> dict[str, int]:
    return {"cpu": cpu, "memory": memory}


def _sold(node: NodeFacts, **strategy: Any) -> tuple[int, float]:
    terms = mid_terms(node, Strategy(**strategy))
    return terms["cpu"].result, terms["memory"].result / G


def _with(reclaim: tuple[int, int], unused: tuple[int, int], **more: Any) -> NodeFacts:
    return _node(prod_reclaimable=_amounts(*reclaim), node_usage=_amounts(100 - unused[0], 210 - unused[1]), **more)


def _promised(cores: int, gigabytes: int) -> tuple[PodFacts, ...]:
    return (PodFacts("p", PriorityBand.PROD, QosClass.LS, _amounts(cores, gigabytes)),)


def test_what_prod_will_not_use_is_sold() -> None:
    assert _sold(_with((10, 15), (80, 165))) == (10_000, 15)


def test_a_share_of_the_unallocated_is_added_and_the_whole_is_capped() -> None:
    node = _with((15, 30), (80, 165), pods=_promised(20, 50))
    strategy = {"mid_unallocated_percent": 10, "mid_threshold_percent": _thresholds(10, 20)}
    assert _sold(node, **strategy) == (10_000, 42)
    terms = mid_terms(node, Strategy(**strategy))
    assert (terms["cpu"].unallocated, terms["memory"].unallocated) == (80_000, 160 * G)
    assert _sold(node, mid_unallocated_percent=10) == (23_000, 46)


def test_only_what_is_really_unused_is_sold() -> None:
    assert _sold(_with((20, 20), (10, 10))) == (10_000, 10)


def test_without_node_usage_nothing_is_sold() -> None:
    assert _sold(_node(prod_reclaimable=_amounts(20, 20))) == (0, 0)


def test_a_missing_forecast_counts_as_nothing_reclaimable() -> None:
    assert _sold(_node(node_usage=_amounts(10, 10))) == (0, 0)


@pytest.mark.parametrize(("static", "sold"), [((10, 10), (10_000, 21)), ((100, 100), (10_000, 42))])
def test_static_mode(static: tuple[int, int], sold: tuple[int, int]) -> None:
    strategy = {"mid_static": True, "mid_static_percent": _thresholds(*static)}
    assert _sold(_node(), mid_threshold_percent=_thresholds(10, 20), **strategy) == sold


@pytest.mark.parametrize(
    ("band", "unallocated"), [(PriorityBand.PROD, 75_000), (PriorityBand.MID, 80_000), (PriorityBand.BATCH, 80_000)]
)
def test_only_host_applications_above_mid_take_from_the_unallocated(band: PriorityBand, unallocated: int) -> None:
    node = _node(pods=_promised(20, 50), host_applications=(LooseUsage(band, _amounts(5, 5)),))
    assert mid_terms(node, Strategy())["cpu"].unallocated == unallocated
