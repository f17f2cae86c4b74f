"""A slow and obvious scheduler agrees with the engine, and the engine's state equals one built from scratch."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_scheduler.core.charge import charge_of
from cotenant_scheduler.core.columns import UNSET
from cotenant_scheduler.core.decisions import Placement
from cotenant_scheduler.core.quota import QuotaShare
from cotenant_scheduler.core.snapshot import stable_hash
from cotenant_scheduler.core.taints import untolerated

DISK = st.sampled_from(["ssd", "hdd"])
NODES = st.lists(
    st.fixed_dictionaries(
        {"cpu": st.integers(1, 6), "memory": st.integers(1, 6), "disk": DISK, "tainted": st.booleans()}
    ),
    min_size=1,
    max_size=4,
)
PODS = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(0, 4),
            "memory": st.integers(0, 4),
            "disk": st.none() | DISK,
            "priority": st.sampled_from([5000, 9000]),
            "quota": st.none() | st.sampled_from(["a", "b"]),
            "tolerates": st.booleans(),
        }
    ),
    max_size=12,
)
MAX = {"a": 5000, "b": 3000}
GI = 1 << 30


def build(make_world, nodes, seed=0):
    world = make_world(seed=seed)
    for i, node in enumerate(nodes):
        taints = [{"key": "t", "effect": "NoSchedule"}] if node["tainted"] else None
        world.node(
            f"n{i}", cpu=node["cpu"], memory=f"{node['memory']}Gi", pods=5, labels={"disk": node["disk"]}, taints=taints
        )
    world.quota({name: QuotaShare(name, {"cpu": most}, {"cpu": most}) for name, most in MAX.items()})
    return world


def submit(world, i, pod):
    spec = {"nodeSelector": {"disk": pod["disk"]}} if pod["disk"] else {}
    if pod["tolerates"]:
        spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
    requests = {name: value for name, value in (("cpu", pod["cpu"]), ("memory", f"{pod['memory']}Gi")) if value}
    world.submit(f"p{i:02}", requests=requests, priority=pod["priority"], quota=pod["quota"], spec=spec, created_ms=i)


@dataclass
class Reference:
    """Straight from the rules, one pod and one node at a time."""

    world: object
    held: dict = field(default_factory=dict)
    used: dict = field(default_factory=lambda: {"a": 0, "b": 0})

    def run(self):
        placed = {}
        for pod in sorted(self.world.pods.values(), key=lambda each: each.order):
            node = self.place(pod)
            if node is not None:
                placed[pod.name] = node
        return placed

    def place(self, pod):
        request = pod.shape.request
        if pod.quota_label and self.used[pod.quota_label] + request.get("cpu", 0) > MAX[pod.quota_label]:
            return None
        able = [facts for facts in self.facts() if self.fits(pod, facts)]
        if not able:
            return None
        best = max(self.points(pod, facts) for facts in able)
        mine = stable_hash(f"0/{pod.uid}")
        ties = [facts.name for facts in able if self.points(pod, facts) == best]
        node = min(ties, key=lambda name: stable_hash(name) ^ mine)
        held = self.held.setdefault(node, {})
        for name, value in request.items():
            held[name] = held.get(name, 0) + value
        if pod.quota_label:
            self.used[pod.quota_label] += request.get("cpu", 0)
        return node

    def facts(self):
        cluster = self.world.engine.cluster
        return [cluster.node(row) for row in cluster.rows.values()]

    def free(self, facts, name):
        return facts.allocatable[name] - self.held.get(facts.name, {}).get(name, 0)

    def fits(self, pod, facts):
        return (
            all(value <= self.free(facts, name) for name, value in pod.shape.requests if value)
            and all(facts.labels.get(each.key) in each.values for each in pod.shape.selector)
            and not untolerated(facts.taints, pod.shape.tolerations, forbidding=True)
        )

    def points(self, pod, facts):
        wanted = {n: v for n, v in pod.shape.requests if v and n in ("cpu", "memory")} or {"cpu": 0, "memory": 0}
        left = [(self.free(facts, name) - value) * 100 // facts.allocatable[name] for name, value in wanted.items()]
        full = [
            (facts.allocatable[name] - self.free(facts, name) + value) * 1000 // facts.allocatable[name]
            for name, value in wanted.items()
        ]
        return sum(left) // len(left) + 100 - (max(full) - min(full)) // 20 + 3 * 100


@settings(max_examples=150, deadline=None)
@given(NODES, PODS)
def test_the_engine_agrees_with_the_reference(make_world, nodes, pods):
    world = build(make_world, nodes)
    for i, pod in enumerate(pods):
        submit(world, i, pod)
    expected = Reference(world).run()
    world.run()
    assert {name: world.where(name) for name in world.pods if world.where(name)} == expected


ENDS = st.tuples(st.just("end"), st.integers(0, 14))
STEPS = st.lists(
    st.one_of(
        ENDS,
        ENDS,
        ENDS,
        ENDS,
        st.tuples(st.just("submit"), PODS.filter(bool).map(lambda pods: pods[0])),
        st.tuples(st.just("withdraw"), st.integers(0, 14)),
        st.tuples(st.just("metric"), st.tuples(st.integers(0, 3), st.integers(0, 4))),
        st.tuples(st.just("resize"), st.tuples(st.integers(0, 3), st.integers(1, 6))),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("run"), st.integers(0, 400)),
    ),
    min_size=6,
    max_size=25,
)
CROWD = st.lists(PODS.filter(bool).map(lambda pods: pods[0]), min_size=8, max_size=14)


def crowded(make_world, nodes, pods):
    """Full before the first step, so that every release matters to somebody."""
    world = build(make_world, nodes)
    world.cut = {"cpu", "memory", "pods"}
    for i, pod in enumerate(pods):
        submit(world, i, pod)
    world.run()
    return world


def apply(world, nodes, step, i):
    kind, value = step
    match kind:
        case "submit":
            submit(world, i, value)
        case "end":
            world.end(f"p{value:02}")
        case "withdraw":
            world.engine.withdraw(f"uid-p{value:02}")
        case "metric":
            world.metric(f"n{value[0]}", value[1], f"{value[1]}Gi")
        case "resize" if value[0] < len(nodes):
            world.node(f"n{value[0]}", cpu=value[1], memory="4Gi", pods=5)
        case "drop":
            world.engine.remove_node(f"n{value}")
        case "run":
            world.later(value)


@settings(max_examples=100, deadline=None)
@given(NODES, CROWD, STEPS)
def test_incremental_state_equals_a_rebuild(make_world, nodes, pods, steps):
    world = crowded(make_world, nodes, pods)
    for i, step in enumerate(steps, len(pods)):
        apply(world, nodes, step, i)
    world.run()
    same_state(world, rebuilt(make_world, world))


def rebuilt(make_world, world):
    fresh = make_world()
    cluster = world.engine.cluster
    fresh.quota({name: QuotaShare(name, {"cpu": most}, {"cpu": most}) for name, most in MAX.items()})
    for charge in sorted(world.engine.ledger.charges().values(), key=lambda each: each.uid, reverse=True):
        fresh.engine.put_charge(charge)
    for name in sorted(cluster.rows, reverse=True):
        row = cluster.rows[name]
        if cluster.node(row).described:
            fresh.engine.set_node(cluster.node(row))
        fresh.engine.set_metric(name, cluster.load.metric(row))
    return fresh


def same_state(left, right) -> None:
    a, b = left.engine.cluster, right.engine.cluster
    assert sorted(a.rows) == sorted(b.rows)
    for name in a.rows:
        i, j = a.rows[name], b.rows[name]
        assert a.node(i) == b.node(j)
        assert a.allocatable_of(i) == b.allocatable_of(j)
        assert a.requested_of(i) == b.requested_of(j)
        assert a.ports[i] == b.ports[j]
        assert a.load.metric_ms[i] == b.load.metric_ms[j]
        if a.load.metric_ms[i] != UNSET:
            for column in ("capacity", "judged", "limit", "scored", "gate", "view"):
                assert getattr(a.load, column)[..., i].tolist() == getattr(b.load, column)[..., j].tolist(), column
    for name in MAX:
        assert left.engine.quotas.used(name) == right.engine.quotas.used(name)


@settings(max_examples=60, deadline=None)
@given(NODES, CROWD, STEPS)
def test_nobody_who_fits_is_left_waiting_when_all_is_quiet(make_world, nodes, pods, steps):
    """A missed wake would show here: every waiting pod is refused by a fresh look as well."""
    world = crowded(make_world, nodes, pods)
    for i, step in enumerate(steps, len(pods)):
        apply(world, nodes, step, i)
    for _ in range(5):
        world.later(2_000)
    for pod in list(world.engine.queue.pods()):
        assert world.engine.diagnose(pod, world.now_ms) is not None


@settings(max_examples=60, deadline=None)
@given(NODES, CROWD, STEPS)
def test_quotas_are_never_passed(make_world, nodes, pods, steps):
    world = crowded(make_world, nodes, pods)
    for i, step in enumerate(steps, len(pods)):
        apply(world, nodes, step, i)
        for name, most in MAX.items():
            assert world.engine.quotas.used(name).get("cpu", 0) <= most


def test_a_decision_names_what_it_charged(make_world):
    world = build(make_world, [{"cpu": 4, "memory": 4, "disk": "ssd", "tainted": False}])
    world.submit("a", cpu="1", quota="a")
    (decision,) = world.run()
    assert isinstance(decision, Placement)
    assert decision.charge == charge_of(decision.pod, "n0", world.now_ms)
    assert (decision.quota, decision.quota_chain) == ("a", ("a",))
