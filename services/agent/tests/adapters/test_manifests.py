import pytest

from cotenant_agent.adapters.manifests import Confinement, LatencyTarget, read_plan
from cotenant_agent.runtime import ExecAction, HttpGetAction, LaunchError, RestartPolicy
from cotenant_common.model import labels
from cotenant_common.testing.builders import pod_manifest, spec_record


def plan(**fields):
    return read_plan(spec_record(pod_manifest("web", **fields)), "n1")


def container(**fields):
    return {"containers": [{"name": "main", "command": ["run"], **fields}]}


def test_fields_of_the_container_win_over_those_of_the_pod():
    spec = container(
        args=["--fast"],
        workingDir="/srv",
        securityContext={"runAsUser": 7},
        env=[{"name": "A", "value": 1}, {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )
    spec["securityContext"] = {"runAsUser": 1, "runAsGroup": 2, "supplementalGroups": [5]}
    found = plan(spec=spec).containers[0]
    assert (found.command, found.args, found.working_dir) == (("run",), ("--fast",), "/srv")
    assert (found.run_as_user, found.run_as_group, found.supplemental_groups) == (7, 2, (5,))
    assert [(e.name, e.value, e.field_path) for e in found.env] == [("A", "1", None), ("ME", "", "metadata.name")]


def test_probes_find_named_ports_and_take_kubernetes_defaults():
    spec = container(
        ports=[{"name": "http", "containerPort": 8080}],
        readinessProbe={"httpGet": {"port": "http", "path": "/ok"}, "periodSeconds": 2},
        livenessProbe={"exec": {"command": ["true"]}},
    )
    probes = plan(spec=spec).probes["main"]
    assert probes.readiness is not None
    assert isinstance(probes.readiness.action, HttpGetAction)
    assert (probes.readiness.action.port, probes.readiness.period_ms, probes.readiness.failure_threshold) == (
        8080,
        2_000,
        3,
    )
    assert probes.liveness is not None
    assert probes.liveness.action == ExecAction(("true",))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"initContainers": [{}]}, "initContainers"),
        ({"containers": []}, "containers"),
        ({"restartPolicy": "Sometimes"}, "restartPolicy"),
        (container(readinessProbe={"httpGet": {"port": "nope"}}), "readinessProbe"),
        (container(readinessProbe={"grpc": {"port": 1}}), "readinessProbe"),
        (container(env=[{"name": "S", "valueFrom": {"secretKeyRef": {}}}]), "env"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_field(spec, field):
    with pytest.raises(LaunchError) as refused:
        plan(spec=spec)
    assert refused.value.field == field


def test_an_image_is_ignored_aloud():
    assert plan(spec=container(image="nginx")).warnings == (
        "spec.containers[0].image 'nginx' is ignored: this node runs processes",
    )
    assert plan().warnings == ()


def test_policies_default_as_in_kubernetes():
    assert plan().restart is RestartPolicy.ALWAYS


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ('{"percentile": 99.9, "milliseconds": 5}', LatencyTarget(99.9, 5.0)),
        ('{"milliseconds": 5}', LatencyTarget(99.0, 5.0)),
        ("{", None),
        ("[]", None),
        ('{"percentile": 99}', None),
    ],
)
def test_a_target_is_read_or_there_is_none(text, target):
    assert plan(annotations={labels.LATENCY_SLO: text}).target == target


def test_only_best_effort_is_offered_to_the_oom_killer_first():
    how = Confinement(("/sys/x/cgroup.procs",))
    be = plan(qos="BE", band="batch", cpu="1").launch(how).containers[0]
    ls = plan(qos="LS", cpu="1").launch(how).containers[0]
    assert (be.oom_score_adj, ls.oom_score_adj) == (1_000, None)
    assert be.cgroup_procs == ("/sys/x/cgroup.procs",)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [{"command": ["a"]}]}, ""),
        ({"containers": [{"name": "a", "readinessProbe": {"tcpSocket": {"port": 70_000}}}]}, "readinessProbe"),
        ({"terminationGracePeriodSeconds": "soon"}, ""),
    ],
)
def test_what_cannot_be_read_is_refused_and_never_raises_anything_else(spec, field):
    with pytest.raises(LaunchError) as caught:
        read_plan(spec_record(pod_manifest("bad", spec=spec)), "n1")
    assert caught.value.field == field


def test_a_probe_may_have_a_grace_period_of_its_own():
    probe = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 3}
    containers = [{"name": "main", "command": ["true"], "livenessProbe": probe, "startupProbe": {**probe}}]
    del containers[0]["startupProbe"]["terminationGracePeriodSeconds"]
    probes = read_plan(spec_record(pod_manifest("web", spec={"containers": containers})), "n1").probes["main"]
    assert (probes.restart_grace_ms(started=True), probes.restart_grace_ms(started=False)) == (3_000, None)
