from typing import Any

import pytest

from cotenant_common.model.pod import container_resources, parse_pod, pod_limits, pod_requests
from cotenant_common.model.qos import KubernetesQos, PriorityBand, QosClass
from cotenant_common.model.quantity import QuantityError
from cotenant_common.testing.builders import pod, pod_manifest


def container(cpu: str | None = None, *, restart: str | None = None, limit: str | None = None) -> dict[str, Any]:
    section: dict[str, Any] = {"name": "c", "resources": {}}
    if cpu is not None:
        section["resources"]["requests"] = {"cpu": cpu}
    if limit is not None:
        section["resources"]["limits"] = {"cpu": limit}
    if restart is not None:
        section["restartPolicy"] = restart
    return section


def test_requests_of_containers_add_up() -> None:
    assert pod_requests({"containers": [container("1"), container("500m")]}) == {"cpu": 1500}


def test_the_largest_init_container_counts_when_it_exceeds_the_sum() -> None:
    spec = {"initContainers": [container("2"), container("3")], "containers": [container("1")]}
    assert pod_requests(spec) == {"cpu": 3000}
    assert pod_requests({**spec, "containers": [container("4")]}) == {"cpu": 4000}


def test_a_sidecar_runs_beside_what_comes_after_it() -> None:
    sidecar = container("1", restart="Always")
    assert pod_requests({"initContainers": [sidecar], "containers": [container("2")]}) == {"cpu": 3000}
    before = {"initContainers": [container("4"), sidecar], "containers": [container("2")]}
    after = {"initContainers": [sidecar, container("4")], "containers": [container("2")]}
    assert pod_requests(before) == {"cpu": 4000}
    assert pod_requests(after) == {"cpu": 5000}


def test_overhead_is_added_on_top() -> None:
    spec = {"initContainers": [container("3")], "containers": [container("1")], "overhead": {"cpu": "250m"}}
    assert pod_requests(spec) == {"cpu": 3250}


def test_a_limit_without_a_request_is_the_request_too() -> None:
    assert container_resources(container(limit="2")) == ({"cpu": 2000}, {"cpu": 2000})
    assert container_resources(container("1", limit="2")) == ({"cpu": 1000}, {"cpu": 2000})


def test_one_unlimited_container_makes_the_pod_unlimited() -> None:
    assert pod_limits({"containers": [container(limit="1"), container(limit="2")]}) == {"cpu": 3000}
    assert pod_limits({"containers": [container(limit="1"), container("1")]}) == {}
    assert pod_limits({}) == {}


def test_a_manifest_is_read_once_into_plain_values() -> None:
    manifest = pod_manifest("web", namespace="shop", cpu="2", memory="1Gi", qos="LS", band="prod", quota="team-a")
    read = parse_pod(manifest, uid="u1", created_ms=5, incarnation=2)
    assert (read.key, read.uid, read.created_ms, read.incarnation) == ("shop/web", "u1", 5, 2)
    assert (read.qos, read.band, read.priority_value) == (QosClass.LS, PriorityBand.PROD, 9000)
    assert read.kubernetes_qos is KubernetesQos.BURSTABLE
    assert read.requests == {"cpu": 2000, "memory": 1 << 30}
    assert read.quota_label == "team-a"
    assert read.is_prod
    assert not read.is_reclaimable


def test_batch_pods_ask_for_batch_resources() -> None:
    read = pod("job", cpu="2", memory="1Gi", qos="BE", band="batch")
    assert read.requests == {"kubernetes.io/batch-cpu": 2000, "kubernetes.io/batch-memory": 1 << 30}
    assert read.is_reclaimable
    assert read.kubernetes_qos is KubernetesQos.BEST_EFFORT


def test_what_is_absent_has_a_stated_default() -> None:
    read = parse_pod({"metadata": {"name": "x"}}, uid="u")
    assert (read.namespace, read.requests, read.limits, read.priority) == ("default", {}, {}, None)
    assert (read.grace_ms, read.host_ports, read.scheduling_gates, read.tolerations) == (30_000, (), (), ())
    assert read.requeue
    assert read.preemptible


def test_zero_grace_is_zero_and_not_the_default() -> None:
    assert parse_pod({"metadata": {"name": "x"}, "spec": {"terminationGracePeriodSeconds": 0}}, uid="u").grace_ms == 0


def test_ports_gates_owner_and_switches() -> None:
    manifest = {
        "metadata": {
            "name": "x",
            "labels": {"quota.scheduling.koordinator.sh/preemptible": "false"},
            "annotations": {"cotenant.io/requeue": "false"},
            "ownerReferences": [{"kind": "A", "name": "a"}, {"kind": "Job", "name": "b", "controller": True}],
        },
        "spec": {
            "containers": [{"name": "c", "ports": [{"hostPort": 80}, {"hostPort": 53, "protocol": "UDP"}, {}]}],
            "schedulingGates": [{"name": "wait"}],
        },
    }
    read = parse_pod(manifest, uid="u")
    assert read.host_ports == (("TCP", 80), ("UDP", 53))
    assert (read.owner_kind, read.owner_name) == ("Job", "b")
    assert read.scheduling_gates == ("wait",)
    assert not read.requeue
    assert not read.preemptible


def test_a_bad_quantity_is_an_error_and_not_zero() -> None:
    with pytest.raises(QuantityError):
        pod("x", cpu="lots")
