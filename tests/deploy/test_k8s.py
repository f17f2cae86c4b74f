"""The manifests of deploy/k8s: valid for Kubernetes, confined, and in words that the services understand."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from cotenant.bus_users import write_users
from cotenant.stack.services import SERVICES
from cotenant.testing import load_program
from cotenant_common.contracts.server_config import Login
from cotenant_common.runtime.settings import ServiceSettings
from cotenant_common.testing.nats_server import find_nats_server

HERE = Path(__file__).parent
K8S = HERE.parents[1] / "deploy" / "k8s"
OVERLAYS = ("small", "ha")
VERSIONS = ("1.28", kubernetes_validate.latest_version())
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet")


kustomize = load_program(HERE / "kustomize.py")
bus_secrets = load_program(K8S / "bus_secrets.py")
Resource = dict[str, Any]
Understood = Callable[[str, Mapping[str, str]], ServiceSettings]


@pytest.fixture(params=OVERLAYS)
def resources(request: pytest.FixtureRequest) -> list[Resource]:
    return list(kustomize.build(K8S / "overlays" / request.param))


def of_kind(resources: list[Resource], *kinds: str) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each for each in resources if each["kind"] in kinds}


def pod_of(workload: Resource) -> Resource:
    return dict(workload["spec"]["template"]["spec"])


def containers(workload: Resource) -> list[Resource]:
    pod = pod_of(workload)
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(resources: list[Resource], version: str) -> None:
    for resource in resources:
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found(resources: list[Resource]) -> None:
    broken = {**resources[-1], "spec": {"podSelektor": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_every_service_is_there_once(resources: list[Resource]) -> None:
    assert set(of_kind(resources, *WORKLOADS)) == {f"cotenant-{name}" for name in (*SERVICES, "nats")}
    assert set(of_kind(resources, "DaemonSet")) == {"cotenant-agent"}
    assert len({kustomize.identity(each) for each in resources}) == len(resources)
    assert {each["metadata"]["namespace"] for each in resources if each["kind"] != "Namespace"} == {"cotenant"}


def test_all_but_the_agent_keep_the_restricted_profile(resources: list[Resource]) -> None:
    for name, workload in of_kind(resources, *WORKLOADS).items():
        if name == "cotenant-agent":
            continue
        pod = pod_of(workload)
        assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod), name
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume], name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(workload):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_every_privilege_of_the_agent_has_its_reason() -> None:
    lines = (K8S / "base" / "agent.yaml").read_text().splitlines()
    asked = ("hostPID:", "runAsUser: 0", "privileged:", "mountPath: /sys/fs/cgroup", "mountPath: /var/lib/cotenant")
    for what in (*asked, "priorityClassName:", "tolerations:"):
        (at,) = (number for number, line in enumerate(lines) if what in line)
        before = [line.strip() for line in lines[max(0, at - 3) : at]]
        assert any(line.startswith("#") for line in before), what


def test_nobody_gets_a_token_of_the_api_server(resources: list[Resource]) -> None:
    accounts = of_kind(resources, "ServiceAccount")
    for name, workload in of_kind(resources, *WORKLOADS).items():
        pod = pod_of(workload)
        assert pod["automountServiceAccountToken"] is False
        assert accounts[pod["serviceAccountName"]]["automountServiceAccountToken"] is False, name


def test_every_container_says_what_it_needs_and_every_service_how_it_is(resources: list[Resource]) -> None:
    for name, workload in of_kind(resources, *WORKLOADS).items():
        for container in containers(workload):
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
            assert "memory" in container["resources"]["limits"], name
        (main,) = pod_of(workload)["containers"]
        ports = {port["name"] for port in main["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert main[probe]["httpGet"]["port"] in ports, (name, probe)


def test_images_are_pinned(resources: list[Resource]) -> None:
    images = {each["image"] for workload in of_kind(resources, *WORKLOADS).values() for each in containers(workload)}
    assert not [image for image in images if image.endswith(":latest") or ":" not in image]


def test_selectors_and_budgets_meet_their_pods(resources: list[Resource]) -> None:
    labels = {
        name: workload["spec"]["template"]["metadata"]["labels"]
        for name, workload in of_kind(resources, *WORKLOADS).items()
    }
    for name, workload in of_kind(resources, *WORKLOADS).items():
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
    budgets = of_kind(resources, "PodDisruptionBudget")
    assert set(budgets) == set(labels) - {"cotenant-agent"}
    for name, budget in budgets.items():
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
    for service in of_kind(resources, "Service").values():
        assert [name for name, own in labels.items() if service["spec"]["selector"].items() <= own.items()]


def test_traffic_is_closed_but_for_what_is_named(resources: list[Resource]) -> None:
    policies = of_kind(resources, "NetworkPolicy")
    closed = policies["cotenant-default-deny"]["spec"]
    assert (closed["podSelector"], closed["policyTypes"]) == ({}, ["Ingress", "Egress"])
    opened = {
        port["port"]
        for policy in policies.values()
        for rule in [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]
        for port in rule["ports"]
    }
    assert opened == {53, 4222, 6222, 7070, 9100}


def environment(resources: list[Resource], workload: Resource) -> dict[str, str]:
    """What the main container would see; values from fields are the pod's name."""
    (main,) = pod_of(workload)["containers"]
    maps = of_kind(resources, "ConfigMap")
    found: dict[str, str] = {}
    for source in main.get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]["data"]
    return found | {each["name"]: each.get("value", "a-name") for each in main.get("env", [])}


@pytest.mark.parametrize("service", SERVICES)
def test_services_understand_their_environment(resources: list[Resource], service: str, understood: Understood) -> None:
    workload = of_kind(resources, *WORKLOADS)[f"cotenant-{service}"]
    settings = understood(service, environment(resources, workload))
    count = of_kind(resources, "StatefulSet")["cotenant-nats"]["spec"]["replicas"]
    assert settings.nats_replicas == count
    assert len(settings.nats_servers) in (1, count)


@pytest.mark.skipif(find_nats_server() is None, reason="no nats-server on this machine")
def test_the_server_accepts_its_configuration(resources: list[Resource], tmp_path: Path) -> None:
    write_users(tmp_path / "auth", ["n1"], ["siem"], Login.NKEY)
    config = tmp_path / "nats.conf"
    config.write_text(of_kind(resources, "ConfigMap")["cotenant-nats"]["data"]["nats.conf"])
    checked = subprocess.run(
        [str(find_nats_server()), "-t", "-c", str(config)],
        check=False, capture_output=True, text=True, env={**os.environ, "POD_NAME": "cotenant-nats-0"},
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def mounted_secrets(workload: Resource) -> dict[str, str]:
    """Per secret, where the main container has it."""
    pod = pod_of(workload)
    (main,) = pod["containers"]
    paths = {mount["name"]: mount["mountPath"] for mount in main["volumeMounts"]}
    names = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    return {secret: paths[volume] for volume, secret in names.items() if volume in paths}


def printed(directory: Path, *options: str) -> list[Resource]:
    command = [sys.executable, "-I", "-S", str(K8S / "bus_secrets.py"), str(directory), *options]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert listed["kind"] == "List"
    return list(listed["items"])


def test_each_workload_mounts_a_secret_of_its_own_that_is_made(resources: list[Resource], tmp_path: Path) -> None:
    write_users(tmp_path, ["n1", "n2.internal"], ["siem"], Login.NKEY)
    made = {each["metadata"]["name"]: each for each in printed(tmp_path)}
    for each in made.values():
        kubernetes_validate.validate(each, VERSIONS[-1], strict=True)
    workloads = of_kind(resources, *WORKLOADS)
    mounted = {name: mounted_secrets(workload) for name, workload in workloads.items()}
    assert sorted(secret for each in mounted.values() for secret in each) == sorted(made)
    for service in set(SERVICES) - {"agent"}:
        assert mounted[f"cotenant-{service}"] == {f"cotenant-bus-{service}": "/run/cotenant/bus"}
        environment_ = environment(resources, workloads[f"cotenant-{service}"])
        assert environment_["COTENANT_NATS_USER"] == service
        assert environment_["COTENANT_NATS_NKEY_FILE"] == "/run/cotenant/bus/nkey"
        assert made[f"cotenant-bus-{service}"]["stringData"] == {"nkey": (tmp_path / f"{service}.secret").read_text()}
    assert set(made["cotenant-bus-agents"]["stringData"]) == {"agent-n1.secret", "agent-n2_internal.secret"}
    (agent,) = pod_of(workloads["cotenant-agent"])["containers"]
    assert agent["args"] == ["--logins", mounted["cotenant-agent"]["cotenant-bus-agents"]]
    assert set(made["cotenant-nats-auth"]["stringData"]) == {"auth.conf"}


def test_with_own_logins_no_secret_holds_those_of_other_nodes(tmp_path: Path) -> None:
    write_users(tmp_path, ["n1"], [], Login.NKEY)
    assert "cotenant-bus-agents" not in {each["metadata"]["name"] for each in printed(tmp_path, "--own-login")}
    resources = kustomize.build(K8S / "overlays" / "small")
    kustomize.apply_component(resources, K8S / "components" / "own-login")
    agent = of_kind(resources, "DaemonSet")["cotenant-agent"]
    assert mounted_secrets(agent) == {}
    (volume,) = (each for each in pod_of(agent)["volumes"] if each["name"] == "bus")
    assert volume == {"name": "bus", "hostPath": {"path": "/etc/cotenant/bus", "type": "Directory"}}
    for version in VERSIONS:
        kubernetes_validate.validate(agent, version, strict=True)


def test_a_directory_that_is_not_enough_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bus_secrets.main([str(tmp_path)]) == 3
    assert "auth.conf: cannot be read: No such file" in capsys.readouterr().err
    write_users(tmp_path, [], [], Login.NKEY)
    assert bus_secrets.main([str(tmp_path)]) == 3
    assert "name the nodes with --agents" in capsys.readouterr().err
    write_users(tmp_path, ["n1"], [], Login.PASSWORD)
    assert bus_secrets.main([str(tmp_path)]) == 3
    shown = capsys.readouterr()
    assert "expected the seed of an nkey" in shown.err
    assert shown.out == ""


def test_ha_survives_the_loss_of_any_one_machine() -> None:
    resources = kustomize.build(K8S / "overlays" / "ha")
    workloads = of_kind(resources, "Deployment", "StatefulSet")
    for name, workload in workloads.items():
        assert workload["spec"]["replicas"] == (3 if name == "cotenant-nats" else 2), name
        (spread,) = pod_of(workload)["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"
