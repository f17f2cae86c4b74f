from dataclasses import replace

import pytest

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.quota import QuotaObject, QuotaShare, QuotaTree

CPU8 = {"cpu": 8000}


def one(name="team", maximum=None, runtime=None, **fields):
    limits = maximum or CPU8
    return {name: QuotaShare(name, limits, limits if runtime is None else runtime, **fields)}


def nodes(world):
    world.node("n", cpu="100", memory="100Gi", pods=1000)


def test_twelve_at_once_never_pass_a_max_of_ten(world):
    nodes(world)
    world.quota(one(maximum={"cpu": 10_000}))
    for i in range(12):
        world.submit(f"p{i:02}", cpu="1", quota="team")
    assert len(world.placed(world.run())) == 10
    assert world.engine.quotas.used("team") == {"cpu": 10_000}
    assert world.verdict("p11").reason is ReasonCode.QUOTA_EXCEEDED


def test_the_sentence_says_how_much_which_limit_and_who_holds_it(world):
    nodes(world)
    world.quota(one(runtime={"cpu": 6000}))
    world.submit("big", cpu="4", quota="team")
    world.submit("small", cpu="1", quota="team")
    world.submit("late", cpu="2", quota="team")
    world.run()
    assert world.verdict("late").message == (
        "quota team: cpu used 5 + requested 2 > runtime 6 (max 8); held by default/big 4, default/small 1"
    )


def test_a_sibling_that_does_not_lend_is_named(world):
    nodes(world)
    shares = one(maximum={"cpu": 3000}, runtime={"cpu": 1000}) | one(
        "stingy", {"cpu": 3000}, {"cpu": 3000}, min={"cpu": 3000}, allow_lent=False
    )
    world.quota(shares)
    world.submit("a", cpu="2", quota="team")
    world.run()
    assert "stingy keeps 3 (not lendable)" in world.verdict("a").helps[0]


def test_every_raise_wakes_at_once(world):
    nodes(world)
    world.quota(one(runtime={"cpu": 0}))
    world.submit("a", cpu="1", quota="team")
    world.run()
    assert world.where("a") is None
    world.engine.set_quota_tree(QuotaTree("tree", 2, 1_000_000, one(runtime={"cpu": 1000})))
    assert world.placed(world.run()) == ["a"]


def test_a_held_queue_admits_nothing_and_wakes_when_it_is_resumed(world):
    nodes(world)
    parent = one("dept", {"cpu": 8000}, held=True)
    world.quota(parent | one(parent="dept"))
    world.submit("a", cpu="1", quota="team")
    world.run()
    assert world.verdict("a").reason is ReasonCode.QUOTA_HELD
    assert "quota dept is held" in world.verdict("a").message
    resumed = one("dept", {"cpu": 8000}) | one(parent="dept")
    world.engine.set_quota_tree(QuotaTree("tree", 2, 1_000_000, resumed))
    assert world.placed(world.run()) == ["a"]


def test_a_release_in_the_quota_wakes_at_once(world):
    nodes(world)
    world.quota(one())
    world.submit("a", cpu="8", quota="team")
    world.submit("b", cpu="8", quota="team")
    world.run()
    world.end("a")
    assert world.placed(world.run()) == ["b"]


def test_releasing_twice_credits_once(world):
    nodes(world)
    world.quota(one(maximum={"cpu": 4000}))
    world.submit("x", cpu="2", quota="team")
    world.submit("y", cpu="2", quota="team")
    world.run()
    world.end("x")
    world.end("x")
    for i in range(6):
        world.submit(f"z{i}", cpu="2", quota="team")
    assert len(world.placed(world.run())) == 1
    assert world.engine.quotas.used("team") == {"cpu": 4000}


def test_a_max_lowered_under_what_is_used_admits_nobody_and_removes_nobody(world):
    nodes(world)
    world.quota(one())
    world.submit("a", cpu="8", quota="team")
    world.run()
    world.engine.set_quota_tree(QuotaTree("tree", 2, 1_000_000, one(maximum={"cpu": 4000})))
    world.submit("b", cpu="1", quota="team")
    assert world.placed(world.run()) == []
    assert world.where("a") == "n"


def test_parents_are_checked_too(world):
    nodes(world)
    shares = (
        one("top", {"cpu": 3000}) | one("left", {"cpu": 2000}, parent="top") | one("right", {"cpu": 2000}, parent="top")
    )
    world.quota(shares)
    world.submit("a", cpu="2", quota="left")
    world.submit("b", cpu="2", quota="right")
    assert world.placed(world.run()) == ["a"]
    assert (
        "quota top (above right): cpu used 2 + requested 2 > max 3; held by quota left 2" in world.verdict("b").message
    )


def test_only_the_dimensions_of_max_count(world):
    nodes(world)
    world.quota(one(maximum={"memory": 1 << 30}))
    world.submit("a", cpu="50", memory="1Gi", quota="team")
    assert world.placed(world.run()) == ["a"]
    assert world.engine.quotas.used("team") == {"memory": 1 << 30}


def test_one_dimension_over_its_limit_does_not_hide_another(world):
    nodes(world)
    world.quota(one(maximum={"cpu": 1000, "memory": 1 << 30}))
    world.submit("a", cpu="2", memory="2Gi", quota="team")
    world.run()
    assert set(world.verdict("a").numbers["exceeded"]) == {"cpu", "memory"}


def test_non_preemptible_pods_stay_within_min(world):
    nodes(world)
    world.quota(one(min={"cpu": 2000}))
    keep = {"quota.scheduling.koordinator.sh/preemptible": "false"}
    world.submit("a", cpu="2", quota="team", extra_labels=keep)
    world.submit("b", cpu="1", quota="team", extra_labels=keep)
    world.submit("c", cpu="1", quota="team")
    assert world.placed(world.run()) == ["a", "c"]
    assert world.verdict("b").reason is ReasonCode.QUOTA_NON_PREEMPTIBLE_EXCEEDS_MIN


def test_shares_that_do_not_know_the_pod_yet_are_waited_for(world):
    nodes(world)
    world.quota(one(), specs_revision=5)
    world.submit("a", cpu="1", quota="team", revision=6)
    assert world.run() == []
    assert world.engine.next_wake_ms() == world.now_ms + 200
    world.engine.set_quota_tree(QuotaTree("tree", 2, 6, one()))
    assert world.placed(world.run()) == ["a"]


def test_after_two_hundred_milliseconds_the_pod_is_told_why(world):
    nodes(world)
    world.quota(one(), specs_revision=5)
    world.submit("a", cpu="1", quota="team", revision=6)
    world.run()
    assert world.refused(world.later(199)) == []
    assert world.refused(world.later(1)) == ["a"]
    assert world.verdict("a").reason is ReasonCode.QUOTA_STATUS_STALE
    world.engine.set_quota_tree(QuotaTree("tree", 2, 6, one()))
    assert world.placed(world.run()) == ["a"]


def test_a_quota_service_that_was_never_seen_lets_only_pods_without_quota_in(world):
    nodes(world)
    world.engine.set_quota_objects([QuotaObject("team", "default")])
    world.submit("free", cpu="1")
    world.submit("bound", cpu="1", quota="team")
    assert world.placed(world.run()) == ["free"]
    world.later(200)
    assert "never published a share" in world.verdict("bound").message


def test_a_silent_quota_service_leaves_the_last_shares_in_force(world):
    nodes(world)
    world.quota(one(), specs_revision=10)
    for i in range(9):
        world.submit(f"p{i}", cpu="1", quota="team", revision=i)
    assert len(world.placed(world.run())) == 8


def test_an_older_generation_is_ignored(world):
    nodes(world)
    world.quota(one(), generation=5)
    world.engine.set_quota_tree(QuotaTree("tree", 4, 1_000_000, one(maximum={"cpu": 0})))
    world.submit("a", cpu="1", quota="team")
    assert world.placed(world.run()) == ["a"]


@pytest.mark.parametrize(
    ("namespace", "label", "home"),
    [
        ("x", "team", "team"),
        ("own", None, "own"),
        ("listed", None, "team"),
        ("x", None, None),
        ("own", "unheard-of", None),
    ],
)
def test_where_a_pod_belongs(world, namespace, label, home):
    objects = [QuotaObject("team", "default", ("listed", "own")), QuotaObject("own", "own")]
    world.engine.set_quota_objects(objects)
    assert world.engine.quotas.home(namespace, label) == home


def test_pods_move_when_their_quota_appears_and_back_when_it_goes(world):
    nodes(world)
    world.submit("a", cpu="2", quota="team")
    world.run()
    assert world.engine.quotas.used("team") == {}
    world.quota(one())
    assert world.engine.quotas.used("team") == {"cpu": 2000}
    world.engine.set_quota_objects([])
    assert world.engine.quotas.used("team") == {}
    world.end("a")


def test_a_pod_that_waits_is_rehomed_when_its_quota_appears(world):
    world.submit("a", cpu="2", namespace="own")
    world.run()
    world.engine.set_quota_tree(QuotaTree("tree", 1, 1_000_000, one("own", {"cpu": 1000})))
    world.engine.set_quota_objects([QuotaObject("own", "own")])
    nodes(world)
    assert world.placed(world.later(2000)) == []
    assert world.verdict("a").reason is ReasonCode.QUOTA_EXCEEDED


def test_a_cut_and_the_raise_it_pays_for_are_seen_together(world):
    nodes(world)
    world.quota(one("a", CPU8, {"cpu": 6000}) | one("b", CPU8, {"cpu": 2000}))
    world.engine.set_quota_tree(
        QuotaTree("tree", 2, 1_000_000, one("a", CPU8, {"cpu": 2000}) | one("b", CPU8, {"cpu": 6000}))
    )
    for i in range(8):
        world.submit(f"a{i}", cpu="1", quota="a")
        world.submit(f"b{i}", cpu="1", quota="b")
    world.run()
    used = [world.engine.quotas.used(name)["cpu"] for name in ("a", "b")]
    assert used == [2000, 6000]


def test_pods_that_move_to_another_quota_leave_room_behind(world):
    nodes(world)
    shares = one(maximum={"cpu": 4000}) | one("other")
    world.quota(shares, namespaces={"team": ("default",)})
    world.submit("a", cpu="4")
    for name in ("b", "c"):
        world.submit(name, cpu="2", quota="team")
    world.run()
    assert world.where("b") is None
    world.engine.set_quota_objects([QuotaObject("team", "default"), QuotaObject("other", "default", ("default",))])
    assert world.placed(world.run()) == ["b", "c"]


def test_a_quota_that_moves_under_another_parent_leaves_room_behind(world):
    nodes(world)
    parents = one("p1", {"cpu": 4000}) | one("p2")
    world.quota(parents | one("x", parent="p1") | one("y", parent="p1"))
    world.submit("a", cpu="4", quota="x")
    for name in ("b", "c"):
        world.submit(name, cpu="2", quota="y")
    world.run()
    assert world.where("b") is None
    moved = parents | one("x", parent="p2") | one("y", parent="p1")
    world.engine.set_quota_tree(QuotaTree("tree", 2, 1_000_000, moved))
    assert world.placed(world.run()) == ["b", "c"]


def test_a_placed_pod_that_changes_its_quota_leaves_room_behind(world):
    nodes(world)
    world.quota(one(maximum={"cpu": 4000}) | one("other"))
    world.submit("a", cpu="4", quota="team")
    world.submit("b", cpu="4", quota="team")
    world.run()
    charge = world.engine.ledger.get("uid-a")
    world.engine.put_charge(replace(charge, quota_label="other"))
    assert world.placed(world.run()) == ["b"]
