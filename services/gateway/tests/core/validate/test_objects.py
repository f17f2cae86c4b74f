from typing import Any

import pytest

from cotenant_common.testing.builders import node_manifest, pod_manifest, quota_manifest
from cotenant_gateway.core.validate.kinds import KINDS, find_kind
from cotenant_gateway.core.validate.meta import parse_selector, selector_matches
from cotenant_gateway.core.validate.objects import check_classes, check_kind, check_object
from cotenant_gateway.core.validate.schema import MAX_ERRORS, Decision, Report
from cotenant_gateway.core.validate.table import fields_markdown


def check(manifest: dict[str, Any], runtime: str = "process") -> Report:
    report = Report()
    kind = check_kind(manifest, report)
    if kind is not None:
        check_object(kind, manifest, report, runtime)
    return report


def errors(manifest: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check(manifest).errors]


def warnings(manifest: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check(manifest).warnings]


def pod(**container: Any) -> dict[str, Any]:
    manifest = pod_manifest("a")
    manifest["spec"]["containers"][0] = {"name": "main", "command": ["sleep", "9"], **container}
    return manifest


def pod_with(**spec: Any) -> dict[str, Any]:
    manifest = pod()
    manifest["spec"] |= spec
    return manifest


def test_a_plain_pod_is_clean():
    report = check(pod(resources={"requests": {"cpu": "500m", "memory": "64Mi"}}))
    assert (report.errors, report.warnings) == ([], [])


def test_an_unknown_field_is_named_with_its_path_and_a_guess():
    assert errors(pod(comand=["x"])) == ["spec.containers[0].comand: unknown field; did you mean 'command'?"]


def test_an_image_alone_cannot_run():
    manifest = pod(image="nginx")
    del manifest["spec"]["containers"][0]["command"]
    (error,) = errors(manifest)
    assert error.startswith("spec.containers[0].command: required: no command")
    assert check(manifest, runtime="simulated").errors == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("image", "nginx"), ("imagePullPolicy", "Always"), ("terminationMessagePath", "/x")],
)
def test_what_changes_nothing_here_is_accepted_with_a_warning(field, value):
    manifest = pod(**{field: value})
    assert errors(manifest) == []
    assert warnings(manifest)[0].startswith(f"spec.containers[0].{field}: ignored: ")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, "spec.volumes"),
        ({"initContainers": [{"name": "i"}]}, "spec.initContainers"),
        ({"nodeName": "n1"}, "spec.nodeName"),
        ({"activeDeadlineSeconds": 5}, "spec.activeDeadlineSeconds"),
        ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, "spec.securityContext.sysctls"),
    ],
)
def test_what_cannot_be_honoured_is_refused(spec, path):
    (error,) = errors(pod_with(**spec))
    assert error.startswith(f"{path}: not supported: ")


def test_privileged_is_refused_and_its_absence_is_not():
    assert errors(pod(securityContext={"privileged": False})) == []
    assert "processes never get more rights" in errors(pod(securityContext={"privileged": True}))[0]


def test_empty_lists_of_refused_fields_ask_for_nothing():
    assert errors(pod_with(volumes=[], initContainers=[])) == []


def test_a_flag_that_has_one_value_here_warns_about_the_other():
    assert warnings(pod_with(hostNetwork=True)) == []
    assert warnings(pod_with(hostNetwork=False)) == ["spec.hostNetwork: ignored: pods share the machine's network"]


@pytest.mark.parametrize(
    ("resources", "part"),
    [
        ({"requests": {"cpu": "1.5.0"}}, "requests.cpu: expected a quantity"),
        ({"requests": {"cpu": "-1"}}, "requests.cpu: expected a quantity that is not negative"),
        ({"requests": {"cpu": True}}, "requests.cpu: expected a quantity"),
        ({"requests": {"memroy": "1Gi"}}, "requests.memroy: unknown resource; did you mean 'memory'?"),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "requests.cpu: the request 2 is more than the limit 1"),
        ({"limits": {"cpu": "0"}}, "limits.cpu: a limit of 0"),
    ],
)
def test_quantities_are_checked_in_place(resources, part):
    (error,) = errors(pod(resources=resources))
    assert f"spec.containers[0].resources.{part}" in error


def test_milli_bytes_of_memory_are_legal_and_almost_surely_a_mistake():
    manifest = pod(resources={"requests": {"memory": "256m"}})
    assert errors(manifest) == []
    assert "256m of memory is 0.256 bytes" in warnings(manifest)[0]


def test_memory_without_a_unit_is_suspicious():
    assert "less than 1 KiB" in warnings(pod(resources={"limits": {"memory": 512}}))[0]


@pytest.mark.parametrize("name", ["Web", "a_b", "-a", "a..b", "x" * 254, ""])
def test_names_follow_rfc_1123(name):
    manifest = pod()
    manifest["metadata"]["name"] = name
    assert any(error.startswith("metadata.name") for error in errors(manifest))


def test_a_number_as_label_value_asks_for_quotes():
    manifest = pod()
    manifest["metadata"]["labels"] = {"version": 2}
    assert errors(manifest) == [
        "metadata.labels.version: expected a label value of at most 63 letters, digits, '-', '_' and '.', that begins "
        'and ends with a letter or digit, got 2; quote it: "2"'
    ]


def test_keys_with_dots_are_shown_in_brackets():
    manifest = pod()
    manifest["metadata"]["labels"] = {"app.kubernetes.io/name": "-"}
    assert errors(manifest)[0].startswith("metadata.labels['app.kubernetes.io/name']: ")


def test_two_containers_of_one_name_and_one_host_port():
    container = {"name": "c", "command": ["x"], "ports": [{"hostPort": 80}]}
    found = errors(pod_with(containers=[container, dict(container)]))
    assert found[0] == "spec.containers[1].name: 'c' is already the name of item 0"


def test_kinds_that_nothing_acts_on_are_refused_with_what_is_supported():
    (error,) = errors({"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {}})
    assert "nothing acts on it yet" in error
    assert "ClusterColocationProfile, ConfigMap, Deployment" in error


def test_a_wrong_api_version_says_which_is_expected():
    manifest = pod() | {"apiVersion": "v2"}
    assert errors(manifest) == ["apiVersion: expected v1 for Pod, got 'v2'"]


def test_deployment_and_job_rules():
    template = {"metadata": {"labels": {"app": "w"}}, "spec": pod()["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {"selector": {"matchLabels": {"app": "other"}}, "template": template},
    }
    assert errors(deployment) == ["spec.template.metadata.labels: the selector does not match the template's labels"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    assert "need Never or OnFailure" in errors(job)[0]


def test_budget_needs_exactly_one_bound():
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {}}
    assert errors(budget) == ["spec: expected exactly one of minAvailable and maxUnavailable, got 0"]


def test_quota_vectors():
    assert "expected a quantity that is not negative" in errors(quota_manifest("q", maximum={"cpu": "-1"}))[0]
    assert "spec.max has no memory" in errors(quota_manifest("q", minimum={"memory": "1"}, maximum={"cpu": "1"}))[0]
    assert "min must not pass max" in errors(quota_manifest("q", minimum={"cpu": "12"}, maximum={"cpu": "10"}))[0]
    assert errors(quota_manifest("q", minimum={"cpu": "4"}, maximum={"cpu": "4"})) == []


def test_simulated_nodes_may_state_their_size():
    assert errors(node_manifest("n1")) == []


@pytest.mark.parametrize(
    ("qos", "band", "resources", "good"),
    [
        ("BE", "batch", {}, True),
        ("LSR", "prod", {"cpu": "2"}, True),
        ("BE", "prod", {}, False),
        ("LSR", "batch", {}, False),
        ("LSR", "mid", {}, False),
        ("LSR", "free", {}, False),
        (None, "batch", {"kubernetes.io/batch-cpu": 1000}, False),
        ("LSR", "prod", {"cpu": "1500m"}, False),
        ("LSE", "prod", {}, False),
        ("BEE", "batch", {}, False),
    ],
)
def test_qos_and_priority_combinations(qos, band, resources, good):
    report = Report()
    check_classes(pod_manifest("a", qos=qos, band=band, requests=resources), report, ())
    assert (report.errors == []) is good


def test_every_decision_that_is_not_use_has_a_reason():
    text = fields_markdown()
    for line in text.splitlines():
        if f"| {Decision.IGNORED} |" in line or f"| {Decision.REFUSED} |" in line:
            assert not line.endswith("| – |"), line


def test_kinds_are_found_as_people_write_them():
    assert find_kind("pods") is find_kind("pod") is KINDS["Pod"]
    assert find_kind("priorityclasses") is KINDS["PriorityClass"]
    assert find_kind("unicorn") is None


def test_selectors_as_text():
    labels = {"app": "web", "tier": "a"}
    assert selector_matches(parse_selector("app=web,tier!=b,!old,tier"), labels)
    assert not selector_matches(parse_selector("app==db"), labels)
    with pytest.raises(ValueError, match="expected key=value"):
        parse_selector("a=b=c d")


def test_a_line_break_ends_no_label_name_or_variable():
    manifest = pod_manifest("a", extra_labels={"k": "v\n"})
    assert "label value" in errors(manifest)[0]
    assert "a key of letters" in errors(pod_manifest("a", extra_labels={"k\n": "v"}))[0]
    assert "\n" not in errors(pod_manifest("a", extra_labels={"k\n": "v"}))[0]
    assert "lower-case" in errors(pod(name="c\n"))[0]
    assert "without '='" in errors(pod(env=[{"name": "A\n", "value": "1"}, {"name": "A=", "value": "1"}]))[-1]


def test_half_a_surrogate_pair_is_no_text():
    assert "expected" in errors(pod_manifest("a", annotations={"x": "\ud800"}))[0]


def test_amounts_that_no_machine_has_are_refused():
    assert "expected at most" in errors(pod(resources={"requests": {"cpu": "1e30"}}))[0]
    assert errors(quota_manifest("q", maximum={"cpu": "4", "memory": str((2**63 - 1) // 5)})) == []


def test_only_the_first_hundred_faults_are_listed():
    manifest = pod_manifest("a")
    manifest["spec"] |= {f"x{number}": 1 for number in range(10_000)}
    assert len(errors(manifest)) <= MAX_ERRORS + 1


def test_topology_spread_is_used_and_a_preference_is_called_one():
    def spread(**fields: Any) -> dict[str, Any]:
        base = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        return pod_with(topologySpreadConstraints=[{**base, **fields}])

    assert errors(spread(labelSelector={"matchLabels": {"a": "b"}}, minDomains=2)) == []
    assert not any("topologySpread" in warning for warning in warnings(spread()))
    assert any("is a preference" in warning for warning in warnings(spread(whenUnsatisfiable="ScheduleAnyway")))
    assert "at least" in errors(spread(maxSkew=0))[0] or "expected 1" in errors(spread(maxSkew=0))[0]
    assert "nodeTaintsPolicy" in errors(spread(nodeTaintsPolicy="Honor"))[0]
    assert "not supported" in errors(spread(matchLabelKeys=["a"]))[0]


@pytest.mark.parametrize("port", [{"a": 1}, [], True, 0, 70_000, ""])
def test_a_probe_needs_a_port(port: Any):
    assert "port" in errors(pod(readinessProbe={"tcpSocket": {"port": port}}))[0]


@pytest.mark.parametrize(
    ("operator", "values"),
    [("In", []), ("NotIn", None), ("Exists", ["a"]), ("Gt", ["a"]), ("Gt", ["1", "2"]), ("DoesNotExist", ["x"])],
)
def test_a_selector_expression_has_the_values_its_operator_takes(operator: str, values: Any):
    term = {
        "matchExpressions": [{"key": "k", "operator": operator, **({"values": values} if values is not None else {})}]
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert "values" in errors(pod_with(affinity={"nodeAffinity": required}))[0]
