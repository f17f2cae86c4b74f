"""NodeResourcesFitPlus, ScarceResourceAvoidance, SchedulingHint and InterferenceAware, one rule at a time."""

import numpy as np
import pytest

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.plugins.fit_scores import NodeResourcesFitPlus, NodeResourcesFitScore, PlusRule, PlusRules
from cotenant_scheduler.core.plugins.interference import InterferenceAware
from cotenant_scheduler.core.plugins.scarce_resources import ScarceResourceAvoidance
from cotenant_scheduler.core.profile import PluginChoice

HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
PACK_GPUS = PlusRules({"gpu": PlusRule("MostAllocated", 2), "cpu": PlusRule(), "memory": PlusRule()})


def points(plugin, world, pod, node) -> int:
    cluster = world.engine.cluster
    return int(plugin.score(pod.shape, cluster, np.array([cluster.rows[node]]))[0])


def hinted(world, name, text, **fields):
    return world.submit(name, annotations={HINT: text}, **fields)


def test_gpus_are_packed_while_cpu_is_spread(make_world):
    world = make_world(choice=PluginChoice(weights={"NodeResourcesFitPlus": 100}, fit_plus=PACK_GPUS))
    for name in ("half", "empty"):
        world.node(name, cpu="64", memory="64Gi", extra={"gpu": 8})
    hold = {"kubernetes.io/hostname": "half"}
    world.submit("held", requests={"gpu": 4}, spec={"nodeSelector": hold})
    world.run()
    world.submit("a", requests={"gpu": 1})
    world.run()
    assert world.where("a") == "half"


def test_fit_plus_says_nothing_about_what_no_rule_is_about(world):
    world.node("n")
    rules = PlusRules({"gpu": PlusRule("MostAllocated")})
    assert points(NodeResourcesFitPlus(1, rules), world, world.request("a", cpu="1"), "n") == 100


def test_a_pod_that_states_no_cpu_counts_for_a_tenth_of_one(world):
    world.node("n", cpu="1")
    rules = PlusRules({"cpu": PlusRule("MostAllocated")})
    assert points(NodeResourcesFitPlus(1, rules), world, world.request("a"), "n") == 10


@pytest.mark.parametrize(("strategy", "expected"), [("LeastAllocated", 75), ("MostAllocated", 25)])
def test_fit_strategies(world, strategy, expected):
    world.node("n", cpu="4", memory="8Gi")
    pod = world.request("a", cpu="1", memory="2Gi")
    assert points(NodeResourcesFitScore(1, strategy), world, pod, "n") == expected


def test_most_allocated_packs(make_world):
    world = make_world(choice=PluginChoice(fit_strategy="MostAllocated", weights={"LoadAwareScheduling": 0}))
    world.node("n", cpu="8")
    world.node("m", cpu="8")
    for i in range(4):
        world.submit(f"p{i}", cpu="1", memory="1Gi")
    world.run()
    assert len({world.where(f"p{i}") for i in range(4)}) == 1


def test_half_of_what_the_pod_leaves_unused_is_scarce(world):
    world.node("n", extra={"es": 1, "gpu": 1})
    pod = world.request("a", cpu="1", memory="1Gi")
    assert points(ScarceResourceAvoidance(1, ("gpu",)), world, pod, "n") == 50


def test_a_node_without_anything_scarce_has_all_points(world):
    world.node("n", extra={"es": 1})
    pod = world.request("a", cpu="1", memory="1Gi")
    assert points(ScarceResourceAvoidance(1, ("gpu",)), world, pod, "n") == 100


def test_a_hint_restricts_and_says_so(world):
    world.node("n")
    world.node("m")
    hinted(world, "a", '{"nodeNames": ["m"]}')
    hinted(world, "b", '{"nodeNames": ["gone"]}')
    world.run()
    assert world.where("a") == "m"
    assert world.verdict("b").reason is ReasonCode.SCHEDULING_HINT_MISMATCH
    assert "names gone" in world.verdict("b").message


def test_the_first_preferred_node_that_fits_is_taken_whatever_its_points(world):
    world.node("best", cpu="64")
    world.node("small", cpu="1")
    world.node("next", cpu="2")
    hinted(world, "a", '{"preferredNodeNames": ["gone", "small", "next"]}', cpu="2")
    world.run()
    assert world.where("a") == "next"


def test_preferred_nodes_outside_the_restriction_are_passed_over(world):
    world.node("n")
    world.node("m")
    hinted(world, "a", '{"nodeNames": ["m"], "preferredNodeNames": ["n"]}')
    world.run()
    assert world.where("a") == "m"


def test_hints_beyond_the_limit_are_not_tried(make_world):
    world = make_world(choice=PluginChoice(most_hint_nodes=1))
    world.node("big", cpu="64")
    world.node("small", cpu="2")
    hinted(world, "a", '{"preferredNodeNames": ["gone", "small"]}', cpu="1")
    world.run()
    assert world.where("a") == "big"


def test_pods_keep_away_from_nodes_where_they_disturb(make_world):
    world = make_world(choice=PluginChoice(weights={"InterferenceAware": 20}))
    for name, percent in (("calm", 10), ("loud", 90)):
        world.node(name, cpu="8" if name == "calm" else "64")
        world.engine.set_signal("interference/prod", name, percent)
    world.submit("a", cpu="1")
    world.run()
    assert world.where("a") == "calm"


def test_a_node_nobody_measured_is_in_the_middle(world):
    for name in ("known", "unknown"):
        world.node(name)
    world.engine.set_signal("interference/prod", "known", 30)
    pod = world.request("a", cpu="1")
    assert [points(InterferenceAware(), world, pod, name) for name in ("known", "unknown")] == [70, 50]
    world.engine.set_signal("interference/prod", "known", None)
    assert points(InterferenceAware(), world, pod, "known") == 50
