"""What `cotenant install --systemd` and `cotenant agent join` write, judged by the programs that read it."""

import asyncio
import json
import re
import shutil
import stat
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from cotenant.bus_users import CONFIG, write_users
from cotenant.cli.install import Role
from cotenant.cli.main import main
from cotenant.install import layout
from cotenant.install.units import Paths
from cotenant.stack.services import SERVICES, effective_settings
from cotenant_common.bus.nats_bus import connect
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import HEARTBEATS, NODES, SPECS
from cotenant_common.contracts.messages.state import Heartbeat, NodeInventory
from cotenant_common.contracts.server_config import Login
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

TOKEN = "a-token-of-the-cluster"


def install(prefix: Path, role: str = "all") -> dict[str, Path]:
    assert main(["install", "--systemd", "--role", role, "--prefix", str(prefix)]) == 0
    return {str(path.relative_to(prefix)): path for path in sorted(prefix.rglob("*")) if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_their_owner_and_one_token_opens_everything(tmp_path: Path) -> None:
    files = install(tmp_path)
    secrets = [path for name, path in files.items() if name.endswith(("-token", "auth.conf", "agent.yaml"))]
    assert len(secrets) == 5
    assert {mode(path) for path in secrets} == {0o600}
    token = files["etc/cotenant/bus-token"].read_text().strip()
    assert files["etc/cotenant/agent-token"].read_text().strip() == token
    assert f'"{token}"' in files["etc/cotenant/nats/auth.conf"].read_text()
    assert files["etc/cotenant/api-token"].read_text().strip() != token
    # A token in a unit would be shown to everybody by `systemctl cat`.
    assert not [path for name, path in files.items() if "systemd" in name and token in path.read_text()]


def test_every_service_accepts_its_settings_and_no_two_share_a_port(tmp_path: Path) -> None:
    files = install(tmp_path)
    ports = []
    for service in SERVICES:
        name = "agent.yaml" if service == "agent" else "cotenant.yaml"
        settings = effective_settings(service, files[f"etc/cotenant/{name}"])
        ports.append(settings["http_port"])
        assert settings["nats_servers"] == ["nats://127.0.0.1:4222"]
    assert len(set(ports)) == len(SERVICES)
    assert 0 not in ports


def test_a_second_installation_keeps_what_was_configured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = install(tmp_path, "server")
    files["etc/cotenant/cotenant.yaml"].write_text("common: {log_level: debug}\n")
    token = files["etc/cotenant/bus-token"].read_text()
    files["etc/systemd/system/cotenant-quota.service"].write_text("old")
    capsys.readouterr()
    again = install(tmp_path)
    assert "kept " in capsys.readouterr().out
    assert again["etc/cotenant/cotenant.yaml"].read_text() == "common: {log_level: debug}\n"
    assert again["etc/cotenant/agent-token"].read_text() == token
    assert "ExecStart" in again["etc/systemd/system/cotenant-quota.service"].read_text()


@pytest.mark.parametrize("role", list(Role))
def test_a_dry_run_writes_nothing(role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["install", "--systemd", "--role", role, "--prefix", str(tmp_path), "--dry-run"])
    assert list(tmp_path.iterdir()) == []
    if role == "agent":
        assert status == 3
        assert "cotenant agent join" in capsys.readouterr().err
    else:
        assert status == 0
        assert "would write" in capsys.readouterr().out


def test_printing_shows_every_file_and_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--systemd", "--print", "--prefix", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "ExecStart=" in shown
    assert "(a secret, made at installation)" in shown
    assert not re.search(r"token: \"[\w-]{20}", shown)
    assert list(tmp_path.iterdir()) == []


def test_uninstall_removes_units_and_with_purge_the_rest(tmp_path: Path) -> None:
    install(tmp_path)
    assert main(["uninstall", "--systemd", "--prefix", str(tmp_path)]) == 0
    assert not list(tmp_path.glob("etc/systemd/system/*"))
    assert (tmp_path / "etc/cotenant/bus-token").exists()
    assert main(["uninstall", "--systemd", "--prefix", str(tmp_path), "--purge"]) == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_uninstalling_one_service_leaves_the_configuration_of_the_others(tmp_path: Path) -> None:
    install(tmp_path)
    assert main(["uninstall", "--systemd", "--role", "quota", "--purge", "--prefix", str(tmp_path)]) == 0
    assert not (tmp_path / "etc/systemd/system/cotenant-quota.service").exists()
    assert (tmp_path / "etc/systemd/system/cotenant-gateway.service").exists()
    assert (tmp_path / "etc/cotenant/cotenant.yaml").exists()


@pytest.mark.skipif(find_nats_server() is None, reason="no nats-server on this machine")
def test_the_server_accepts_its_configuration(tmp_path: Path) -> None:
    files = install(tmp_path)
    config = files["etc/cotenant/nats/nats.conf"]
    checked = subprocess.run(
        [str(find_nats_server()), "-t", "-c", str(config)], check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    install(tmp_path)
    units = sorted(str(path) for path in (tmp_path / "etc/systemd/system").iterdir())
    checked = subprocess.run(["systemd-analyze", "verify", *units], check=False, capture_output=True, text=True)
    # It also complains about units of the machine itself; ours are what counts.
    ours = [line for line in checked.stderr.splitlines() if "cotenant" in line]
    assert (checked.returncode, ours) == (0, [])


def test_only_the_agent_is_root_and_it_leaves_its_pods_alone() -> None:
    paths = Paths(python=PurePosixPath("/opt/cotenant/bin/python"), nats_server=PurePosixPath("/opt/nats-server"))
    texts = {part: layout._unit(part, paths).text for part in layout.parts_of("all")}
    assert [part for part, text in texts.items() if "User=cotenant" not in text] == ["agent"]
    assert {"Delegate=yes", "KillMode=process"} <= set(texts["agent"].splitlines())
    for part, text in texts.items():
        if part != "agent":
            assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="} <= set(text.splitlines())


def join(server: NatsServer, prefix: Path, *more: str, token: str = TOKEN) -> int:
    (prefix.parent / "token").write_text(token + "\n")
    return main(
        [
            "agent", "join", "--server", server.url, "--token-file", str(prefix.parent / "token"),
            "--prefix", str(prefix), "--node", "n1", *more,
        ]
    )  # fmt: skip


def tokened() -> NatsServer:
    return NatsServer(extra_config=f'authorization {{ token: "{TOKEN}" }}')


@pytest.mark.skipif(find_nats_server() is None, reason="no nats-server on this machine")
class TestJoin:
    async def test_a_join_leaves_settings_that_the_agent_starts_with(self, tmp_path: Path) -> None:
        prefix = tmp_path / "root"
        async with tokened() as server:
            assert await asyncio.to_thread(join, server, prefix, "--cpus", "0", "--memory", "1Gi") == 0
            config = prefix / "etc/cotenant/agent.yaml"
            assert (mode(config), mode(prefix / "etc/cotenant/agent-token")) == (0o600, 0o600)
            settings = effective_settings("agent", config)
            assert settings["nats_servers"] == [server.url]
            assert (settings["node"], settings["cpus"], settings["memory_bytes"]) == ("n1", "0", 1 << 30)
            assert (prefix / "etc/cotenant/agent-token").read_text().strip() == TOKEN
            assert "KillMode=process" in (prefix / "etc/systemd/system/cotenant-agent.service").read_text()

    async def test_a_join_with_the_nodes_own_user_keeps_to_it(self, tmp_path: Path) -> None:
        users = tmp_path / "bus"
        write_users(users, ["n1", "n2"], [], Login.PASSWORD)
        prefix = tmp_path / "root"
        async with NatsServer(users, extra_config=f"include {CONFIG}") as server:
            other = (users / "agent-n2.secret").read_text().strip()
            assert await asyncio.to_thread(lambda: join(server, prefix, "--own-user", token=other)) == 4
            assert not prefix.exists()
            own = (users / "agent-n1.secret").read_text().strip()
            assert await asyncio.to_thread(lambda: join(server, prefix, "--own-user", token=own)) == 0
        settings = effective_settings("agent", prefix / "etc/cotenant/agent.yaml")
        assert settings["nats_user"] == "agent-n1"
        assert settings["nats_password_file"].endswith("agent-token")
        assert settings["nats_token_file"] is None

    async def test_a_wrong_token_writes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cotenant.install.join._CONNECT_S", 1.0)
        prefix = tmp_path / "root"
        async with tokened() as server:
            status = await asyncio.to_thread(lambda: join(server, prefix, token="another"))
        assert status == 4
        assert not prefix.exists()

    async def test_a_name_that_another_machine_holds_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        prefix = tmp_path / "root"
        async with tokened() as server:
            bus = await connect([server.url], name="agent", token=TOKEN)
            await bus.bucket(SPECS)
            await announce(bus, "n1")
            status = await asyncio.to_thread(join, server, prefix)
            await bus.close()
        assert status == 5
        assert "choose another name with --node" in capsys.readouterr().err
        assert not prefix.exists()

    def test_a_token_must_come_from_one_place(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["agent", "join", "--server", "nats://127.0.0.1:1", "--prefix", str(tmp_path)]
        assert main(arguments) == 3
        assert "one of --token and --token-file" in capsys.readouterr().err
        assert main([*arguments, "--token-file", str(tmp_path / "none")]) == 3


async def announce(bus, node: str) -> None:
    golden = Path(__file__).parents[2] / "libs/common/tests/golden"
    for spec, model in ((NODES, NodeInventory), (HEARTBEATS, Heartbeat)):
        sample = json.loads((golden / f"{model.__name__}.v1.json").read_text())
        message = model.model_validate(sample["json"]).model_copy(update={"node": node})
        await (await bus.bucket(spec)).put(node, codec.encode(message))
