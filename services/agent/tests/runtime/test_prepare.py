import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from cotenant_agent.runtime import ContainerLaunch, EnvVar, LaunchError, LogLimits, Rlimit
from cotenant_agent.runtime.environment import declared_env, expand
from cotenant_agent.runtime.identity import NOGROUP_GID, UserSource, resolve
from cotenant_agent.runtime.prepare import prepare
from cotenant_agent.runtime.testing import pod, sh

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="running as another user needs root")
needs_no_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may become anyone")


def refusal(container: ContainerLaunch, **pod_fields: Any) -> tuple[str, str]:
    with pytest.raises(LaunchError) as caught:
        prepare(pod(container, **pod_fields), container, None, {})
    return caught.value.field, caught.value.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_expansion_is_that_of_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_variables_see_those_above_them_only() -> None:
    container = ContainerLaunch("main", env=(EnvVar("B", "$(A)"), EnvVar("A", "1"), EnvVar("C", "$(A)")))
    assert declared_env(pod(container), container) == {"B": "$(A)", "A": "1", "C": "1"}


def test_downward_api_fields() -> None:
    paths = ["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP"]
    paths += ["metadata.labels['app']", "metadata.annotations['none']"]
    container = ContainerLaunch("main", env=tuple(EnvVar(f"V{i}", field_path=p) for i, p in enumerate(paths)))
    found = declared_env(pod(container, labels={"app": "web-app"}), container)
    assert list(found.values()) == ["web", "default", "uid-1", "node-1", "127.0.0.1", "web-app", ""]


def test_unknown_field_path_names_the_variable() -> None:
    field, reason = refusal(sh("true", env=(EnvVar("A", field_path="status.nonsense"),)))
    assert field == "env[0].valueFrom.fieldRef"
    assert "status.nonsense" in reason


def test_arguments_are_expanded_and_appended() -> None:
    container = ContainerLaunch("main", command=("/bin/echo", "$(A)"), args=("$$(A)",), env=(EnvVar("A", "1"),))
    assert prepare(pod(container), container, None, {}).process["argv"] == ["/bin/echo", "1", "$(A)"]


@pytest.mark.parametrize("container", [ContainerLaunch("main"), ContainerLaunch("main", args=("x",))])
def test_a_launch_without_command_is_refused(container: ContainerLaunch) -> None:
    field, reason = refusal(container)
    assert field == "command"
    assert "images" in reason


def test_command_not_found_names_the_path_searched() -> None:
    field, reason = refusal(ContainerLaunch("main", command=("nope",), env=(EnvVar("PATH", "/one:/two"),)))
    assert (field, reason) == ("command", "'nope' not found; searched PATH /one:/two")


def test_command_that_is_not_executable_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch(mode=0o644)
    assert refusal(ContainerLaunch("main", command=(str(plain),)))[1].endswith("is not executable (mode 0644)")
    assert "directory" in refusal(ContainerLaunch("main", command=(str(tmp_path),)))[1]


def test_relative_command_is_found_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "tool").touch(mode=0o755)
    container = ContainerLaunch("main", command=("./tool",), working_dir=str(tmp_path))
    assert Path(prepare(pod(container), container, None, {}).process["path"]) == tmp_path / "tool"


@pytest.mark.parametrize(
    ("container", "field"),
    [
        (sh("true", working_dir="/no/such/place"), "workingDir"),
        (sh("true", working_dir="relative"), "workingDir"),
        (sh("true", run_as_user="no-such-user"), "runAsUser"),
        (sh("true", run_as_user=-1), "runAsUser"),
        (sh("true", run_as_group="no-such-group"), "runAsGroup"),
        (sh("true", rlimits=(Rlimit("nonsense", 1, 1),)), "rlimits"),
        (sh("true", oom_score_adj=2000), "oomScoreAdj"),
        (sh("true", log=LogLimits(max_bytes=1)), "log"),
        (sh("true", cgroup_procs=("/no/cgroup.procs",)), "cgroup"),
        (sh("true", env=(EnvVar("A=B"),)), "env[0].name"),
        (sh("echo \0"), "command"),
        (ContainerLaunch("../up", command=("true",)), "containers[].name"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_field(container: ContainerLaunch, field: str) -> None:
    assert refusal(container)[0] == field


def test_uid_that_climbs_is_refused() -> None:
    assert refusal(sh("true"), uid="..")[0] == "metadata.uid"


@needs_no_root
def test_another_user_needs_root() -> None:
    field, reason = refusal(sh("true", run_as_user=os.geteuid() + 1))
    assert field == "runAsUser"
    assert "needs root" in reason


@needs_root
def test_without_runasuser_the_sudo_caller_comes_before_root() -> None:
    nobody = pwd.getpwnam("nobody")
    found = resolve(sh("true"), None, {"SUDO_UID": str(nobody.pw_uid)})
    assert (found.uid, found.gid, found.source) == (nobody.pw_uid, nobody.pw_gid, UserSource.SUDO)
    assert resolve(sh("true"), "daemon", {"SUDO_UID": "0"}).source is UserSource.SETTING
    assert resolve(sh("true"), None, {}).source is UserSource.AGENT


@needs_root
def test_number_without_account_gets_no_group_of_the_machine() -> None:
    found = resolve(sh("true", run_as_user=54321, supplemental_groups=(7,)), None, {})
    assert (found.gid, found.groups, found.home) == (NOGROUP_GID, (NOGROUP_GID, 7), "/")


def test_a_container_that_must_not_be_root_is_refused_as_root() -> None:
    assert refusal(sh("true", run_as_user=0, run_as_non_root=True))[0] == "runAsNonRoot"
