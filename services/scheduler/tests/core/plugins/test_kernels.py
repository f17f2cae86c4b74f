"""Machine code and plugins say the same, to the same bit, about any cluster."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.estimate import Aggregation, LoadPolicy, NodeMetric, Thresholds
from cotenant_scheduler.core.plugins.fit_scores import NodeResourcesFitScore
from cotenant_scheduler.core.plugins.load_aware import LoadAware
from cotenant_scheduler.core.plugins.registry import default_plugins
from cotenant_scheduler.core.profile import PluginChoice
from cotenant_scheduler.core.selection import select

pytest.importorskip("numba", reason="the kernel needs numba, an optional speed-up")

P95 = Aggregation("p95", 300_000)
PERCENT = st.integers(0, 120)
LIMITS = st.fixed_dictionaries({}, optional={"cpu": PERCENT, "memory": PERCENT})
THRESHOLDS = st.builds(Thresholds, LIMITS, LIMITS, LIMITS, st.none() | st.just(P95))
POLICIES = st.builds(
    LoadPolicy,
    thresholds=THRESHOLDS,
    filter_expired=st.booleans(),
    schedule_when_expired=st.booleans(),
    weights=st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 5), "memory": st.integers(0, 5)}),
    dominant_weight=st.integers(0, 10),
    prod_usage_includes_system=st.booleans(),
    score_by_prod_usage=st.booleans(),
    score_aggregation=st.none() | st.just(P95),
)
CHOICES = st.builds(
    PluginChoice,
    weights=st.dictionaries(
        st.sampled_from(["LoadAwareScheduling", "NodeResourcesFit", "NodeResourcesBalancedAllocation"]),
        st.integers(0, 7),
    ),
    filters_off=st.sampled_from([frozenset(), frozenset({"LoadAwareScheduling"})]),
    fit_strategy=st.sampled_from(["LeastAllocated", "MostAllocated"]),
    fit_weights=st.none() | st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 9)),
)
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(0, 9_000),
            "memory": st.integers(0, 9_000_000),
            "gpu": st.none() | st.integers(0, 4),
            "limit": st.booleans(),
            "raw": st.none() | st.integers(1, 9_000),
            "own": st.none() | THRESHOLDS,
            "used": st.none() | st.tuples(st.integers(0, 9_000), st.integers(0, 9_000_000), st.integers(0, 400)),
        }
    ),
    min_size=1,
    max_size=7,
)
PODS = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.none() | st.integers(0, 3_000),
            "memory": st.none() | st.integers(0, 3_000_000),
            "gpu": st.none() | st.integers(0, 2),
            "band": st.sampled_from([None, "prod", "mid"]),
            "daemon": st.booleans(),
        }
    ),
    min_size=1,
    max_size=10,
)


def build(make_world, policy, choice, nodes, *, fused):
    world = make_world(policy, choice=choice, fused=fused)
    for i, node in enumerate(nodes):
        allocatable = {"cpu": node["cpu"], "memory": node["memory"]}
        allocatable |= {"gpu": node["gpu"]} if node["gpu"] is not None else {}
        allocatable |= {"pods": 3} if node["limit"] else {}
        raw = {} if node["raw"] is None else {"cpu": node["raw"], "memory": node["memory"]}
        world.node(f"n{i}", allocatable=allocatable, load_capacity=raw, thresholds=node["own"], extra={})
        if node["used"] is not None:
            cpu, memory, age_s = node["used"]
            usage, at_ms = (cpu, memory), world.now_ms - 1000 * age_s
            aggregated = {P95: (cpu + 100, memory // 2)}
            world.engine.set_metric(f"n{i}", NodeMetric(at_ms, 60_000, usage, (10, 10), {}, aggregated))
    return world


def submit(world, pods) -> None:
    for i, pod in enumerate(pods):
        requests = {name: pod[name] for name in ("memory", "gpu") if pod[name] is not None}
        requests |= {"cpu": f"{pod['cpu']}m"} if pod["cpu"] is not None else {}
        world.submit(
            f"p{i}",
            requests=requests,
            band=pod["band"],
            owner_kind="DaemonSet" if pod["daemon"] else None,
            created_ms=i,
        )


@settings(max_examples=60, deadline=None)
@given(POLICIES, CHOICES, NODES, PODS, st.integers(0, 3))
def test_machine_code_decides_what_the_plugins_decide(make_world, policy, choice, nodes, pods, ended):
    plain, fused = (build(make_world, policy, choice, nodes, fused=each) for each in (False, True))
    assert fused.engine.fused
    for world in (plain, fused):
        submit(world, pods)
        world.cut = {"cpu", "memory", "pods", "gpu"}
        world.run()
        world.end(f"p{ended}")
        world.later(200_000)
    assert plain.decisions == fused.decisions


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=40),
    st.integers(0, 2**64 - 1),
    st.randoms(use_true_random=False),
)
def test_both_select_the_same_rows(points, mine, random):
    from cotenant_scheduler.core.plugins import fused

    columns = np.array(points, dtype=np.int64)
    hashes = np.array([random.getrandbits(64) for _ in points], dtype=np.uint64)
    best = np.zeros(5, dtype=np.intp)
    feasible = fused.select(columns, hashes, np.uint64(mine), best)
    assert (feasible, best[: min(feasible, 5)].tolist()) == select(columns, hashes, np.uint64(mine))


def test_amounts_too_large_for_a_double_are_left_to_the_plugins(make_world):
    decided = []
    for fused in (False, True):
        world = make_world(fused=fused)
        world.node("n", memory=str((1 << 43) + 1))
        world.node("m", memory=str(1 << 43))
        world.submit("a", memory=str((1 << 43) + 1))
        decided.append(world.run())
        assert world.where("a") == "n"
    assert decided[0] == decided[1]


class OwnFit(NodeResourcesFitScore):
    pass


class OwnLoad(LoadAware):
    pass


@pytest.mark.parametrize("change", ["scores", "filters"])
def test_a_plugin_of_other_rules_is_never_replaced_by_the_kernel(change):
    plugins = default_plugins()
    if change == "scores":
        plugins.scores[:] = [OwnFit() if isinstance(each, NodeResourcesFitScore) else each for each in plugins.scores]
    else:
        plugins.filters[:] = [OwnLoad() if isinstance(each, LoadAware) else each for each in plugins.filters]
        plugins.scores[:] = [OwnLoad() if isinstance(each, LoadAware) else each for each in plugins.scores]
    assert not Engine(plugins, fused=True).fused
