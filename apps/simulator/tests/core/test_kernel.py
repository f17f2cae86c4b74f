from hypothesis import given
from hypothesis import strategies as st

from cotenant_simulator.core.kernel import Group, Tenant, fill, oom_kills, share_out, wait_ms_per_slice

MB = 1 << 20


def leaf(name: str, demand: float, **fields: object) -> Group:
    return Group(name, demand_milli=demand, **fields)  # type: ignore[arg-type]


def test_who_wants_less_than_its_share_gets_all_of_it():
    shares = share_out(4000, [leaf("small", 500), leaf("large", 8000)])
    assert shares["small"].given_milli == 500
    assert shares["large"].given_milli == 3500


def test_contenders_share_by_weight():
    shares = share_out(3000, [leaf("one", 9000, weight=1024), leaf("two", 9000, weight=2048)])
    assert round(shares["one"].given_milli) == 1000
    assert round(shares["two"].given_milli) == 2000


def test_the_idle_class_gets_what_is_left():
    shares = share_out(4000, [leaf("batch", 8000, idle=True), leaf("service", 3000)])
    assert shares["service"].given_milli == 3000
    assert shares["batch"].given_milli == 1000
    assert share_out(4000, [leaf("batch", 8000, idle=True), leaf("service", 9000)])["batch"].given_milli == 0


def test_a_quota_throttles_and_a_lack_of_cpu_makes_wait():
    throttled = share_out(8000, [leaf("a", 3000, quota_milli=1000)])["a"]
    assert (throttled.given_milli, throttled.throttled, throttled.waiting_milli) == (1000, True, 0)
    waiting = share_out(2000, [leaf("a", 3000)])["a"]
    assert (waiting.given_milli, waiting.throttled, waiting.waiting_milli) == (2000, False, 1000)


def test_a_parents_quota_holds_its_children_together():
    children = (leaf("a", 3000), leaf("b", 3000))
    shares = share_out(8000, [Group("be", quota_milli=2000, children=children)])
    assert shares["a"].given_milli + shares["b"].given_milli == 2000
    assert shares["a"].throttled
    assert shares["b"].throttled


def test_a_cpuset_caps_what_a_group_can_use():
    assert share_out(8000, [leaf("a", 8000, cpus=2)])["a"].given_milli == 2000


def test_without_an_idle_class_a_waking_service_waits_for_its_neighbours():
    share = share_out(8000, [leaf("web", 1000), leaf("batch", 7000)])["web"]
    assert wait_ms_per_slice(share, idle_class=True, saturation=0.9) == 0
    assert wait_ms_per_slice(share, idle_class=False, saturation=0.9) > 2


groups = st.lists(
    st.tuples(
        st.integers(2, 10_000),
        st.integers(0, 20_000),
        st.booleans(),
        st.none() | st.integers(10, 20_000),
        st.none() | st.integers(1, 16),
    ),
    max_size=8,
)


@given(st.integers(0, 64_000), groups, groups)
def test_shares_never_pass_capacity_demand_quota_or_cpuset(capacity: int, top: list, below: list):
    def build(prefix: str, specs: list) -> list[Group]:
        return [
            Group(f"{prefix}{at}", weight, idle, quota, cpus, float(demand))
            for at, (weight, demand, idle, quota, cpus) in enumerate(specs)
        ]

    inner = build("inner", below)
    tree = [*build("top", top), Group("parent", quota_milli=3000, children=tuple(inner))]
    shares = share_out(capacity, tree)
    assert sum(share.given_milli for share in shares.values()) <= capacity + 1e-6
    assert sum(shares[one.name].given_milli for one in inner) <= 3000 + 1e-6
    for group in [*tree[:-1], *inner]:
        given = shares[group.name].given_milli
        assert -1e-9 <= given <= group.cap_milli + 1e-6


@given(
    st.integers(1, 64_000), st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 20_000)), min_size=1, max_size=8)
)
def test_nothing_is_left_over_while_somebody_wants_more(capacity: int, wishes: list):
    given = fill(capacity, wishes)
    assert abs(sum(given) - min(capacity, sum(want for _, want in wishes))) < 1e-6
    hungry = [(amount / weight) for amount, (weight, want) in zip(given, wishes, strict=True) if amount < want - 1e-6]
    sated = [(amount / weight) for amount, (weight, want) in zip(given, wishes, strict=True) if amount >= want - 1e-6]
    # Those who could use more all have the same share per weight, and nobody else has a larger one.
    assert all(abs(one - hungry[0]) < 1e-6 * max(1, hungry[0]) for one in hungry)
    assert not hungry or all(one <= hungry[0] + 1e-6 * max(1, hungry[0]) for one in sated)


def test_a_pod_over_its_own_limit_dies_alone():
    kills = oom_kills(1000 * MB, 0, [Tenant("a", 20 * MB, 10 * MB), Tenant("b", 500 * MB)], {})
    assert [kill.name for kill in kills] == ["a"]


def test_a_full_group_loses_its_largest_member():
    members = [Tenant("a", 30 * MB, group="be"), Tenant("b", 50 * MB, group="be"), Tenant("web", 90 * MB, group="ls")]
    assert [kill.name for kill in oom_kills(1000 * MB, 0, members, {"be": 40 * MB})] == ["b"]


def test_a_full_machine_takes_best_effort_first():
    members = [Tenant("web", 90 * MB), Tenant("batch", 10 * MB, badness=1000)]
    assert [kill.name for kill in oom_kills(100 * MB, 5 * MB, members, {})] == ["batch"]
    assert oom_kills(105 * MB, 5 * MB, members, {}) == []
