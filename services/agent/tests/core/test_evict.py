import pytest

from cotenant_agent.core.evict import Allowance, Candidate, MemoryInputs, memory_victims
from cotenant_common.model.reasons import ReasonCode

GB = 1_000_000_000
PODS = (
    Candidate("five", "five", 100, 5 * GB),
    Candidate("twenty", "twenty", 100, 20 * GB),
    Candidate("ten", "ten", 120, 10 * GB),
)


def victims(used_gb, threshold, lower=None, pods=PODS):
    decision = memory_victims(MemoryInputs(120 * GB, used_gb * GB, threshold, lower, pods))
    return None if decision is None else [victim.uid for victim in decision.victims]


@pytest.mark.parametrize(
    ("used", "threshold", "lower", "chosen"),
    [
        (115, 82, None, ["twenty"]),
        (115, 80, None, ["twenty", "five"]),
        (115, 50, None, ["twenty", "five", "ten"]),
        (115, 82, 80, ["twenty"]),
        (80, 80, None, None),
        (115, -1, None, None),
        (115, None, None, None),
    ],
)
def test_victims_on_a_node_of_120_gigabytes(used, threshold, lower, chosen):
    assert victims(used, threshold, lower) == chosen


def test_a_pod_without_a_sample_is_chosen_last_and_frees_nothing():
    pods = (Candidate("unknown", "unknown", 100, None), *PODS[:2])
    assert victims(115, 50, pods=pods) == ["twenty", "five", "unknown"]


def test_equal_pods_go_by_later_name():
    pods = tuple(Candidate(name, name, 1, 30 * GB) for name in ("a", "ab", "b"))
    assert victims(115, 82, pods=pods) == ["b"]
    assert victims(115, 50, pods=pods) == ["b", "ab"]


def test_a_victim_that_is_still_leaving_counts_as_gone():
    pods = (Candidate("twenty", "twenty", 100, 20 * GB, leaving=True), *PODS[2:])
    assert victims(115, 82, pods=pods) == []


def test_an_unmeasured_node_evicts_nobody():
    assert memory_victims(MemoryInputs(120 * GB, None, 70, None, PODS)) is None


def test_the_reason_carries_the_numbers():
    decision = memory_victims(MemoryInputs(120 * GB, 115 * GB, 82, None, PODS))
    assert decision is not None
    assert decision.victims[0].reason is ReasonCode.NODE_PRESSURE
    assert "95%" in decision.victims[0].message


def test_the_allowance_is_one_at_a_time_and_runs_out_until_renewed():
    allowance = Allowance(size=2, left=2, cool_down_ms=1_000)
    assert allowance.may_spend(0)
    allowance = allowance.spend(0)
    assert not allowance.may_spend(999)
    allowance = allowance.spend(1_000)
    assert not allowance.may_spend(10_000)
    assert allowance.renew().may_spend(10_000)
