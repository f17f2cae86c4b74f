"""From a nomination to the bind: who keeps the room, who may take it, and that it ends."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_scheduler.core.charge import charge_of
from cotenant_scheduler.core.decisions import Placement, Preemption
from cotenant_scheduler.core.quota import QuotaShare
from cotenant_scheduler.core.room import Leaving, Promise


def preemptions(decisions):
    return [each.nomination for each in decisions if isinstance(each, Preemption)]


def evict(world, nomination):
    """What the gate, the agents and the gateway do: mark, end, queue again."""
    room = world.engine.room
    for victim in nomination.victims:
        room.set_leaving(victim.uid, Leaving(world.now_ms + 60_000, nomination.pod.uid))
    room.granted(nomination.pod.uid, world.now_ms + 60_000)
    for victim in nomination.victims:
        world.engine.release(victim.uid)


def full(world, *, cpu=2):
    world.node("n1", cpu=cpu)
    world.submit("low", cpu=cpu, priority=5000)
    world.run()
    world.submit("high", cpu=cpu, priority=9000)
    (nomination,) = preemptions(world.run())
    return nomination


def test_the_nominee_gets_the_room_and_not_who_comes_in_between(world):
    nomination = full(world)
    evict(world, nomination)
    world.submit("sneaky", cpu=1, priority=8000)
    assert world.placed(world.run()) == ["high"]
    assert world.where("sneaky") is None


def test_who_comes_while_the_victims_leave_finds_no_room_and_evicts_nobody(world):
    nomination = full(world)
    world.engine.room.granted(nomination.pod.uid, world.now_ms + 60_000)
    world.submit("middle", cpu=1, priority=8000)
    assert world.refused(world.run()) == ["middle"]


def test_a_more_important_pod_takes_the_room_and_the_nominee_looks_again(world):
    nomination = full(world)
    world.submit("top", cpu=2, priority=9500)
    world.engine.room.granted(nomination.pod.uid, world.now_ms + 60_000)
    for victim in nomination.victims:
        world.engine.room.set_leaving(victim.uid, Leaving(world.now_ms + 60_000, nomination.pod.uid))
    decisions = world.run()
    assert not preemptions(decisions), "the room that is being freed is enough"
    world.end("low")
    world.run()
    assert world.where("top") == "n1"
    assert world.where("high") is None
    assert "high" in world.refused(world.decisions)


def test_a_nominee_that_is_deleted_leaves_nothing_held(world):
    nomination = full(world)
    world.submit("next", cpu=2, priority=5000)
    evict(world, nomination)
    world.engine.withdraw("uid-high")
    assert world.placed(world.run()) == ["next"]
    assert not len(world.engine.room.holds)


def test_a_refusal_spares_the_victim_and_another_is_tried(world):
    world.node("n1", cpu=1)
    world.node("n2", cpu=1)
    world.submit("a", cpu=1, priority=5000)
    world.submit("b", cpu=1, priority=5000)
    world.run()
    world.submit("high", cpu=1, priority=9000)
    (first,) = preemptions(world.run())
    world.engine.room.refused("uid-high", [first.victims[0].uid], world.now_ms + 5_000)
    (second,) = preemptions(world.run())
    assert second.victims[0].uid != first.victims[0].uid
    world.engine.room.refused("uid-high", [second.victims[0].uid], world.now_ms + 5_000)
    assert not preemptions(world.run())
    assert "the eviction gate said no" in world.verdict("high").message


def test_a_freeze_lets_the_pod_rest_and_it_asks_again(world):
    full(world)
    world.engine.room.refused("uid-high", (), world.now_ms + 5_000)
    assert not preemptions(world.run())
    assert "asked again in 5000 ms" in world.verdict("high").message
    assert len(preemptions(world.later(5_000))) == 1


def test_the_nomination_is_what_a_pod_is_explained_by(world):
    full(world)
    verdict = world.engine.diagnose(world.pods["high"], world.now_ms)
    assert verdict.state == "Nominated"
    assert "default/low" in verdict.message
    assert verdict.numbers["node"] == "n1"


def test_an_unanswered_nomination_ends(world):
    full(world)
    assert len(preemptions(world.later(30_000))) == 1
    assert len(world.engine.room.holds) == 1


def shares(**most):
    return {name: QuotaShare(name, {"cpu": cpu}, {"cpu": cpu}) for name, cpu in most.items()}


def used_by_b(world, name, *, priority):
    """A node that a pod of quota b fills; quota a has as much to use."""
    world.node("n1", cpu=2)
    world.quota(shares(a=2000, b=2000))
    world.submit(name, cpu=2, priority=priority, quota="b")
    world.run()


def leaves_for_a(world):
    world.engine.room.set_leaving("uid-borrowed", Leaving(world.now_ms + 60_000, "ElasticQuota/-/a"))
    world.engine.release("uid-borrowed")


def test_in_a_full_quota_only_its_own_pods_yield(world):
    world.node("n1", cpu=10)
    world.quota(shares(a=2000, b=4000))
    world.submit("mine", cpu=2, priority=5000, quota="a")
    world.submit("theirs", cpu=2, priority=3000, quota="b")
    world.run()
    world.submit("high", cpu=1, priority=9000, quota="a")
    (nomination,) = preemptions(world.run())
    assert [each.name for each in nomination.victims] == ["mine"]
    evict(world, nomination)
    assert world.placed(world.run()) == ["high"]


def test_a_pod_of_one_quota_does_not_preempt_those_of_another_but_one_outside_of_quotas_may(world):
    used_by_b(world, "theirs", priority=3000)
    world.submit("mine", cpu=2, priority=9000, quota="a")
    assert world.refused(world.run()) == ["mine"]
    world.submit("free", cpu=1, priority=9000)
    (nomination,) = preemptions(world.run())
    assert [each.name for each in nomination.victims] == ["theirs"]


def test_in_a_quota_nobody_goes_who_can_stay(world):
    world.node("n1", cpu=10)
    world.quota(shares(a=4000))
    for i in range(4):
        world.submit(f"low{i}", cpu=1, priority=5000, quota="a")
    world.run()
    world.submit("high", cpu=2, priority=9000, quota="a")
    (nomination,) = preemptions(world.run())
    assert len(nomination.victims) == 2


def test_the_node_and_the_quota_have_to_have_room(world):
    world.node("n1", cpu=2)
    world.node("n2", cpu=2)
    world.quota(shares(a=4000))
    world.submit("a1", cpu=2, priority=5000, quota="a")
    world.submit("a2", cpu=1, priority=5000, quota="a")
    world.submit("a3", cpu=1, priority=5000, quota="a")
    world.run()
    world.submit("high", cpu=2, priority=9000, quota="a")
    (nomination,) = preemptions(world.run())
    assert sum(each.requests["cpu"] for each in nomination.victims) == 2000
    assert len({each.node for each in nomination.victims}) == 1
    evict(world, nomination)
    assert world.placed(world.run()) == ["high"]


def test_equals_in_a_quota_wait(world):
    world.node("n1", cpu=10)
    world.quota(shares(a=2000))
    world.submit("first", cpu=2, priority=9000, quota="a")
    world.run()
    world.submit("second", cpu=1, priority=9000, quota="a")
    assert world.refused(world.run()) == ["second"]


def test_the_default_quota_preempts_nobody_within_itself(world):
    world.node("n1", cpu=10)
    world.quota(shares(**{"koordinator-default-quota": 2000}))
    world.submit("low", cpu=2, priority=5000)
    world.run()
    world.submit("high", cpu=1, priority=9000)
    assert world.refused(world.run()) == ["high"]


def promised_to_a(world):
    """A node whose pod of quota b is leaving in favour of quota a."""
    used_by_b(world, "borrowed", priority=9000)
    leaves_for_a(world)


def test_room_that_was_reclaimed_is_kept_for_the_quota_it_was_reclaimed_for(world):
    promised_to_a(world)
    world.submit("stranger", cpu=1, priority=9000, quota="b")
    assert world.refused(world.run()) == ["stranger"]
    world.submit("mine", cpu=1, priority=5000, quota="a")
    assert world.placed(world.run()) == ["mine"]
    world.submit("also-mine", cpu=1, priority=5000, quota="a")
    assert world.placed(world.run()) == ["also-mine"]


def test_a_waiting_pod_of_the_quota_is_woken_by_the_promise(world):
    used_by_b(world, "borrowed", priority=5000)
    world.submit("claimant", cpu=2, priority=5000, quota="a")
    world.run()
    leaves_for_a(world)
    assert world.placed(world.run()) == ["claimant"]


def test_a_promise_ends_with_its_time(world):
    promised_to_a(world)
    world.submit("stranger", cpu=1, priority=5000, quota="b")
    assert world.refused(world.run()) == ["stranger"]
    assert world.placed(world.later(60_001)) == ["stranger"]


def test_a_promise_that_was_made_before_a_restart_holds_less_what_was_taken(world):
    world.node("n1", cpu=3)
    world.quota(shares(a=3000, b=3000))
    world.submit("taken", cpu=1, priority=5000, quota="a")
    world.run()
    cluster = world.engine.cluster
    promise = Promise(
        "gone", ("default", "x"), "n1", {"cpu": 3000, "pods": 1}, "ElasticQuota/-/a", world.now_ms, world.now_ms + 9_000
    )
    world.engine.room.promise(promise, list(cluster.placed[cluster.rows["n1"]].values()))
    world.submit("stranger", cpu=1, priority=5000, quota="b")
    assert world.refused(world.run()) == ["stranger"]
    world.submit("mine", cpu=2, priority=5000, quota="a")
    assert world.placed(world.run()) == ["mine"]


def test_who_is_refused_because_victims_are_spared_asks_again_when_that_ends(world):
    nomination = full(world)
    world.engine.room.refused("uid-high", [each.uid for each in nomination.victims], world.now_ms + 5_000)
    assert not preemptions(world.run())
    assert world.engine.next_wake_ms() == world.now_ms + 5_000
    assert len(preemptions(world.later(5_000))) == 1


def test_a_rest_that_is_over_wakes_nobody_again(world):
    full(world)
    world.engine.room.refused("uid-high", (), world.now_ms + 5_000)
    world.run()
    low = world.request("low", cpu=2, priority=5000)
    world.engine.put_charge(replace(charge_of(low, "n1", world.now_ms), evictable=False))
    assert not preemptions(world.later(5_000))
    world.run(limit=10)
    assert world.engine.next_wake_ms() is None


def test_an_answer_that_comes_after_the_victims_went_leaves_no_trace(world):
    nomination = full(world)
    world.engine.cluster.remove_node("n1")
    world.end("low")
    world.engine.room.granted(nomination.pod.uid, world.now_ms + 60_000)
    assert not world.engine.room._leaving


def test_of_equal_pods_the_one_to_which_the_room_was_promised_is_woken(world):
    world.node("n1", cpu=2)
    world.submit("old", cpu=2, priority=5000)
    world.run()
    world.submit("first", cpu=2, priority=5000)
    world.submit("promised", cpu=2, priority=5000)
    world.run()
    world.engine.room.set_leaving("uid-old", Leaving(world.now_ms + 60_000, "uid-promised"))
    world.end("old")
    assert world.placed(world.run()) == ["promised"]


def test_who_counted_on_victims_that_stay_looks_again_at_once(world):
    nomination = full(world)
    world.submit("top", cpu=1, priority=9500)
    world.run()
    assert sorted(world.engine.room.nominations) == ["uid-high", "uid-top"]
    world.engine.room.refused("uid-high", [each.uid for each in nomination.victims], world.now_ms + 60_000)
    world.run()
    assert not world.engine.room.nominations


def test_a_nominee_takes_room_that_appears_elsewhere_before_its_victims_end(world):
    full(world)
    world.engine.room.granted("uid-high", world.now_ms + 60_000)
    world.node("n2", cpu=2)
    assert world.placed(world.run()) == ["high"]
    assert world.where("high") == "n2"
    assert not len(world.engine.room.holds)


def test_after_a_refusal_an_equal_pod_that_was_in_vain_is_not_forgotten_and_both_ask_again(world):
    full(world)
    world.submit("twin", cpu=2, priority=9000)
    assert not preemptions(world.run())
    world.engine.room.refused("uid-high", (), world.now_ms + 5_000)
    assert not preemptions(world.run())
    world.later(1_000)
    assert len(preemptions(world.later(4_000))) == 1


def test_what_a_deleted_nominee_wanted_can_be_won_by_another(world):
    full(world)
    world.submit("twin", cpu=2, priority=9000)
    world.run()
    world.engine.withdraw("uid-high")
    world.run()
    (again,) = preemptions(world.later(1_000))
    assert again.pod.name == "twin"


PODS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([3000, 5000, 7000, 9000]), st.sampled_from([None, "a", "b"])),
    min_size=1,
    max_size=14,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), PODS, PODS)
def test_with_fixed_demand_preemption_ends_and_nobody_is_preempted_twice(make_world, nodes, early, late):
    world = make_world()
    for i, size in enumerate(nodes):
        world.node(f"n{i}", cpu=size)
    world.quota(shares(a=4000, b=3000))
    for wave, pods in (("e", early), ("l", late)):
        for i, (cpu, priority, quota) in enumerate(pods):
            world.submit(f"{wave}{i}", cpu=cpu, memory="1Mi", priority=priority, quota=quota)
        evicted = {}
        for _ in range(100):
            waiting = preemptions(world.run())
            if not waiting:
                break
            for nomination in waiting:
                if world.engine.room.nominations.get(nomination.pod.uid) is not nomination:
                    continue
                for victim in nomination.victims:
                    assert victim.priority < nomination.pod.priority
                    evicted[victim.name] = evicted.get(victim.name, 0) + 1
                evict(world, nomination)
                for victim in nomination.victims:
                    world.engine.submit(world.pods[victim.name])
        else:
            raise AssertionError("preemption never ends")
        assert all(count == 1 for count in evicted.values()), evicted
    assert not world.engine.room.nominations
    assert not len(world.engine.room.holds)
    placed = [each for each in world.decisions if isinstance(each, Placement)]
    assert len(placed) == len(early) + len(late) + sum(evicted.values()) or world.engine.waiting_count()
