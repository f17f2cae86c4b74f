from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.quota.tree import QuotaTree, build_forest
from cotenant_common.testing.quotas import quota
from cotenant_quota.core.guarantees import guaranteed_of
from cotenant_quota.core.ledger import PodCharge, QuotaLedger


def _tree() -> QuotaTree:
    return build_forest(
        [quota("p", min=10, is_parent=True), quota("a", min=4, parent="p"), quota("b", min=6, parent="p")]
    ).trees["default"]


def _charge(uid: str, name: str = "a", cpu: int = 2, *, assigned: bool = True, preemptible: bool = True) -> PodCharge:
    return PodCharge(uid, name, {"cpu": cpu}, assigned, preemptible)


def test_use_reaches_every_ancestor_and_a_waiting_pod_only_asks() -> None:
    ledger = QuotaLedger(_tree())
    ledger.put(_charge("1"))
    ledger.put(_charge("2", assigned=False))
    assert ledger.counters("a").own_request == {"cpu": 4}
    assert ledger.counters("a").used == ledger.counters("p").used == {"cpu": 2}


def test_charging_twice_and_releasing_twice_change_nothing() -> None:
    ledger = QuotaLedger(_tree())
    assert ledger.put(_charge("1")) is True
    assert ledger.put(_charge("1")) is False
    assert ledger.release("1") is not None
    assert ledger.release("1") is None
    assert ledger.counters("p").used == {}


def test_a_changed_pod_moves_its_charge() -> None:
    ledger = QuotaLedger(_tree())
    ledger.put(_charge("1", "a", assigned=False))
    ledger.put(_charge("1", "b", cpu=3))
    assert ledger.counters("a").own_request == {}
    assert ledger.counters("b").used == ledger.counters("p").used == {"cpu": 3}


def test_only_dimensions_of_max_are_counted() -> None:
    ledger = QuotaLedger(_tree())
    ledger.put(PodCharge("1", "a", {"cpu": 1, "memory": 5}, assigned=True))
    assert ledger.counters("a").used == {"cpu": 1}


def test_non_preemptible_pods_are_counted_apart() -> None:
    ledger = QuotaLedger(_tree())
    ledger.put(_charge("1", preemptible=False))
    ledger.put(_charge("2", preemptible=False, assigned=False))
    assert ledger.counters("p").non_preemptible_request == {"cpu": 4}
    assert ledger.counters("p").non_preemptible_used == {"cpu": 2}


def test_guaranteed_is_the_larger_of_min_and_allocated_summed_upwards() -> None:
    allocated, guaranteed = guaranteed_of(_tree(), {"a": {"cpu": 5}, "b": {"cpu": 1}, "p": {"cpu": 6}})
    assert allocated == {"a": {"cpu": 5}, "b": {"cpu": 1}, "p": {"cpu": 11}}
    assert guaranteed == {"a": {"cpu": 5}, "b": {"cpu": 6}, "p": {"cpu": 11}}


_CHARGES = st.builds(
    PodCharge,
    uid=st.sampled_from("12345"),
    quota=st.sampled_from(["a", "b"]),
    request=st.fixed_dictionaries({"cpu": st.integers(0, 9)}),
    assigned=st.booleans(),
    preemptible=st.booleans(),
)


@given(st.lists(st.one_of(_CHARGES, st.sampled_from("12345")), max_size=30))
def test_a_rebuild_equals_what_grew_and_nothing_is_ever_negative(steps: list[PodCharge | str]) -> None:
    ledger = QuotaLedger(_tree())
    left: dict[str, PodCharge] = {}
    for step in steps:
        if isinstance(step, str):
            ledger.release(step)
            left.pop(step, None)
        else:
            ledger.put(step)
            left[step.uid] = step
    rebuilt = QuotaLedger(_tree())
    for charge in left.values():
        rebuilt.put(charge)
    for name in ("p", "a", "b"):
        grown, fresh = ledger.counters(name), rebuilt.counters(name)
        for sums, expected in (
            (grown.own_request, fresh.own_request),
            (grown.used, fresh.used),
            (grown.non_preemptible_used, fresh.non_preemptible_used),
        ):
            assert sums.get("cpu", 0) == expected.get("cpu", 0) >= 0
