import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_gateway.core.budgets import Budget, migration_limit
from cotenant_gateway.testing import running


@pytest.mark.parametrize(
    ("replicas", "value", "limit"),
    [
        (6, "80%", 4), (6, "150%", 6), (6, 5, 5), (6, 7, 6), (6, None, 2), (50, "0%", 1), (6, 0, 1),
        (1, None, 1), (3, None, 1), (4, None, 2), (10, None, 2), (11, None, 1), (29, None, 2), (50, None, 5),
    ],
)  # fmt: skip
def test_migration_limits_of_the_reference(replicas, value, limit):
    assert migration_limit(replicas, value) == limit


@given(st.integers(1, 500), st.one_of(st.none(), st.integers(0, 600), st.integers(0, 100).map(lambda p: f"{p}%")))
def test_a_migration_limit_is_at_least_one_and_at_most_all(replicas, value):
    assert 1 <= migration_limit(replicas, value) <= replicas


@pytest.mark.parametrize(
    ("spec", "expected", "healthy"),
    [
        ({"minAvailable": 2}, 3, 2),
        ({"minAvailable": "50%"}, 3, 2),
        ({"maxUnavailable": 1}, 3, 2),
        ({"maxUnavailable": "30%"}, 10, 7),
        ({"maxUnavailable": "25%"}, 3, 2),
        ({"maxUnavailable": 0}, 3, 3),
    ],
)
def test_budgets_count_as_kubernetes_does(spec, expected, healthy):
    assert Budget("default", "b", spec).wanted_healthy(expected) == healthy


def test_an_unready_pod_leaves_freely_while_the_others_suffice():
    budget = Budget("default", "b", {"minAvailable": 1, "selector": {}})
    sick = running("sick", ready=False)
    assert budget.shortfall([running("a"), sick], [sick], 2) is None
    assert budget.shortfall([sick], [sick], 1) is not None
    always = Budget("default", "b", {"minAvailable": 1, "selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"})
    assert always.shortfall([sick], [sick], 1) is None


def test_a_budget_without_a_selector_covers_nothing():
    assert not Budget("default", "b", {"minAvailable": 1}).covers(running())
    assert Budget("default", "b", {"minAvailable": 1, "selector": {}}).covers(running())
    assert not Budget("other", "b", {"minAvailable": 1, "selector": {}}).covers(running())
