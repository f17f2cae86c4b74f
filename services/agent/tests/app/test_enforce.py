import pytest

from cotenant_agent.cgroup.fake import FakeCgroupTree
from cotenant_agent.cgroup.files import Knob
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.core.merge import WishSource
from cotenant_agent.core.policy import CpuPolicy, NodePolicy
from cotenant_agent.testing import Rig
from cotenant_common.model import labels

GIB = 1 << 30
LOAD = {"node": 1_500, "ls": 1_000, "be": 300, "system": 0}


def test_the_cap_follows_services_down_at_once_and_up_by_tenths():
    rig = Rig()
    rig.enforcer.idle_class = False
    rig.node.sampler.rates = dict(LOAD)
    rig.seconds(3)
    assert rig.quota == (3_800 - 1_000 - 200) * 100
    rig.node.sampler.rates = LOAD | {"node": 3_500, "ls": 3_000}
    rig.seconds(2)
    assert rig.quota == (3_800 - 3_000 - 200) * 100
    rig.node.sampler.rates = dict(LOAD)
    rig.seconds(2)
    assert rig.quota == 600 * 100 + 2 * 40_000


def test_an_interval_without_a_measurement_keeps_the_cap():
    rig = Rig()
    rig.node.sampler.rates = dict(LOAD)
    rig.seconds(3)
    before = rig.quota
    del rig.node.sampler._totals["node"]
    del rig.node.sampler.rates["node"]
    tick = rig.seconds(2)
    assert rig.quota == before
    assert tick.limit.reason.value == "MetricsMissing"


def test_without_an_idle_class_batch_gets_the_least_weight_and_the_lower_line():
    rig = Rig(FakeCgroupTree(lacks={Knob.CPU_IDLE}))
    assert not rig.enforcer.idle_class
    assert rig.read("n1/be", Knob.CPU_SHARES) == 2
    assert rig.enforcer.policy.cpu_threshold_percent == 65


def test_services_together_weigh_one_share_per_cpu():
    rig = Rig()
    assert rig.read("n1", Knob.CPU_SHARES) == rig.read("", Knob.CPU_SHARES) == 4_096


def test_the_cpuset_policy_takes_whole_cores_and_pods_follow_their_group():
    rig = Rig(cpus=8)
    pod = rig.place("batch", qos="BE", band="batch", cpu="1")
    rig.enforcer.set_policy(NodePolicy(cpu_policy=CpuPolicy.CPUSET, cpu_threshold_percent=65), 0)
    rig.node.sampler.rates = LOAD | {"node": 2_200, "ls": 1_900}
    tick = rig.seconds(3)
    assert rig.quota == -1
    assert rig.read("n1/be", Knob.CPUSET_CPUS) == rig.read(pod.group, Knob.CPUSET_CPUS) == "0-3"
    assert tick.be_limit_milli == 4_000
    assert rig.node.tree.violations() == []


def test_cores_of_an_lse_pod_are_never_shared_with_best_effort():
    rig = Rig()
    pod = rig.place("batch", qos="BE", band="batch", cpu="1")
    rig.place("exclusive", cpuset="0-1", qos="LSE", cpu="2", limits={"cpu": "2"})
    rig.seconds(2)
    assert rig.read(pod.group, Knob.CPUSET_CPUS) == rig.read("n1/be", Knob.CPUSET_CPUS) == "2-3"


def test_pods_hold_themselves_only_while_the_group_does_not():
    rig = Rig()
    fields = {"requests": {"kubernetes.io/batch-cpu": "500"}, "limits": {"kubernetes.io/batch-cpu": "500"}}
    pod = rig.place("batch", qos="BE", band="batch", **fields)
    rig.node.sampler.rates = LOAD | {"node": 3_900, "ls": 3_600}
    rig.seconds(3)
    assert rig.read(pod.group, Knob.CPU_QUOTA) == -1
    rig.enforcer.set_policy(NodePolicy(enabled=False), rig.ms)
    assert (rig.quota, rig.read(pod.group, Knob.CPU_QUOTA)) == (-1, 50_000)
    rig.enforcer.set_policy(NodePolicy(), rig.ms)
    rig.seconds(2)
    assert rig.read(pod.group, Knob.CPU_QUOTA) == -1
    assert rig.quota > 0


def test_batch_memory_stops_where_promises_begin_but_never_under_what_it_uses():
    rig = Rig()
    rig.place("web", qos="LS", memory="3Gi", cpu="1")
    assert rig.read("n1/be", Knob.MEMORY_MAX) == 5 * GIB
    rig.node.sampler.memory = {"be": 6 * GIB}
    rig.seconds(2)
    assert rig.read("n1/be", Knob.MEMORY_MAX) == 6 * GIB


def test_guard_and_suppress_meet_in_one_limit():
    rig = Rig()
    web = rig.place("web", qos="LS", cpu="1")
    rig.node.sampler.rates = LOAD | {"node": 3_000, "be": 1_800, web.uid: 1_000}
    rig.node.sampler.waits = {web.uid: 8.0}
    tick = rig.seconds(5)
    assert tick.limit.source is WishSource.GUARD
    assert rig.quota == tick.limit.limit_milli * 100


@pytest.mark.parametrize("settings", [{"guard": False}, {"guard_wait_ms_per_slice": 50.0}])
def test_the_guard_can_be_told_to_wait(settings):
    rig = Rig(**settings)
    web = rig.place("web", qos="LS", cpu="1")
    rig.node.sampler.rates = LOAD | {"node": 3_000, "be": 1_800}
    rig.node.sampler.waits = {web.uid: 8.0}
    assert rig.seconds(8).limit.source is WishSource.SUPPRESS


def test_a_removed_pod_leaves_no_group_and_no_journal_entry():
    rig = Rig()
    pod = rig.place("batch", qos="BE", band="batch", cpu="1")
    rig.node.tree.attach(pod.group, 77)
    assert rig.enforcer.remove(pod.uid)
    assert not rig.node.tree.exists(pod.group)
    assert not [entry for entry in rig.node.writer.journal.entries() if entry[0] == pod.group]
    assert rig.enforcer.remove(pod.uid)


def test_only_empty_groups_of_nobody_are_strays():
    rig = Rig()
    rig.place("batch", qos="BE", band="batch", cpu="1")
    rig.node.tree.create("n1/ls/podold")
    rig.node.tree.create("n1/ls/podbusy")
    rig.node.tree.attach("n1/ls/podbusy", 5)
    assert rig.enforcer.stray_groups() == ["n1/ls/podold"]


def test_all_groups_of_a_slice_are_held_to_its_cpus():
    rig = Rig(slice_cpus=2)
    assert {rig.read(group, Knob.CPUSET_CPUS) for group in ("n1", "n1/ls", "n1/be", "n1/system")} == {"0-1"}
    rig.place("web", qos="LS", cpu="1")
    assert rig.node.tree.violations() == []


def test_the_guard_leaves_to_best_effort_what_the_policy_promises():
    rig = Rig()
    rig.enforcer.set_policy(NodePolicy(cpu_min_percent=50), 0)
    placed = rig.place("web", qos="LS", cpu="1")
    rig.node.sampler.rates = {"node": 3_500, "ls": 500, "be": 3_000, "system": 0, placed.uid: 500}
    rig.node.sampler.waits = {placed.uid: 9.0}
    tick = rig.seconds(60)
    assert tick.limit.limit_milli == 2_000


def test_a_group_that_the_kernel_will_not_give_up_is_tried_again_later():
    class Refusing(FakeCgroupTree):
        def remove(self, group):
            raise CgroupError(f"cannot remove {group}: read-only")

    rig = Rig(Refusing())
    placed = rig.place("web", cpu="1")
    assert rig.enforcer.remove(placed.uid) is False
    assert placed.uid in rig.enforcer.pods


def test_best_effort_may_carry_over_what_services_kept_it_from_using():
    rig = Rig()
    rig.node.sampler.rates = dict(LOAD)
    rig.seconds(3)
    assert rig.read("n1/be", Knob.CPU_BURST) == 50_000
    rig.node.sampler.rates = LOAD | {"node": 3_950, "ls": 3_700}
    rig.seconds(2)
    assert 0 < rig.quota < 50_000
    assert rig.read("n1/be", Knob.CPU_BURST) == rig.quota


def at_rest(**settings):
    """A rig whose last tick wrote nothing: the same usage would make it once more."""
    rig = Rig(**settings)
    rig.node.sampler.rates = dict(LOAD)
    rig.seconds(10)
    return rig


def test_the_same_usage_again_is_the_very_same_tick():
    rig = at_rest()
    assert rig.seconds(1) is rig.seconds(1)


def test_any_other_usage_is_decided_anew():
    rig = at_rest()
    before = rig.seconds(1)
    rig.node.sampler.rates = LOAD | {"node": 1_501}
    after = rig.seconds(1)
    assert after is not before
    assert after.limit.limit_milli == before.limit.limit_milli - 1


def test_a_limit_that_is_still_rising_is_not_at_rest():
    rig = Rig()
    rig.enforcer.idle_class = False
    rig.node.sampler.rates = LOAD | {"node": 3_500, "ls": 3_000}
    rig.seconds(2)
    rig.node.sampler.rates = dict(LOAD)
    rig.seconds(1)
    quotas = [rig.quota for _ in range(4) if rig.seconds(1)]
    assert quotas == sorted(set(quotas))


@pytest.mark.parametrize(
    "happening",
    [
        lambda rig: rig.place("batch", qos="BE", band="batch", cpu="1"),
        lambda rig: rig.enforcer.set_policy(NodePolicy(cpu_threshold_percent=50), rig.ms),
    ],
    ids=["a pod comes", "the policy changes"],
)
def test_what_happens_to_the_node_ends_the_rest(happening):
    rig = at_rest()
    before = rig.seconds(1)
    happening(rig)
    assert rig.seconds(1) is not before


def test_a_pod_that_leaves_ends_the_rest():
    rig = at_rest()
    placed = rig.place("web", qos="LS", cpu="1")
    before = rig.seconds(10)
    rig.enforcer.remove(placed.uid)
    assert rig.seconds(1) is not before


def test_a_knob_that_somebody_else_turned_is_put_right_while_nothing_else_changes():
    rig = at_rest()
    rig.node.tree.write("n1/be", Knob.CPU_QUOTA, -1)
    rig.seconds(130)
    assert rig.quota == (3_800 - 1_000 - 200) * 100


def test_a_reported_latency_is_never_taken_for_rest():
    """Its age counts: it is forgotten after a while although the usage stays the same."""
    rig = at_rest()
    rig.place("web", qos="LS", cpu="1", annotations={labels.LATENCY_SLO: '{"percentile": 99, "milliseconds": 10}'})
    rig.seconds(10)
    rig.enforcer.take_latency("default", "web", 1.0, 31.0, rig.ms)
    rig.seconds(1)
    assert "answers in 31.0 ms" in rig.enforcer.guard_state.message
    rig.seconds(20)
    assert rig.enforcer.guard_state.cap_milli is None
