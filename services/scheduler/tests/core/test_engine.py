from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.charge import charge_of
from cotenant_scheduler.core.decisions import Placement
from cotenant_scheduler.core.neighbours import Neighbours


def test_priority_then_sub_priority_then_age(world):
    world.node("n", cpu="100")
    sub = "koordinator.sh/priority"
    world.submit("young", priority=5000, created_ms=9)
    world.submit("old", priority=5000, created_ms=1)
    world.submit("favoured", priority=5000, created_ms=10, extra_labels={sub: "7"})
    world.submit("urgent", priority=9000, created_ms=20)
    assert world.placed(world.run()) == ["urgent", "favoured", "old", "young"]


def test_an_infeasible_pod_does_not_delay_a_feasible_one(world):
    world.node("n")
    world.submit("whale", cpu="1000", priority=9999)
    world.submit("minnow", cpu="1", priority=100)
    first, second = world.run()[:2]
    assert world.refused([first]) == ["whale"]
    assert world.placed([second]) == ["minnow"]


def test_thousands_that_do_not_fit_cost_one_attempt_per_event(world):
    world.node("n", cpu="2")
    world.submit("holder", cpu="2")
    world.run()
    for i in range(3000):
        world.submit(f"p{i:04}", cpu="2")
    assert len(world.refused(world.run())) == 3000
    assert world.run() == []
    world.end("holder")
    decisions = world.run()
    assert world.placed(decisions) == ["p0000"]
    assert len(world.refused(decisions)) == 1


def test_distinct_pods_that_do_not_fit_are_not_asked_again_by_small_room(world):
    world.node("n", cpu="4")
    world.submit("holder", cpu="3900m")
    world.submit("small", cpu="100m")
    world.run()
    for i in range(200):
        world.submit(f"p{i:03}", cpu=f"{1000 + i}m")
    world.run()
    world.end("small")
    assert world.run() == []


def test_a_node_that_joins_wakes_those_it_can_take(world):
    world.submit("a", cpu="1")
    world.submit("b", cpu="100")
    world.run()
    assert world.verdict("a").reason is ReasonCode.NO_NODES
    world.node("n")
    assert world.placed(world.run()) == ["a"]


def test_a_node_that_sells_more_wakes_batch(world):
    world.node("n", sold={"kubernetes.io/batch-cpu": 100})
    world.submit("a", band="batch", qos="BE", cpu="1")
    world.run()
    world.node("n", sold={"kubernetes.io/batch-cpu": 1000})
    assert world.placed(world.run()) == ["a"]


def test_a_label_change_wakes_after_the_back_off(world):
    world.node("n")
    world.submit("a", spec={"nodeSelector": {"disk": "ssd"}})
    world.run()
    world.node("n", labels={"disk": "ssd"})
    assert world.placed(world.run() + world.later(1000)) == ["a"]


def test_those_parked_earlier_hear_when_the_answer_changes(world):
    world.node("n", cpu="1")
    for name in ("a", "b"):
        world.submit(name, cpu="2")
    world.run()
    world.node("n", cpu="1", unschedulable=True)
    decisions = world.later(1000)
    assert world.refused(decisions) == ["a", "b"]
    assert world.verdict("b").reason is ReasonCode.NODE_UNSCHEDULABLE


def test_a_refused_bind_leaves_the_node_alone_for_a_while(world):
    world.node("n")
    world.node("m")
    pod = world.submit("a", spec={"nodeSelector": {"kubernetes.io/hostname": "n"}})
    world.run()
    world.engine.release(pod.uid)
    world.engine.submit(pod)
    world.engine.exclude(pod.uid, "n", world.now_ms + 10_000)
    world.run()
    verdict = world.verdict("a")
    assert world.where("a") is None
    assert ReasonCode.BIND_REJECTED in verdict.codes
    assert world.placed(world.later(9_999)) == []
    assert world.placed(world.later(1)) == ["a"]


def test_a_refused_bind_tries_the_other_node_first(world):
    world.node("n")
    world.node("m")
    pod = world.submit("a")
    world.run()
    refused_by = world.where("a")
    world.engine.release(pod.uid)
    world.engine.submit(pod)
    world.engine.exclude(pod.uid, refused_by, world.now_ms + 10_000)
    world.run()
    assert world.where("a") not in (None, refused_by)


def test_a_binding_read_back_charges_and_ends_the_wait(world):
    world.node("n", cpu="1")
    pod = world.submit("a", cpu="1")
    world.engine.put_charge(charge_of(pod, "n", world.now_ms))
    world.submit("b", cpu="1")
    decisions = world.run()
    assert world.placed(decisions) == []
    assert world.refused(decisions) == ["b"]


def test_charges_on_a_node_nobody_described_wait_for_it(world):
    pod = world.request("a", cpu="3")
    world.engine.put_charge(charge_of(pod, "n", world.now_ms))
    world.node("n", cpu="4")
    world.submit("b", cpu="2")
    assert world.placed(world.run()) == []


def test_a_removed_node_keeps_its_charges_and_comes_back_with_them(world):
    world.node("n", cpu="4")
    world.submit("a", cpu="3")
    world.run()
    world.engine.remove_node("n")
    world.submit("b", cpu="1")
    assert world.placed(world.run()) == []
    world.node("n", cpu="4")
    world.submit("c", cpu="2")
    assert world.placed(world.later(2000)) == ["b"]


def test_rows_are_reused_without_a_trace(world):
    world.node("n", cpu="8", labels={"disk": "ssd"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    world.metric("n", "1", "1Gi")
    world.engine.remove_node("n")
    world.node("m", cpu="1")
    world.submit("a", spec={"nodeSelector": {"disk": "ssd"}})
    world.submit("b")
    assert world.placed(world.run()) == ["b"]
    assert world.engine.cluster.load.metric(world.engine.cluster.rows["m"]) is None


def test_more_nodes_than_the_first_columns_hold(world):
    for i in range(100):
        world.node(f"n{i:03}", cpu="1", labels={"kind": "a" if i % 2 else "b"})
    for i in range(101):
        world.submit(f"p{i:03}", cpu="1")
    assert len(world.placed(world.run())) == 100


def test_the_same_input_gives_the_same_output(make_world):
    def run():
        world = make_world()
        for i in range(10):
            world.node(f"n{i}", cpu="8")
        for i in range(40):
            world.submit(f"p{i}", cpu="1")
        return [(each.pod.name, each.node) for each in world.run() if isinstance(each, Placement)]

    assert run() == run()


def test_ties_are_broken_by_seed_not_by_order_of_arrival(make_world):
    def place(order, seed):
        world = make_world(seed=seed)
        for name in order:
            world.node(name)
        world.submit("a")
        world.run()
        return world.where("a")

    names = [f"n{i}" for i in range(8)]
    assert place(names, 1) == place(names[::-1], 1)
    assert len({place(names, seed) for seed in range(20)}) > 1


def test_equal_nodes_share_equal_pods(world):
    for i in range(10):
        world.node(f"n{i}")
    for i in range(10):
        world.submit(f"p{i}", cpu="1", memory="1Gi")
    world.run()
    assert len({world.where(f"p{i}") for i in range(10)}) == 10


def test_a_withdrawn_pod_is_forgotten(world):
    world.submit("a", cpu="1")
    world.run()
    world.engine.withdraw("uid-a")
    world.node("n")
    assert world.run() == []
    assert world.engine.waiting_count() == 0


def test_the_audit_finds_what_is_missing_and_what_is_too_much(world):
    world.node("n")
    world.submit("a", cpu="1")
    world.run()
    other = charge_of(world.request("b", cpu="1"), "n", 0)
    drifts = world.engine.audit({other.uid: other})
    assert [(drift.uid, drift.believed is None, drift.actual is None) for drift in drifts] == [
        ("uid-a", False, True),
        ("uid-b", True, False),
    ]


def test_why_not_lists_every_objection(world):
    world.node("n", cpu="1", taints=[{"key": "k", "effect": "NoSchedule"}])
    pod = world.request("a", cpu="2", spec={"nodeSelector": {"disk": "ssd"}})
    codes = [refusal.code for refusal in world.engine.why_not(pod, "n", world.now_ms)]
    assert codes == [
        ReasonCode.NODE_SELECTOR_MISMATCH,
        ReasonCode.TAINT_NOT_TOLERATED,
        ReasonCode.INSUFFICIENT_RESOURCE,
    ]


def test_a_pod_refused_for_many_reasons_counts_each_node_once(world):
    world.node("small", cpu="1")
    world.node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}])
    world.node("gone", registered=False, absent="no agent")
    world.submit("a", cpu="2")
    world.run()
    verdict = world.verdict("a")
    assert sum(group.nodes for group in verdict.groups) == verdict.nodes_total == 3
    assert verdict.message.startswith("0 of 3 nodes can take it: ")


def test_nodes_that_refused_a_pod_are_remembered_while_it_is_held(world):
    world.node("n1")
    pod = world.submit("a", cpu="1")
    world.run()
    world.end("a")
    world.engine.exclude(pod.uid, "n1", world.now_ms + 10_000)
    world.engine.hold(pod.uid)
    world.engine.submit(pod)
    world.run()
    assert world.where("a") is None
    assert world.placed(world.later(10_000)) == ["a"]


def test_a_node_that_is_full_and_refused_the_pod_lately_is_counted_once(world):
    world.node("n1", cpu="2")
    world.node("n2", cpu="4")
    pod = world.submit("a", cpu="3")
    world.engine.exclude(pod.uid, "n1", world.now_ms + 10_000)
    world.engine.exclude(pod.uid, "n2", world.now_ms + 10_000)
    world.engine.exclude(pod.uid, "gone", world.now_ms + 10_000)
    world.run()
    counts = {group.code: (group.nodes, group.example_node) for group in world.verdict("a").groups}
    assert counts == {ReasonCode.INSUFFICIENT_RESOURCE: (1, "n1"), ReasonCode.BIND_REJECTED: (1, "n2")}


def test_a_refused_pod_is_parked_though_what_tells_groups_apart_has_changed(world):
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]}}  # fmt: skip
    world.node("n1")
    world.submit("repels", cpu="1", spec={"affinity": anti})
    world.run()
    pod = world.submit("a", cpu="1", extra_labels={"app": "y"})
    world.engine.exclude(pod.uid, "n1", world.now_ms + 10_000)
    world.end("repels")
    world.run()
    assert world.verdict("a").reason is ReasonCode.BIND_REJECTED
    assert world.placed(world.later(10_000)) == ["a"]


def test_a_domain_that_goes_wakes_those_that_the_spread_held_back(world):
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"app": "x"}}}]  # fmt: skip
    world.node("n1", labels={"zone": "a"})
    world.node("n2", cpu="1", labels={"zone": "b"})
    for i in range(4):
        world.submit(f"p{i}", cpu="1", extra_labels={"app": "x"}, spec={"topologySpreadConstraints": spread})
    world.run()
    assert sum(world.where(f"p{i}") is None for i in range(4)) == 1
    world.engine.remove_node("n2")
    world.later(1_000)
    assert all(world.where(f"p{i}") is not None for i in range(4))


def test_amounts_that_change_do_not_wake_pods_that_still_do_not_fit(world):
    """Every node publishes what it sells every few seconds; thousands of waiting pods must not be asked each time."""
    world.node("n1", sold={"kubernetes.io/batch-cpu": 1000})
    world.submit("be", band="batch", qos="BE", cpu="2")
    world.run()
    for sold in (1100, 1200, 1300):
        world.node("n1", sold={"kubernetes.io/batch-cpu": sold})
        assert world.later(2_000) == []
    world.node("n1", sold={"kubernetes.io/batch-cpu": 2000})
    assert world.placed(world.later(0)) == ["be"]


def test_the_runners_up_do_not_depend_on_the_order_of_arrival(make_world):
    shown = []
    for names in (range(9), reversed(range(9))):
        world = make_world()
        for i in names:
            world.node(f"n{i}", cpu=str(i + 1))
        world.submit("a", cpu="1")
        (placement,) = world.run()
        shown.append(placement.scores)
    assert shown[0] == shown[1]


def test_looking_for_victims_in_vain_changes_nothing(world):
    world.node("n", cpu="4")
    for name in ("a", "b"):
        world.submit(name, cpu="2", priority=5000)
    world.run()
    before = world.engine.cluster.requested_of(world.engine.cluster.rows["n"])
    world.submit("c", cpu="5", priority=9000)
    assert world.refused(world.run()) == ["c"]
    assert world.engine.cluster.requested_of(world.engine.cluster.rows["n"]) == before
    assert world.later(2_000) == []
    assert world.where("a") == "n"


def test_a_pod_that_can_only_wait_does_not_stand_in_the_way_of_thousands_that_fit(world):
    for i in range(10):
        world.node(f"n{i}", cpu="64", pods=500)
    for i in range(500):
        world.submit(f"w{i:04}", cpu=f"{100_000 + i}m", priority=9_999)
        world.submit(f"p{i:04}", cpu="100m", priority=1)
    decisions = world.run()
    assert len(world.placed(decisions)) == 500
    world.submit("late", cpu="100m")
    assert world.placed(world.run()) == ["late"]


def test_neighbours_are_counted_the_same_after_pods_came_and_went(make_world):
    """Counts per term are kept up step by step; a cluster that learns of the pods at once has the same."""
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]}}  # fmt: skip
    world = make_world()
    for i in range(40):
        world.node(f"n{i:02}", cpu="4")
    for i in range(30):
        world.submit(f"p{i:02}", cpu="1", extra_labels={"app": "x"}, spec={"affinity": away})
    world.run()
    for i in range(0, 30, 3):
        world.end(f"p{i:02}")
    (term,) = world.pods["p00"].shape.anti_affinity
    kept = world.engine.cluster.neighbours
    fresh = Neighbours(world.engine.cluster.size)
    for charge in world.engine.ledger.charges().values():
        fresh.add(charge, world.engine.cluster.rows[charge.node])
    assert kept.counts(term).tolist() == fresh.counts(term).tolist()
    assert kept.repelling[term][1].tolist() == fresh.repelling[term][1].tolist()
    assert kept.counts(term).sum() == 20
