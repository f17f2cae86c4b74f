from cotenant_agent.core.isolation import be_memory_limit, group_of, pod_knobs, quota_of, shares_of
from cotenant_common.model.qos import QosClass
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY

GIB = 1 << 30


def batch(request=None, limit=None, memory=None, **more):
    requests = {} if request is None else {BATCH_CPU: request}
    limits = {} if limit is None else {BATCH_CPU: limit}
    return pod_knobs(QosClass.BE, requests, limits | ({} if memory is None else {BATCH_MEMORY: memory}), **more)


def test_batch_requests_become_shares_and_limits_a_quota():
    knobs = batch(500, 1_000, GIB)
    assert (knobs.shares, knobs.quota_us, knobs.memory_bytes) == (512, 100_000, GIB)


def test_a_tiny_limit_is_raised_to_what_the_kernel_takes():
    assert batch(limit=5).quota_us == 1_000


def test_no_request_is_the_least_share_and_no_limit_is_no_cap():
    knobs = batch()
    assert (knobs.shares, knobs.quota_us, knobs.memory_bytes) == (2, -1, -1)


def test_a_normalized_node_owes_less_time_rounded_up():
    assert quota_of(1_000, 1.2) == 83_334


def test_shares_are_bounded():
    assert (shares_of(0), shares_of(10_000_000)) == (2, 262_144)


def test_pods_carry_no_quota_while_their_group_is_capped():
    assert batch(500, 1_000, be_capped_by_quota=True).quota_us == -1


def test_bound_cores_need_no_quota():
    knobs = pod_knobs(QosClass.LSR, {CPU: 2_000}, {CPU: 2_000, MEMORY: GIB}, cpuset="0-1")
    assert (knobs.quota_us, knobs.cpus, knobs.memory_bytes) == (-1, "0-1", GIB)


def test_a_service_keeps_its_limit():
    assert pod_knobs(QosClass.LS, {CPU: 250}, {CPU: 500}).quota_us == 50_000


def test_classes_map_to_three_groups():
    assert [group_of(qos) for qos in (QosClass.BE, QosClass.SYSTEM, QosClass.LS, QosClass.LSE, QosClass.NONE)] == [
        "be",
        "system",
        "ls",
        "ls",
        "ls",
    ]


def test_best_effort_memory_stops_before_what_services_were_promised():
    assert be_memory_limit(100, 30, 10) == 70
    assert be_memory_limit(100, 0, 10) == 90
    assert be_memory_limit(100, 120, 10) == 10
