from typing import Any

import pytest

from cotenant_common.model import labels
from cotenant_common.model.quota.spec import parse_quota
from cotenant_common.testing.builders import pod_manifest, quota_manifest
from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.demand import Demand
from cotenant_gateway.core.plan import Applying, Plan, plan
from cotenant_gateway.core.records import Spec
from cotenant_gateway.core.validate.quota import Charged
from cotenant_gateway.core.yaml_source import from_data, load
from cotenant_gateway.testing import controller, leaving, running


def apply(*manifests: dict[str, Any], known: dict[str, Spec] | None = None, runtime: str = "process") -> Plan:
    specs = known or {}
    context = Applying(specs.get, Catalog(specs.values()), 5, "s", runtime)
    return plan(from_data(manifests), context)


def stored(*plans: Plan) -> dict[str, Spec]:
    return {change.spec.key: change.spec for one in plans for change in one.changes}


def faults(planned: Plan) -> list[str]:
    return [str(fault) for fault in planned.faults]


def actions(planned: Plan) -> list[str]:
    return [item.action for item in planned.items]


PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {"selector": {"matchLabels": {"b": "1"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "gold"},
    "value": 9100,
}


def test_one_bad_document_changes_nothing():
    planned = apply(pod_manifest("good"), pod_manifest("bad", cpu="x"))
    assert planned.changes == []
    assert faults(planned) == [
        "document 2, spec.containers[0].resources.requests.cpu: expected a quantity such as 500m, 2 or 1.5Gi, got 'x'"
    ]


def test_errors_name_document_line_and_field():
    text = "kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    comand: [x]\n"
    planned = plan(load(text), Applying({}.get, Catalog(), 0, "s"))
    assert faults(planned)[0].startswith("document 1, line 7, spec.containers[0].comand: unknown field")


def test_applying_again_changes_nothing():
    first = apply(pod_manifest("a", cpu="1"))
    assert actions(first) == ["created"]
    again = apply(pod_manifest("a", cpu="1"), known=stored(first))
    assert (actions(again), again.changes) == (["unchanged"], [])
    assert again.items[0].uid == first.items[0].uid


def test_a_profile_applied_later_does_not_disturb_what_runs():
    pod = pod_manifest("a", cpu="1", extra_labels={"b": "1"})
    known = stored(apply(pod))
    known |= stored(apply(PROFILE, known=known))
    assert actions(apply(pod, known=known)) == ["unchanged"]


def test_profiles_and_classes_of_the_same_request_count():
    planned = apply(pod_manifest("a", cpu="1", extra_labels={"b": "1"}), PROFILE)
    assert faults(planned) == []
    body = planned.changes[0].spec.body
    assert body["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1000"}
    assert body["priority"] == 5000
    assert apply(pod_manifest("p", spec={"priorityClassName": "gold"}), CLASS).changes[0].spec.body["priority"] == 9100


def test_an_unknown_priority_class_lists_those_there_are():
    (fault,) = faults(apply(pod_manifest("a", spec={"priorityClassName": "gold"})))
    assert "'gold' does not exist; there are koord-batch" in fault


def test_a_priority_that_is_not_the_class():
    (fault,) = faults(apply(pod_manifest("a", spec={"priorityClassName": "koord-prod", "priority": 1})))
    assert fault.startswith("document 1, spec.priority: 1 is not the 9000")


def test_a_global_default_class_is_used():
    known = stored(apply({**CLASS, "globalDefault": True}))
    assert apply(pod_manifest("a"), known=known).changes[0].spec.body["priorityClassName"] == "gold"


def test_forbidden_combinations_are_refused_after_profiles():
    (fault,) = faults(apply(pod_manifest("a", qos="BE", band="prod")))
    assert "QoS BE cannot have priority koord-prod" in fault


def test_batch_work_that_asks_for_native_cpu_is_warned():
    item = apply(pod_manifest("a", qos="BE", priority=5500, requests={"cpu": "1"})).items[0]
    assert any("charged like a service" in str(problem) for problem in item.report.warnings)
    clean = apply(pod_manifest("a", qos="BE", band="batch", cpu="1", memory="1Gi")).items[0]
    assert not any("charged" in str(problem) for problem in clean.report.warnings)


def test_a_pod_changes_in_its_labels_only():
    known = stored(apply(pod_manifest("a", qos="LS")))
    assert actions(apply(pod_manifest("a", qos="LS", extra_labels={"x": "1"}), known=known)) == ["configured"]
    (fault,) = faults(apply(pod_manifest("a", qos="LS", cpu="2"), known=known))
    assert "a pod cannot change once it exists" in fault
    (fault,) = faults(apply(pod_manifest("a"), known=known))
    assert labels.QOS_CLASS in fault


def test_what_is_being_deleted_cannot_be_applied():
    pod = leaving(running("a")).spec
    assert "is being deleted" in faults(apply(pod_manifest("a"), known={pod.key: pod}))[0]


def test_the_same_object_twice_in_one_request():
    assert "Pod/default/a is already document 1" in faults(apply(pod_manifest("a"), pod_manifest("a")))[0]


def test_templates_are_admitted_when_the_controller_is_applied():
    owner = dict(controller("Deployment", selector={"matchLabels": {"app": "w"}}).manifest)
    owner["spec"]["template"]["spec"]["priorityClassName"] = "gold"
    (fault,) = faults(apply(owner))
    assert fault.startswith("document 1, spec.template.spec.priorityClassName: the PriorityClass 'gold'")


def test_a_job_keeps_its_template_and_its_status():
    spec = controller("Job", status={"failed": 1}, completions=3)
    known = {spec.key: spec}
    wanted = {**spec.manifest, "spec": {**spec.body, "parallelism": 2}}
    wanted.pop("status")
    planned = apply(wanted, known=known)
    assert actions(planned) == ["configured"]
    assert planned.changes[0].spec.manifest["status"] == {"failed": 1}
    (fault,) = faults(apply({**wanted, "spec": {**spec.body, "completions": 4}}, known=known))
    assert fault.startswith("document 1, spec.completions: cannot change")


def test_quotas_are_checked_beside_each_other():
    parent = quota_manifest("p", minimum={"cpu": "4"}, maximum={"cpu": "8"}, is_parent=True)
    child = quota_manifest("c", minimum={"cpu": "3"}, maximum={"cpu": "8"}, parent="p")
    assert faults(apply(parent, child)) == []
    second = quota_manifest("d", minimum={"cpu": "3"}, maximum={"cpu": "8"}, parent="p")
    assert "pass the min of p: 6 > 4" in faults(apply(parent, child, second))[0]
    assert "does not exist" in faults(apply(child))[0]
    plain = quota_manifest("p", minimum={"cpu": "4"}, maximum={"cpu": "8"})
    assert any("is no parent" in fault for fault in faults(apply(plain, child)))
    assert "is a parent; name one of its children" in faults(apply(parent, pod_manifest("a", quota="p")))[0]


def test_a_bad_slo_config_is_refused_before_it_is_stored():
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {"colocation-config": "{"},
    }
    assert faults(apply(manifest))[0].startswith("document 1, data.colocation-config: not valid JSON")
    other = {**manifest, "metadata": {"name": "slo-controller-config", "namespace": "default"}}
    assert faults(apply(other)) == []


def test_simulated_pods_need_no_command():
    manifest = pod_manifest("a", command=())
    assert faults(apply(manifest)) != []
    assert faults(apply(manifest, runtime="simulated")) == []


def test_a_name_used_again_is_a_new_identity():
    first = plan(from_data([pod_manifest("a")]), Applying({}.get, Catalog(), 0, "s/1"))
    second = plan(from_data([pod_manifest("a")]), Applying({}.get, Catalog(), 0, "s/2"))
    assert first.items[0].uid != second.items[0].uid


def test_what_get_shows_can_be_applied_again():
    from cotenant_gateway.core.views import object_view

    known = stored(apply(pod_manifest("a", cpu="1", extra_labels={"b": "1"}), PROFILE))
    shown = object_view(next(spec for spec in known.values() if spec.kind == "Pod"), {"phase": "Running"})
    again = apply(shown, known=known)
    assert faults(again) == []
    assert again.items[0].report.warnings != []


def quota(name: str, low: str, high: str = "8", **fields: Any) -> dict[str, Any]:
    return quota_manifest(name, minimum={"cpu": low}, maximum={"cpu": high}, **fields)


@pytest.mark.parametrize(
    ("manifests", "field", "message"),
    [
        ([quota("p", "4", is_parent=True), quota("c", "3", parent="p"), quota("d", "3", parent="p")], "spec.min.cpu",
         "the mins of the children of p pass the min of p: 6 > 4"),
        ([quota("c", "1", parent="none")], labels.QUOTA_PARENT, "parent quota none does not exist"),
        ([quota("p", "4"), quota("c", "1", parent="p")], labels.QUOTA_PARENT, "is no parent"),
        ([quota("a", "1", parent="b", is_parent=True), quota("b", "1", parent="a", is_parent=True)],
         labels.QUOTA_PARENT, "its own ancestor"),
        ([quota("p", "4", is_parent=True), quota_manifest("c", maximum={"memory": "1"}, parent="p")], "spec.max",
         "max must name the resources of parent p"),
        ([quota("p", "4", is_parent=True, tree="t"), quota("c", "1", parent="p", tree="u")], labels.QUOTA_TREE_ID,
         "differs from tree"),
        ([quota("a", "1", annotations={labels.QUOTA_NAMESPACES: '["x"]'}),
          quota("b", "1", annotations={labels.QUOTA_NAMESPACES: '["x"]'})], labels.QUOTA_NAMESPACES, "bound to quota"),
        ([quota("a", "1", annotations={labels.QUOTA_SHARED_WEIGHT: '{"cpu": "-1"}'})], labels.QUOTA_SHARED_WEIGHT,
         "not negative"),
        ([quota("a", "1", annotations={labels.QUOTA_NAMESPACES: "x"})], labels.QUOTA_NAMESPACES, "expected a list"),
        ([quota("a", "12")], "spec.min.cpu", "min must not pass max: 12 > 8"),
        ([quota("koordinator-root-quota", "1")], "metadata.name", "built in"),
        ([quota("koordinator-system-quota", "1")], "metadata.name", "built in"),
        ([quota("a", "1"), quota("a", "1", namespace="other")], "metadata.name", "has a quota a already"),
        ([quota("p", "1", is_parent=True, namespace="ml") | {}, quota("p2", "1", is_parent=True,
          annotations={labels.QUOTA_NAMESPACES: '["ml"]'}), pod_manifest("a", namespace="ml")], labels.QUOTA_NAME,
         "namespace ml is bound to it"),
    ],
)  # fmt: skip
def test_quota_rules_name_the_field(manifests: list[dict[str, Any]], field: str, message: str):
    found = [fault for fault in apply(*manifests).faults if message in fault.message]
    assert found
    assert field in found[0].field


def test_a_quota_may_limit_what_its_pods_ask_for():
    limited = quota("a", "1", annotations={labels.QUOTA_ADMISSION: '{"cpu": "3"}'})
    pods = [pod_manifest(f"p{n}", cpu=1, quota="a") for n in range(4)]
    assert apply(limited, *pods[:3]).faults == []
    (fault,) = apply(limited, *pods).faults
    assert (fault.document, fault.field) == (5, "spec.containers")
    assert fault.message == "quota a lets its pods ask for 3 cpu: 3 are asked for, and this one wants 1 more"


def test_what_is_asked_for_already_counts_in_what_the_quota_limits():
    limited = quota("a", "1", annotations={labels.QUOTA_ADMISSION: '{"cpu": "3"}'})
    spec, free = parse_quota(limited)[0], parse_quota(quota("b", "1"))[0]
    assert spec is not None
    assert free is not None
    demand = Demand(lambda name: {"cpu": 3000} if name == "a" else {})
    assert demand.take(free, {"cpu": 9000}) is None
    assert demand.take(spec, {"memory": 1}) is None
    assert demand.take(spec, {"cpu": 1}) is not None


def test_a_pod_that_is_there_already_is_not_let_in_again():
    limited = quota("a", "1", annotations={labels.QUOTA_ADMISSION: '{"cpu": "1"}'})
    pod = pod_manifest("p", cpu=1, quota="a")
    known = stored(apply(limited, pod))
    relabelled = {**pod, "metadata": {**pod["metadata"], "annotations": {"x": "y"}}}
    context = Applying(known.get, Catalog(known.values()), 5, "s", demand=Demand(lambda _name: {"cpu": 1000}))
    assert actions(plan(from_data([relabelled]), context)) == ["configured"]


def test_a_quota_that_is_used_keeps_its_tree_its_kind_and_its_strict_max():
    strict = {"quota.scheduling.koordinator.sh/max-strict-check-resource-keys": '["cpu"]'}
    known = stored(apply(quota("q", "1", tree="t")))
    context = Applying(known.get, Catalog(known.values()), 5, "s", charged=lambda _: Charged({"cpu": 6000}, 2))

    def refused(manifest: dict[str, Any]) -> str:
        return str(plan(from_data([manifest]), context).faults[0])

    assert "the tree cannot change: t → u" in refused(quota("q", "1", tree="u"))
    assert "the tree cannot change: t → default" in refused(quota("q", "1"))
    assert "2 pods are charged to quota q; a parent holds none" in refused(quota("q", "1", tree="t", is_parent=True))
    assert "must not be below used: 5 < 6" in refused(quota("q", "1", "5", tree="t", annotations=strict))
    assert plan(from_data([quota("q", "2", "5", tree="t")]), context).faults == []


def test_a_parent_with_children_stays_a_parent_and_never_guarantees_less_than_they_have():
    known = stored(apply(quota("p", "4", is_parent=True), quota("c", "3", parent="p")))
    assert "has children: c" in faults(apply(quota("p", "4"), known=known))[0]
    assert (
        "the mins of its children pass the min of p: 3 > 2"
        in faults(apply(quota("p", "2", is_parent=True), known=known))[0]
    )
