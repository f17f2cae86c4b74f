import pytest

from cotenant_agent.core.policy import CpuPolicy, default_policy, read_policy


def test_the_idle_class_may_be_filled_and_a_weight_may_not():
    assert default_policy(idle_class=True).cpu_threshold_percent == 95
    assert default_policy(idle_class=False).cpu_threshold_percent == 65


def test_values_that_are_set_hold_as_set_and_the_rest_is_ours():
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 0, "cpuSuppressPolicy": "cpuset"}
    policy = read_policy({"resourceUsedThresholdWithBE": threshold}, idle_class=True)
    assert (policy.cpu_threshold_percent, policy.cpu_policy) == (0, CpuPolicy.CPUSET)
    assert policy.memory_threshold_percent == 90


def test_disabling_is_an_explicit_false():
    assert read_policy({}, idle_class=True).enabled
    assert not read_policy({"resourceUsedThresholdWithBE": {"enable": False}}, idle_class=True).enabled


@pytest.mark.parametrize("section", [7, {"cpuSuppressThresholdPercent": "x", "cpuSuppressPolicy": 3}])
def test_a_policy_of_the_wrong_kind_never_stops_a_node(section):
    assert read_policy({"resourceUsedThresholdWithBE": section}, idle_class=True) == default_policy(idle_class=True)
