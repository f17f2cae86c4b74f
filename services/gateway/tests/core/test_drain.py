from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.reasons import ReasonCode
from cotenant_gateway.core.budgets import Budget
from cotenant_gateway.core.drain import drain
from cotenant_gateway.core.records import PodState, Put
from cotenant_gateway.core.removal import Decision, GateSettings, Ledger, Request
from cotenant_gateway.testing import ended, running

SETTINGS = GateSettings()
ASKED = Request("d1", "drain", (), "user", "Drained", "maintenance")


def drained(*pods: PodState, settings: GateSettings = SETTINGS, **fields: Any) -> tuple[Decision, ...]:
    known = Ledger({pod.spec.uid: pod for pod in pods}, **fields)
    return drain("n1", pods, ASKED, known, settings, 1_000)


def budget(least: int) -> Budget:
    return Budget("default", "b", {"selector": {}, "minAvailable": least})


def granted(found: tuple[Decision, ...]) -> list[str]:
    return [d.verdicts[0].victim.name for d in found if d.granted]


def changes(found: tuple[Decision, ...]) -> list[Put]:
    return [change for d in found for change in d.changes]


def test_everything_on_the_node_leaves_and_nothing_else():
    found = drained(running("a"), running("b", node="n2"), running("c"), ended("d"))
    assert granted(found) == ["a", "c"]
    assert {change.spec.deletion.kind for change in changes(found) if change.spec.deletion} == {"drain"}


def test_each_answer_counts_for_the_next_one():
    found = drained(running("a"), running("b"), running("c"), budgets=[budget(2)])
    assert granted(found) == ["a"]
    assert [d.reason for d in found[1:]] == [ReasonCode.BUDGET_EXCEEDED] * 2
    assert "2 are" in found[1].message


def test_the_least_important_pod_leaves_first():
    found = drained(running("a", priority=9_500), running("b", priority=5_500), budgets=[budget(1)])
    assert granted(found) == ["b"]


def test_a_drain_is_paced():
    pods = [running(f"p{n}") for n in range(5)]
    assert len(granted(drained(*pods, settings=GateSettings(drains_per_node=2)))) == 2


def test_a_second_pass_removes_nobody_twice():
    first = drained(running("a"), running("b"))
    marked = [PodState(change.spec, running(change.spec.name).seen, "n1") for change in changes(first)]
    again = drained(*marked)
    assert changes(again) == []
    assert granted(again) == ["a", "b"]


@given(st.integers(1, 8), st.integers(0, 8))
def test_a_pass_never_takes_more_than_the_budget_leaves(count: int, least: int):
    found = drained(*(running(f"p{n}") for n in range(count)), budgets=[budget(least)])
    assert len(changes(found)) == max(0, min(count, count - least))
