"""docker-compose.yml and the programs beside it, as far as they can be judged without a Docker engine.

`make compose-test` is the real run.
"""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.stack.services import SERVICES
from cotenant.testing import load_program
from cotenant_common.runtime.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
AGENTS = ("node-a", "node-b")
Understood = Callable[[str, Mapping[str, str]], ServiceSettings]
STACK = ("gateway", "scheduler", "quota", "profiler", "descheduler", *AGENTS)


def program(name: str) -> Any:
    return load_program(ROOT / "deploy" / "compose" / f"{name}.py")


def default(value: str) -> str:
    """``${NAME:-default}`` as compose reads it in an empty environment."""
    return value.partition(":-")[2].rstrip("}") if value.startswith("${") else value


def test_every_service_has_a_container() -> None:
    assert set(STACK) | {"nats", "setup"} == {name for name, each in COMPOSE.items() if "profiles" not in each}
    built = {each["build"]["args"]["PACKAGE"] for each in COMPOSE.values() if "build" in each}
    assert built == {*SERVICES, "cotenant"}


def test_only_the_agents_have_rights_and_nobody_is_privileged() -> None:
    for name, each in COMPOSE.items():
        assert not each.get("privileged"), name
        if name in AGENTS:
            continue
        assert each["cap_drop"] == ["ALL"], name
        assert not {"pid", "cgroup"} & set(each), name
        assert name == "setup" or "cap_add" not in each, name


def test_what_is_published_is_published_on_loopback() -> None:
    ports = {name: each["ports"] for name, each in COMPOSE.items() if "ports" in each}
    assert set(ports) == {"gateway", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for each in ports.values() for port in each)


@pytest.mark.parametrize("name", STACK)
def test_services_understand_their_environment(name: str, understood: Understood) -> None:
    service = "agent" if name in AGENTS else name
    given = {variable: default(str(value)) for variable, value in COMPOSE[name]["environment"].items()}
    settings = understood(service, given)
    assert settings.nats_servers == ("nats://nats:4222",)


def test_the_nodes_do_not_share_cores_groups_or_state() -> None:
    environments = [COMPOSE[name]["environment"] for name in AGENTS]
    for variable in ("COTENANT_AGENT_NODE", "COTENANT_AGENT_CGROUP_ROOT", "COTENANT_AGENT_CPUS"):
        assert len({default(each[variable]) for each in environments}) == 2, variable
    states = {volume for name in AGENTS for volume in COMPOSE[name]["volumes"] if volume.endswith("/agent")}
    assert len(states) == 2


@pytest.mark.parametrize("cores", [2, 3, 8, 17])
def test_slices_fit_the_machine(cores: int) -> None:
    found = program("slices").slices(list(range(cores)), 8 << 30)
    taken = [cpus(found[f"COTENANT_NODE_{node}_CPUS"]) for node in "AB"]
    assert not taken[0] & taken[1]
    assert len(taken[0]) == len(taken[1]) == cores // 2
    assert taken[0] | taken[1] <= set(range(cores))
    assert sum(int(found[f"COTENANT_NODE_{node}_MEMORY_BYTES"]) for node in "AB") <= 8 << 30


def cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def test_slices_follow_a_cpuset_with_holes_and_refuse_one_core() -> None:
    slices = program("slices")
    assert slices.slices([1, 2, 4, 7], 1 << 30)["COTENANT_NODE_B_CPUS"] == "4,7"
    with pytest.raises(ValueError, match="two nodes need two cores"):
        slices.slices([0], 1 << 30)


def test_slices_are_kept_once_beside_what_else_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slices, file = program("slices"), tmp_path / ".env"
    monkeypatch.setattr(slices, "of_this_machine", lambda: slices.slices([0, 1], 4 << 30))
    file.write_text("COTENANT_PORT=7171\nCOTENANT_NODE_A_CPUS=1")
    assert slices.keep(file)
    lines = file.read_text().splitlines()
    assert lines[:2] == ["COTENANT_PORT=7171", "COTENANT_NODE_A_CPUS=1"]
    assert "COTENANT_NODE_B_CPUS=1" in lines
    assert not slices.keep(file)
    assert file.read_text().splitlines() == lines


def prepare(monkeypatch: pytest.MonkeyPatch, root: Path) -> tuple[Any, dict[Path, int]]:
    """The program with its folders below ``root``, and who was made the owner of what."""
    setup = program("setup")
    volumes = [volume.partition(":")[2] for volume in COMPOSE["setup"]["volumes"] if not volume.startswith(".")]
    for volume in volumes:
        (root / volume.lstrip("/")).mkdir(parents=True)
    for name in ("LOGINS", "TO", "DATA"):
        monkeypatch.setattr(setup, name, root / name.lower())
    owners: dict[Path, int] = {}

    def chown(path: Path, uid: int, _gid: int) -> None:
        owners[path.with_name(path.name.removeprefix("."))] = uid

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setenv("COTENANT_OBSERVERS", default(COMPOSE["setup"]["environment"]["COTENANT_OBSERVERS"]))
    return setup, owners


def files_below(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_each_container_is_handed_its_own_login_readable_by_its_own_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, owners = prepare(monkeypatch, tmp_path)
    setup.main([])
    given = files_below(tmp_path / "to")
    assert set(given) == {
        *(f"{name}/nkey" for name in (*STACK, "cli")),
        *("gateway/api-token", "cli/api-token", "nats/auth.conf", "observers/observer-siem.secret"),
    }
    seeds = [text for name, text in given.items() if name.endswith(("nkey", ".secret"))]
    assert len(set(seeds)) == len(seeds)
    assert not [seed for seed in seeds if seed.strip() in given["nats/auth.conf"]]
    assert given["gateway/api-token"] == given["cli/api-token"]
    for name in given:
        path = tmp_path / "to" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o400, name
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700, name
        runs_as = COMPOSE.get(path.parent.name, COMPOSE["observer"]).get("user", "10001:10001")
        wanted = 0 if path.parent.name in AGENTS else int(runs_as.partition(":")[0])
        assert owners[path] == owners[path.parent] == wanted, name


def test_logins_are_kept_until_they_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup, _ = prepare(monkeypatch, tmp_path)
    setup.main([])
    first = files_below(tmp_path / "to")
    setup.main([])
    assert files_below(tmp_path / "to") == first
    setup.main(["--rotate"])
    rotated = files_below(tmp_path / "to")
    assert set(rotated) == set(first)
    assert not set(rotated.values()) & set(first.values())


def test_a_tool_that_is_no_longer_named_loses_its_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup, _ = prepare(monkeypatch, tmp_path)
    monkeypatch.setenv("COTENANT_OBSERVERS", "siem, pager")
    setup.main([])
    assert '"observer-pager"' not in files_below(tmp_path / "to")["nats/auth.conf"]
    assert "# observer-pager" in files_below(tmp_path / "to")["nats/auth.conf"]
    monkeypatch.setenv("COTENANT_OBSERVERS", "siem")
    setup.main([])
    given = files_below(tmp_path / "to")
    assert "observers/observer-pager.secret" not in given
    assert "observer-pager" not in given["nats/auth.conf"]


@pytest.mark.parametrize(
    ("observers", "arguments", "said"),
    [("a b", [], "COTENANT_OBSERVERS"), ("siem,siem", [], "COTENANT_OBSERVERS"), ("", ["--rotat"], "or --rotate")],
)
def test_setup_refuses_what_it_cannot_use(
    observers: str, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, _ = prepare(monkeypatch, tmp_path)
    monkeypatch.setenv("COTENANT_OBSERVERS", observers)
    with pytest.raises(SystemExit, match=said):
        setup.main(arguments)


def test_no_container_but_setup_sees_the_login_of_another() -> None:
    seen: dict[str, list[str]] = {}
    for name, each in COMPOSE.items():
        for volume in each.get("volumes", ()):
            source = volume.partition(":")[0]
            if name != "setup" and (source == "logins" or source.startswith(("login-", "nats-auth"))):
                seen.setdefault(source, []).append(name)
                assert volume.endswith(":ro"), volume
    assert "logins" not in seen
    assert seen["login-observers"] == ["observer"]
    assert seen["nats-auth"] == ["nats"]
    assert {source: names for source, names in seen.items() if source.startswith("login-")} == {
        **{f"login-{name}": [name] for name in (*STACK, "cli")},
        "login-observers": ["observer"],
    }


def test_each_logs_in_as_the_user_whose_seed_it_gets() -> None:
    shares = program("setup").shares(["observer-siem"])
    for name in (*STACK, "cli"):
        environment = COMPOSE[name]["environment"]
        assert environment["COTENANT_NATS_NKEY_FILE"] == "/run/cotenant/login/nkey"
        assert shares[name][1]["nkey"] == f"{environment['COTENANT_NATS_USER']}.secret"
    command = COMPOSE["observer"]["command"]
    assert Path(command[2]).name in shares["observers"][1]
    assert f"observer-{command[1]}.secret" == Path(command[2]).name


def test_prometheus_scrapes_every_container_of_the_stack() -> None:
    scrape = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    (job,) = scrape
    (targets,) = job["static_configs"]
    assert set(targets["targets"]) == {f"{name}:9100" for name in STACK}


def test_what_is_mounted_from_the_tree_is_there() -> None:
    for name, each in COMPOSE.items():
        for volume in each.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), (name, source)
