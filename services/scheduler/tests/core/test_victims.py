"""Who has to go: against a slow model that tries all there is, and one example per rule."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_scheduler.core.budgets import Budget
from cotenant_scheduler.core.decisions import Placement, Preemption
from cotenant_scheduler.core.room import Leaving
from cotenant_scheduler.core.selectors import parse_label_selector

PLACED = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(1, 3),
            "priority": st.sampled_from([3000, 5000, 7000, 9000]),
            "spared": st.booleans(),
        }
    ),
    max_size=8,
)
GI = 1 << 30


def fill(world, pods):
    """Place as many as fit, in any order of priority: nobody preempts."""
    for i, pod in enumerate(pods):
        labels = {"scheduling.koordinator.sh/preemption-policy": "Never"}
        if pod["spared"]:
            labels["scheduling.koordinator.sh/disable-preemptible"] = "true"
        world.submit(f"p{i}", cpu=pod["cpu"], memory="1Mi", priority=pod["priority"], extra_labels=labels)
        world.run()


def evictable(world, node, priority):
    row = world.engine.cluster.rows[node]
    return [c for c in world.engine.cluster.placed[row].values() if c.evictable and c.priority < priority]


def room_without(world, node, gone):
    row = world.engine.cluster.rows[node]
    held = sum(c.requests["cpu"] for c in world.engine.cluster.placed[row].values() if c.uid not in gone)
    return world.engine.cluster.allocatable_of(row)["cpu"] - held


def feasible_sets(world, node, priority, wanted):
    pool = evictable(world, node, priority)
    for size in range(len(pool) + 1):
        for some in combinations(pool, size):
            if room_without(world, node, {c.uid for c in some}) >= wanted:
                yield {c.uid for c in some}


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), PLACED, st.integers(1, 5), st.sampled_from([4000, 7000, 9500])
)
def test_a_pod_preempts_exactly_when_it_can_and_takes_no_victim_too_many(make_world, nodes, placed, cpu, priority):
    world = make_world()
    for i, size in enumerate(nodes):
        world.node(f"n{i}", cpu=size)
    fill(world, placed)
    charges = dict(world.engine.ledger.charges())
    possible = {f"n{i}": list(feasible_sets(world, f"n{i}", priority, 1000 * cpu)) for i in range(len(nodes))}
    world.submit("new", cpu=cpu, memory="1Mi", priority=priority)
    (decision, *rest) = world.run()
    assert not rest
    if isinstance(decision, Placement):
        assert set() in possible[decision.node]
    elif isinstance(decision, Preemption):
        nomination = decision.nomination
        victims = {each.uid for each in nomination.victims}
        assert not any(set() in sets for sets in possible.values()), "there was a free node"
        assert victims in possible[nomination.node]
        assert not any(some < victims for some in possible[nomination.node]), "somebody could have stayed"
        highest = max(each.priority for each in nomination.victims)
        cheapest = min(
            max(charges[uid].priority for uid in some) for sets in possible.values() for some in sets if some
        )
        assert highest == cheapest < priority
    else:
        assert not any(possible.values()), "a node could have been freed"
        assert all(charges[uid] == charge for uid, charge in world.engine.ledger.charges().items())


def preemption(world):
    found = [each for each in world.run() if isinstance(each, Preemption)]
    assert len(found) == 1, world.decisions
    return found[0].nomination


def names(nomination):
    return [each.name for each in nomination.victims]


def test_only_as_many_go_as_are_needed(world):
    world.node("n1", cpu=9)
    for i in range(9):
        world.submit(f"low{i}", cpu=1, priority=5000)
    world.run()
    world.submit("high", cpu=2, priority=9000)
    assert len(names(preemption(world))) == 2


def test_free_room_and_room_of_others_count_together(world):
    world.node("n1", cpu=4)
    world.submit("low", cpu=3, priority=5000)
    world.run()
    world.submit("high", cpu=4, priority=9000)
    assert names(preemption(world)) == ["low"]


def test_nobody_goes_where_both_fit(world):
    world.node("n1", cpu=4)
    world.submit("low", cpu=1, priority=5000)
    world.submit("high", cpu=3, priority=9000)
    assert sorted(world.placed(world.run())) == ["high", "low"]


def test_the_youngest_of_equals_goes(world):
    world.node("n1", cpu=2)
    world.submit("old", cpu=1, priority=5000)
    world.run()
    world.now_ms += 1000
    world.submit("young", cpu=1, priority=5000)
    world.run()
    world.submit("high", cpu=1, priority=9000)
    assert names(preemption(world)) == ["young"]


def test_a_budget_that_would_break_is_the_last_to_be_touched(world):
    world.node("n1", cpu=1)
    world.node("n2", cpu=1)
    world.submit("guarded", cpu=1, priority=3000, extra_labels={"app": "db"})
    world.run()
    world.submit("other", cpu=1, priority=5000)
    world.run()
    selector = parse_label_selector({"matchLabels": {"app": "db"}})
    world.engine.budgets.set([Budget("default", "db", selector, min_available=1)])
    world.submit("high", cpu=1, priority=9000)
    assert names(preemption(world)) == ["other"]


def test_the_budget_breaks_where_nothing_else_is_left_and_the_gate_decides(world):
    world.node("n1", cpu=1)
    world.submit("guarded", cpu=1, priority=3000, extra_labels={"app": "db"})
    world.run()
    world.engine.budgets.set(
        [Budget("default", "db", parse_label_selector({"matchLabels": {"app": "db"}}), max_unavailable="0%")]
    )
    world.submit("high", cpu=1, priority=9000)
    nomination = preemption(world)
    assert names(nomination) == ["guarded"]
    assert nomination.plan.breaking == 1


def test_whatever_is_short_counts_ports_too(world):
    world.node("n1", cpu=4)
    spec = {"containers": [{"name": "m", "ports": [{"hostPort": 80, "containerPort": 80}]}]}
    world.submit("low", priority=5000, spec=spec)
    world.run()
    world.submit("high", priority=9000, spec=spec)
    assert names(preemption(world)) == ["low"]


def test_nobody_is_evicted_for_a_pod_that_no_node_would_take_anyway(world):
    world.node("n1", cpu=2)
    world.submit("low", cpu=2, priority=5000)
    world.run()
    world.submit("high", cpu=1, priority=9000, spec={"nodeSelector": {"disk": "ssd"}})
    assert world.refused(world.run()) == ["high"]


def test_the_policy_never_waits_and_says_so(world):
    world.node("n1", cpu=1)
    world.submit("low", cpu=1, priority=5000)
    world.run()
    world.submit("high", cpu=1, priority=9000, spec={"preemptionPolicy": "Never"})
    assert world.refused(world.run()) == ["high"]
    assert "preemption policy Never" in world.verdict("high").message


def test_protected_pods_stay(world):
    world.node("n1", cpu=3)
    world.submit("a", cpu=1, priority=5000, extra_labels={"scheduling.koordinator.sh/disable-preemptible": "true"})
    world.submit("b", cpu=1, priority=5000, extra_labels={"quota.scheduling.koordinator.sh/preemptible": "false"})
    world.submit("c", cpu=1, priority=5000, annotations={"scheduling.koordinator.sh/eviction-cost": "2147483647"})
    world.run()
    world.submit("high", cpu=1, priority=9000)
    assert world.refused(world.run()) == ["high"]


def high_comes_while_one_of_two_leaves(world):
    world.node("n1", cpu=1)
    world.node("n2", cpu=1)
    world.submit("a", cpu=1, priority=5000)
    world.submit("b", cpu=1, priority=5000)
    world.run()
    world.engine.room.set_leaving("uid-a", Leaving(world.now_ms + 30_000))
    world.submit("high", cpu=1, priority=9000)


def test_what_is_leaving_already_is_waited_for_and_nobody_else_goes(world):
    high_comes_while_one_of_two_leaves(world)
    assert not any(isinstance(each, Preemption) for each in world.run())
    where = world.where("a")
    world.end("a")
    assert world.placed(world.run()) == ["high"]
    assert world.where("high") == where


def test_one_that_hangs_counts_as_leaving_for_a_bounded_time(world):
    high_comes_while_one_of_two_leaves(world)
    world.run()
    decisions = world.later(30_001)
    assert [names(each.nomination) for each in decisions if isinstance(each, Preemption)] == [["b"]]
