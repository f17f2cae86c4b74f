"""Every combination of plugins against a slow scheduler that asks one node after the other, straight from the rules."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_scheduler.core.estimate import LoadPolicy, NodeMetric, Thresholds
from cotenant_scheduler.core.plugins.fit_scores import PlusRule, PlusRules
from cotenant_scheduler.core.plugins.registry import WEIGHTS
from cotenant_scheduler.core.profile import PluginChoice
from cotenant_scheduler.core.snapshot import stable_hash

ZONE = "topology.kubernetes.io/zone"
STRATEGY = st.sampled_from(["LeastAllocated", "MostAllocated"])
CHOICES = st.builds(
    PluginChoice,
    weights=st.dictionaries(st.sampled_from(sorted(WEIGHTS)), st.integers(0, 4)),
    filters_off=st.frozensets(st.sampled_from(["LoadAwareScheduling", "TaintToleration", "InterPodAffinity"])),
    fit_strategy=STRATEGY,
    fit_weights=st.sampled_from([None, {"cpu": 3, "memory": 1}, {"gpu": 2, "cpu": 1}]),
    fit_plus=st.builds(
        PlusRules,
        st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.builds(PlusRule, STRATEGY, st.integers(1, 3))),
    ),
    scarce=st.sampled_from([(), ("gpu",)]),
)
POLICIES = st.builds(
    LoadPolicy,
    thresholds=st.builds(Thresholds, st.sampled_from([{}, {"cpu": 60}, {"cpu": 80, "memory": 50}])),
    dominant_weight=st.integers(0, 2),
)
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(2, 8),
            "gpu": st.integers(0, 2),
            "zone": st.sampled_from(["a", "b"]),
            "taint": st.sampled_from([None, "NoSchedule", "PreferNoSchedule"]),
            "used": st.none() | st.integers(0, 8),
            "disturbed": st.none() | st.integers(0, 100),
        }
    ),
    min_size=1,
    max_size=5,
)
PODS = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(0, 3),
            "gpu": st.integers(0, 1),
            "app": st.sampled_from(["x", "y"]),
            "away": st.booleans(),
            "near": st.booleans(),
            "skew": st.none() | st.integers(1, 2),
            "port": st.booleans(),
            "prefers": st.none() | st.sampled_from(["a", "b"]),
            "hint": st.none() | st.sampled_from(["n0", "n1", "n9"]),
        }
    ),
    max_size=8,
)
GI = 1 << 30


def manifest_spec(pod) -> dict:
    term = {"labelSelector": {"matchLabels": {"app": pod["app"]}}, "topologyKey": ZONE}
    affinity = {}
    if pod["away"]:
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if pod["near"]:
        wish = [{"weight": 10, "podAffinityTerm": term}]
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": wish}
    if pod["prefers"]:
        expression = {"key": ZONE, "operator": "In", "values": [pod["prefers"]]}
        wish = [{"weight": 5, "preference": {"matchExpressions": [expression]}}]
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": wish}
    spec = {"affinity": affinity}
    if pod["skew"]:
        spec["topologySpreadConstraints"] = [
            {
                "topologyKey": ZONE,
                "maxSkew": pod["skew"],
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": pod["app"]}},
            }
        ]
    return spec


@dataclass
class Node:
    name: str
    allocatable: dict
    zone: str
    taint: str | None
    used: tuple | None
    disturbed: int | None
    pods: list = field(default_factory=list)

    def held(self, name, pod):
        return sum(amounts(each).get(name, 0) for each in [*self.pods, pod])

    def load(self, pod):
        return [used + sum(estimate(each)[i] for each in [*self.pods, pod]) for i, used in enumerate(self.used)]


def amounts(pod):
    """CPU in milli-cores. A zero is no request."""
    found = {"cpu": 1000 * pod["cpu"], "memory": GI, "gpu": pod["gpu"]}
    return {name: value for name, value in found.items() if value}


def estimate(pod):
    return (850 * pod["cpu"] if pod["cpu"] else 250, (GI * 140 + 100) // 200)


@dataclass
class Reference:
    choice: PluginChoice
    policy: LoadPolicy
    nodes: list

    def weight(self, name):
        return self.choice.weights.get(name, WEIGHTS[name])

    def place(self, pod, name):
        able = [node for node in self.nodes if self.allows(pod, node)]
        if not able:
            return None
        points = {node.name: self.own_points(pod, node) + self.around_points(pod, node, able) for node in able}
        mine = stable_hash(f"0/uid-{name}")
        node = min(able, key=lambda each: (-points[each.name], stable_hash(each.name) ^ mine))
        node.pods.append(pod)
        return node.name

    def near(self, node):
        return [pod for each in self.nodes if each.zone == node.zone for pod in each.pods]

    def allows(self, pod, node):
        off = self.choice.filters_off
        return (
            (pod["hint"] is None or pod["hint"] == node.name)
            and (node.taint != "NoSchedule" or "TaintToleration" in off)
            and all(node.held(name, pod) <= node.allocatable.get(name, -1) for name in amounts(pod))
            and len(node.pods) < 4
            and ("LoadAwareScheduling" in off or self.cool(pod, node))
            and not (pod["port"] and any(each["port"] for each in node.pods))
            and ("InterPodAffinity" in off or self.welcome(pod, node))
            and (pod["skew"] is None or self.skew(pod, node) <= pod["skew"])
        )

    def cool(self, pod, node):
        if node.used is None:
            return True
        return all(
            (200 * node.load(pod)[i] + node.allocatable[name]) // (2 * node.allocatable[name]) <= limit
            for i, name in enumerate(("cpu", "memory"))
            if (limit := self.policy.thresholds.plain.get(name))
        )

    def welcome(self, pod, node):
        near = [each for each in self.near(node) if each["app"] == pod["app"]]
        return not (near and pod["away"]) and not any(each["away"] for each in near)

    def skew(self, pod, node):
        counts = {each.zone: sum(1 for p in self.near(each) if p["app"] == pod["app"]) for each in self.nodes}
        return counts[node.zone] + 1 - min(counts.values())

    def own_points(self, pod, node):
        rules = {
            "TaintToleration": 50 if node.taint == "PreferNoSchedule" else 100,
            "NodeAffinity": 100 * (pod["prefers"] == node.zone),
            "NodeResourcesFit": self.fit(pod, node),
            "NodeResourcesBalancedAllocation": self.balance(pod, node),
            "LoadAwareScheduling": self.idle(pod, node),
            "NodeResourcesFitPlus": self.plus(pod, node),
            "ScarceResourceAvoidance": self.scarce(pod, node),
            "InterferenceAware": self.calm(node),
        }
        if "TaintToleration" in self.choice.filters_off and node.taint == "NoSchedule":
            rules["TaintToleration"] = 100
        return sum(self.weight(name) * points for name, points in rules.items())

    def full(self, strategy, name, pod, node, extra=0):
        most, held = node.allocatable.get(name, 0), node.held(name, pod) + extra
        return 0 if held > most else (held if strategy == "MostAllocated" else most - held) * 100 // max(most, 1)

    def fit(self, pod, node):
        weights = self.choice.fit_weights or {"cpu": 1, "memory": 1}
        wanted = [name for name in amounts(pod) if weights.get(name)]
        names = {name: weights[name] for name in wanted} or {"cpu": 1, "memory": 1}
        if not wanted:
            return sum(self.bare(name, pod, node) for name in names) // 2
        total = sum(weight * self.full(self.choice.fit_strategy, name, pod, node) for name, weight in names.items())
        return total // sum(names.values())

    def bare(self, name, pod, node):
        """Native CPU and memory as they are without the pod, where it asks for nothing that is weighed."""
        extra = -amounts(pod).get(name, 0)
        return self.full(self.choice.fit_strategy, name, pod, node, extra)

    def balance(self, pod, node):
        names = [name for name in amounts(pod) if name != "gpu"]
        shares = [node.held(name, pod) * 1000 // node.allocatable[name] for name in names]
        return 100 - (max(shares) - min(shares)) // 20

    def idle(self, pod, node):
        if node.used is None:
            return 0
        left = [
            max(node.allocatable[name] - used, 0) * 100 // node.allocatable[name]
            for name, used in zip(("cpu", "memory"), node.load(pod), strict=True)
        ]
        dominant = self.policy.dominant_weight
        return (sum(left) + dominant * min(left)) // (2 + dominant)

    def plus(self, pod, node):
        rules = self.choice.fit_plus.resources
        asked = {"cpu": 100, **amounts(pod)}
        points = [
            (rule.weight, self.full(rule.strategy, name, pod, node, asked[name] - amounts(pod).get(name, 0)))
            for name, rule in rules.items()
            if name in asked
        ]
        return sum(w * p for w, p in points) // sum(w for w, _ in points) if points else 100

    def scarce(self, pod, node):
        others = {name for name, amount in node.allocatable.items() if amount > 0} - amounts(pod).keys()
        rare = others & set(self.choice.scarce)
        return (len(others) - len(rare)) * 100 // len(others) if rare else 100

    def calm(self, node):
        if all(each.disturbed is None for each in self.nodes):
            return 0
        return 50 if node.disturbed is None else 100 - node.disturbed

    def around_points(self, pod, node, able):
        """The wish for neighbours, stretched over the nodes that are left."""
        if not pod["near"]:
            return 0
        wishes = {each.name: 10 * sum(p["app"] == pod["app"] for p in self.near(each)) for each in able}
        low, high = min(wishes.values()), max(wishes.values())
        stretched = (wishes[node.name] - low) * 100 // (high - low) if high > low else 0
        return self.weight("InterPodAffinity") * stretched


def build(make_world, choice, policy, nodes, *, fused):
    world = make_world(policy, choice=choice, fused=fused)
    reference = Reference(choice, policy, [])
    for i, node in enumerate(nodes):
        taints = [{"key": "t", "effect": node["taint"]}] if node["taint"] else None
        extra = {"gpu": node["gpu"]} if node["gpu"] else {}
        name, labels = f"n{i}", {ZONE: node["zone"]}
        world.node(name, cpu=node["cpu"], memory="8Gi", pods=4, extra=extra, labels=labels, taints=taints)
        used = None if node["used"] is None else (1000 * node["used"], node["used"] * GI)
        if used is not None:
            world.engine.set_metric(name, NodeMetric(world.now_ms, 60_000, used))
        if node["disturbed"] is not None:
            world.engine.set_signal("interference/prod", name, node["disturbed"])
        amounts = {"cpu": 1000 * node["cpu"], "memory": 8 * GI, **extra}
        reference.nodes.append(Node(name, amounts, node["zone"], node["taint"], used, node["disturbed"]))
    return world, reference


def submit(world, name, pod):
    requests = {"memory": "1Gi"} | {key: pod[key] for key in ("cpu", "gpu") if pod[key]}
    spec = manifest_spec(pod)
    if pod["port"]:
        ports = [{"hostPort": 80, "containerPort": 80}]
        spec["containers"] = [{"name": "main", "resources": {"requests": requests}, "ports": ports}]
    hint = {"internal.scheduling.koordinator.sh/scheduling-hint": f'{{"nodeNames": ["{pod["hint"]}"]}}'}
    world.submit(
        name,
        requests=requests,
        priority=100,
        extra_labels={"app": pod["app"]},
        annotations=hint if pod["hint"] else {},
        spec=spec,
    )


@pytest.mark.parametrize("fused", [False, True])
@settings(max_examples=120, deadline=None)
@given(choice=CHOICES, policy=POLICIES, nodes=NODES, pods=PODS)
def test_every_combination_of_plugins_agrees_with_the_rules(make_world, fused, choice, policy, nodes, pods):
    world, reference = build(make_world, choice, policy, nodes, fused=fused)
    for i, pod in enumerate(pods):
        submit(world, f"p{i}", pod)
        world.run()
        assert world.where(f"p{i}") == reference.place(pod, f"p{i}"), f"p{i}"
        world.engine.withdraw(f"uid-p{i}")
