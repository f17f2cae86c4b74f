"""Selectors, affinity, taints, ports, spread: what a manifest may demand of a place."""

import pytest

from cotenant_common.model.reasons import ReasonCode

GATED = {"schedulingGates": [{"name": "example.com/wait"}]}


def required(*expressions, fields=()):
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return _node_affinity({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}})


def _node_affinity(section):
    return {"affinity": {"nodeAffinity": section}}


def test_node_selector(world):
    world.node("a", labels={"disk": "hdd"})
    world.node("b", labels={"disk": "ssd"})
    world.node("c")
    world.submit("p", spec={"nodeSelector": {"disk": "ssd"}})
    world.run()
    assert world.where("p") == "b"


def test_a_selector_nobody_matches_names_an_example(world):
    world.node("a", labels={"disk": "hdd"})
    world.submit("p", spec={"nodeSelector": {"disk": "ssd"}})
    world.run()
    verdict = world.verdict("p")
    assert verdict.reason is ReasonCode.NODE_SELECTOR_MISMATCH
    assert "nodeSelector wants disk=ssd; node a has disk=hdd" in verdict.message


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["x", "y"]}, {"one", "two"}),
        ({"key": "zone", "operator": "NotIn", "values": ["x"]}, {"two", "bare"}),
        ({"key": "zone", "operator": "Exists"}, {"one", "two"}),
        ({"key": "zone", "operator": "DoesNotExist"}, {"bare"}),
        ({"key": "cores", "operator": "Gt", "values": ["8"]}, {"two"}),
        ({"key": "cores", "operator": "Lt", "values": ["9"]}, {"one"}),
    ],
)
def test_required_node_affinity(world, expression, fits):
    world.node("one", labels={"zone": "x", "cores": "8"})
    world.node("two", labels={"zone": "y", "cores": "16"})
    world.node("bare", labels={"cores": "many"})
    pod = world.request("p", spec=required(expression))
    able = {node for node in ("one", "two", "bare") if not world.engine.why_not(pod, node, world.now_ms)}
    assert able == fits


def test_match_fields_name_a_node(world):
    world.node("one")
    world.node("two")
    field = {"key": "metadata.name", "operator": "In", "values": ["two"]}
    world.submit("p", spec=required(fields=[field]))
    world.run()
    assert world.where("p") == "two"


def test_terms_are_alternatives_and_an_empty_one_matches_nothing(world):
    world.node("one", labels={"zone": "x"})
    terms = [{}, {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]
    section = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    world.submit("p", spec=_node_affinity(section))
    only_empty = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    world.submit("q", spec=_node_affinity(only_empty))
    assert world.placed(world.run()) == ["p"]


def test_preferred_affinity_outweighs_a_little_room(world):
    world.node("liked", labels={"disk": "ssd"})
    world.node("other")
    world.submit("filler", cpu="1", memory="2Gi", spec={"nodeName": "liked"})
    world.run()
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    section = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": preference}]}
    world.submit("p", cpu="100m", spec=_node_affinity(section))
    world.run()
    assert world.where("p") == "liked"


def test_a_user_may_name_the_node(world):
    world.node("a")
    world.node("b")
    for i in range(4):
        world.submit(f"p{i}", spec={"nodeName": "b"})
    world.run()
    assert {world.where(f"p{i}") for i in range(4)} == {"b"}
    world.submit("q", spec={"nodeName": "nowhere"})
    world.run()
    assert world.verdict("q").helps == ("node nowhere joining, or no spec.nodeName",)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_pods_away_unless_tolerated(world, effect):
    world.node("n", taints=[{"key": "gpu", "value": "yes", "effect": effect}])
    world.submit("p")
    world.submit("q", spec={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    world.submit("r", spec={"tolerations": [{"key": "gpu", "value": "no"}]})
    world.submit("s", spec={"tolerations": [{"operator": "Exists"}]})
    assert world.placed(world.run()) == ["q", "s"]
    assert world.verdict("p").reason is ReasonCode.TAINT_NOT_TOLERATED


def test_a_preference_taint_only_costs_points(world):
    world.node("tainted", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    world.node("clean")
    world.submit("p", cpu="100m")
    world.run()
    assert world.where("p") == "clean"
    world.submit("q", cpu="3950m")
    world.run()
    assert world.where("q") == "tainted"


def test_a_node_whose_heartbeats_stopped_is_named_not_ready(world):
    world.node("n", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    world.submit("p")
    world.run()
    assert world.verdict("p").reason is ReasonCode.NODE_NOT_READY


def test_a_cordoned_node_takes_only_those_who_tolerate_it(world):
    world.node("n", unschedulable=True)
    world.submit("p")
    world.submit("d", spec={"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]})
    assert world.placed(world.run()) == ["d"]
    assert world.verdict("p").reason is ReasonCode.NODE_UNSCHEDULABLE


def test_an_unregistered_node_takes_nobody(world):
    world.node("n", registered=False, absent="its agent has not joined")
    world.submit("p")
    world.run()
    assert "has not registered: its agent has not joined" in world.verdict("p").message


def ports(*numbers):
    return {"containers": [{"name": "c", "ports": [{"containerPort": n, "hostPort": n} for n in numbers]}]}


def test_a_host_port_belongs_to_one_pod_per_node(world):
    world.node("n")
    world.submit("a", spec=ports(80))
    world.submit("b", spec=ports(81, 80))
    world.submit("c", spec=ports(81))
    assert world.placed(world.run()) == ["a", "c"]
    assert "host port 80/TCP of node n belongs to default/a" in world.verdict("b").message
    world.end("a")
    world.end("c")
    assert world.placed(world.run()) == ["b"]


def test_a_gated_pod_waits_until_its_gates_go(world):
    world.node("n")
    world.submit("p", spec=GATED)
    world.run()
    verdict = world.verdict("p")
    assert (verdict.state, verdict.reason) == ("Gated", ReasonCode.SCHEDULING_GATED)
    world.submit("p")
    assert world.placed(world.run()) == ["p"]


def around(kind, selector, key="zone", **more):
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": key, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def zones(world):
    world.node("x1", labels={"zone": "x"})
    world.node("x2", labels={"zone": "x"})
    world.node("y1", labels={"zone": "y"})


def test_pod_affinity_follows_its_neighbour(world):
    zones(world)
    world.submit("db", extra_labels={"app": "db"}, spec={"nodeName": "y1"})
    world.run()
    world.submit("web", spec=around("podAffinity", {"app": "db"}))
    world.run()
    assert world.where("web") == "y1"


def test_pod_affinity_waits_for_its_neighbour(world):
    zones(world)
    world.submit("web", spec=around("podAffinity", {"app": "db"}))
    world.run()
    assert world.verdict("web").reason is ReasonCode.POD_AFFINITY_MISMATCH
    world.submit("db", extra_labels={"app": "db"}, spec={"nodeName": "y1"})
    world.run()
    world.later(1000)
    assert world.where("web") == "y1"


def test_the_first_of_its_kind_may_start_alone(world):
    zones(world)
    world.submit("a", extra_labels={"app": "a"}, spec=around("podAffinity", {"app": "a"}))
    assert world.placed(world.run()) == ["a"]


def test_anti_affinity_spreads(world):
    zones(world)
    for name in ("a", "b", "c"):
        world.submit(name, extra_labels={"app": "a"}, spec=around("podAntiAffinity", {"app": "a"}))
    assert len(world.placed(world.run())) == 2
    zone_of = {"x1": "x", "x2": "x", "y1": "y"}
    assert {zone_of[world.where(name)] for name in ("a", "b")} == {"x", "y"}


def test_anti_affinity_of_those_who_are_there_counts_too(world):
    world.node("n", labels={"zone": "x"})
    world.submit("alone", spec=around("podAntiAffinity", {"app": "noisy"}))
    world.run()
    world.submit("noisy", extra_labels={"app": "noisy"})
    world.submit("quiet", extra_labels={"app": "quiet"})
    assert world.placed(world.run()) == ["quiet"]
    assert "default/alone, near node n, forbids" in world.verdict("noisy").message


def test_affinity_stays_in_its_namespace_unless_told(world):
    zones(world)
    world.submit("db", namespace="other", extra_labels={"app": "db"}, spec={"nodeName": "y1"})
    world.run()
    world.submit("web", spec=around("podAffinity", {"app": "db"}))
    world.submit("web2", spec=around("podAffinity", {"app": "db"}, namespaces=["other"]))
    world.submit("web3", spec=around("podAffinity", {"app": "db"}, namespaceSelector={}))
    assert world.placed(world.run()) == ["web2", "web3"]


def test_preferred_neighbours_pull(world):
    zones(world)
    world.submit("db", extra_labels={"app": "db"}, spec={"nodeName": "y1"})
    world.run()
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    world.submit("web", spec={"affinity": {"podAffinity": wish}})
    world.run()
    assert world.where("web") == "y1"


def spread(**fields):
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
        **fields,
    }
    return {"topologySpreadConstraints": [constraint]}


def test_topology_spread_keeps_domains_even(world):
    zones(world)
    for i in range(4):
        world.submit(f"p{i}", extra_labels={"app": "a"}, spec=spread())
    world.run()
    zone_of = {"x1": "x", "x2": "x", "y1": "y"}
    counts = [zone_of[world.where(f"p{i}")] for i in range(4)]
    assert sorted(counts) == ["x", "x", "y", "y"]


def test_topology_spread_refuses_a_skew(world):
    world.node("x1", labels={"zone": "x"})
    world.node("y1", labels={"zone": "y"}, pods=1)
    for i in range(4):
        world.submit(f"p{i}", extra_labels={"app": "a"}, spec=spread())
    world.run()
    assert [world.where(f"p{i}") for i in range(4)].count(None) == 1
    codes = world.verdict("p3").codes
    assert ReasonCode.TOPOLOGY_SPREAD_EXCEEDED in codes


def test_a_wish_to_spread_never_refuses(world):
    world.node("x1", labels={"zone": "x"})
    for i in range(3):
        world.submit(f"p{i}", extra_labels={"app": "a"}, spec=spread(whenUnsatisfiable="ScheduleAnyway"))
    assert len(world.placed(world.run())) == 3
