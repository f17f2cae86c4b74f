import json

import pytest

from cotenant_common.contracts.messages.state import Binding, OvercommitRecord, PodStatusRecord
from cotenant_common.testing import builders
from cotenant_scheduler.adapters import facts
from cotenant_scheduler.core.charge import charge_of
from cotenant_scheduler.core.decisions import Placement
from cotenant_scheduler.core.estimate import Aggregation, LoadPolicy

GI = 1 << 30


def node(annotations=None, *, spec=None, inventory=True, record=True, sold=None, node_labels=None):
    manifest = builders.node_manifest("n", annotations=annotations, spec=spec, node_labels=node_labels)
    return facts.node_facts(
        "n",
        builders.node_inventory("n", cpu="8", memory="16Gi") if inventory else None,
        builders.spec_record(manifest) if record else None,
        sold,
    )


def test_a_node_is_its_inventory_and_its_object():
    found = node(spec={"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True})
    assert found.registered
    assert found.allocatable["cpu"] == 8000
    assert [str(taint) for taint in found.taints] == ["k:NoSchedule"]
    assert found.unschedulable


@pytest.mark.parametrize(
    ("have", "why"),
    [
        ({"inventory": False}, "no agent has reported what it has"),
        ({"record": False}, "the gateway has not admitted it"),
    ],
)
def test_half_a_node_is_not_registered(have, why):
    found = node(**have)
    assert (found.registered, found.absent) == (False, why)


def test_labels_of_the_object_win():
    assert node(node_labels={"kubernetes.io/hostname": "other"}).labels["kubernetes.io/hostname"] == "other"


def test_a_reservation_is_taken_off():
    reservation = {"resources": {"cpu": "1500m", "memory": "1Gi"}}
    found = node({"node.koordinator.sh/reservation": json.dumps(reservation)})
    assert (found.allocatable["cpu"], found.allocatable["memory"]) == (6500, 15 * GI)
    assert found.load_capacity["cpu"] == 8000


def test_reserved_cpus_outrank_the_number():
    reservation = {"resources": {"cpu": "7"}, "reservedCPUs": "0-1,4"}
    assert node({"node.koordinator.sh/reservation": json.dumps(reservation)}).allocatable["cpu"] == 5000


def test_the_other_policy_takes_nothing_off():
    reservation = {"resources": {"cpu": "7"}, "applyPolicy": "ReservedCPUsOnly"}
    assert node({"node.koordinator.sh/reservation": json.dumps(reservation)}).allocatable["cpu"] == 8000


def test_raw_allocatable_is_what_load_is_judged_against():
    found = node({"node.koordinator.sh/raw-allocatable": '{"cpu": "4"}'})
    assert (found.load_capacity["cpu"], found.load_capacity["memory"]) == (4000, 16 * GI)


def test_own_thresholds():
    own = {"usageThresholds": {"cpu": 50}, "aggregatedUsage": {
        "usageThresholds": {"cpu": 60}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m0s"}}  # fmt: skip
    found = node({"scheduling.koordinator.sh/usage-thresholds": json.dumps(own)}).thresholds
    assert found.plain == {"cpu": 50}
    assert found.aggregation == Aggregation("p95", 300_000)


@pytest.mark.parametrize("text", ["{", "[]", '{"usageThresholds": {"disk": 1}}', '{"unknown": 1}'])
def test_malformed_annotations_are_ignored(text):
    keys = ("scheduling.koordinator.sh/usage-thresholds", "node.koordinator.sh/reservation")
    found = node(dict.fromkeys(keys, text))
    assert found.thresholds is None
    assert found.allocatable["cpu"] == 8000


def test_sold_resources_under_either_name():
    record = OvercommitRecord(node="n", batch={"cpu": 100, "kubernetes.io/batch-memory": 5}, computed_ms=0)
    found = node(sold=record).sold
    assert found.resources == {"kubernetes.io/batch-cpu": 100, "kubernetes.io/batch-memory": 5}


def test_not_sold_keeps_its_reason():
    record = OvercommitRecord(node="n", degraded="MetricsMissing", message="no usage for 90 s", computed_ms=0)
    found = node(sold=record).sold
    assert (found.resources, found.degraded, found.message) == ({}, "MetricsMissing", "no usage for 90 s")


def request(policy=None, **fields):
    record = builders.spec_record(builders.pod_manifest("a", **fields), uid="u")
    return facts.pod_request(record, 7, policy or LoadPolicy())


def test_an_unreadable_pod_is_none():
    assert request(cpu="nonsense") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu": "1", "memory": "1Gi", "quota": "team"},
        {"band": "batch", "qos": "BE", "cpu": "500m"},
        {"band": "prod", "cpu": "2", "limits": {"cpu": "4"}},
        {},
        {"extra_labels": {"quota.scheduling.koordinator.sh/preemptible": "false"}},
    ],
)
def test_a_charge_read_back_from_its_binding_is_the_charge_that_was_made(fields):
    """Otherwise the audit would repair what is right, for ever."""
    pod = request(**fields)
    charge = charge_of(pod, "n", 5)
    binding = facts.binding_of(Placement(pod, charge, 1, 1, "team", ("team",)), 1, 1)
    status = PodStatusRecord(uid="u", namespace="default", name="a", node="n", phase="Running", started_ms=9)
    assert facts.charge_from(binding, pod, None) == charge
    assert facts.charge_from(binding, pod, status) == charge


def test_initialisation_counts_only_where_the_policy_asks_for_it():
    pod = request(LoadPolicy(after_initialized_ms=1000))
    binding = facts.binding_of(Placement(pod, charge_of(pod, "n", 5), 1, 1, None, ()), 1, 1)
    status = PodStatusRecord(uid="u", namespace="default", name="a", node="n", phase="Running", started_ms=9)
    assert facts.charge_from(binding, pod, status).load.initialized_ms == 9


def test_a_binding_without_a_spec_still_holds_its_room():
    binding = Binding(
        uid="u", namespace="default", name="a", node="n", attempt=1, epoch=1, spec_digest="",
        requests={"cpu": 100}, estimate={"cpu": 85, "memory": 1}, quota="team", bound_ms=1,
    )  # fmt: skip
    charge = facts.charge_from(binding, None, None)
    assert charge.requests == {"cpu": 100, "pods": 1}
    assert charge.load.estimate.used == (85, 1)
    assert charge.quota_label == "team"


def test_quotas_and_the_namespaces_they_list():
    manifest = builders.quota_manifest("team", annotations={"quota.scheduling.koordinator.sh/namespaces": '["x", "y"]'})
    (found,) = facts.quota_objects([builders.spec_record(manifest), builders.spec_record(builders.pod_manifest("a"))])
    assert (found.name, found.namespace, found.namespaces) == ("team", "default", ("x", "y"))
