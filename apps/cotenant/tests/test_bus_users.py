import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.bus_users import CONFIG, observers_in, write_users
from cotenant.cli.main import main
from cotenant.errors import BadInputError
from cotenant.stack.home import StackHome
from cotenant.stack.nats import prepare_nats
from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import AccessDeniedError
from cotenant_common.contracts.buckets import SPECS
from cotenant_common.contracts.server_config import Login, Tls
from cotenant_common.runtime.settings import ServiceSettings, load_settings
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

EXAMPLE = Path(__file__).parents[3] / "examples" / "subscriber" / "subscribe.py"
EVENT = "cotenant.v1.evt.pod.bound.default.web"
needs_server = pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine")


def secrets_of(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.glob("*.secret")}


@pytest.mark.parametrize("login", list(Login))
def test_every_user_has_a_secret_that_only_its_owner_reads(tmp_path: Path, login: Login) -> None:
    written = write_users(tmp_path / "bus", ["n1", "n2.example"], ["siem"], login)
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert (tmp_path / "bus").stat().st_mode & 0o777 == 0o700
    secrets = secrets_of(tmp_path / "bus")
    assert {"gateway.secret", "agent-n1.secret", "agent-n2_example.secret", "observer-siem.secret"} < set(secrets)
    assert len(set(secrets.values())) == len(secrets)
    assert observers_in(tmp_path / "bus") == ["siem"]
    if login is Login.NKEY:
        config = (tmp_path / "bus" / CONFIG).read_text()
        assert not [seed for seed in secrets.values() if seed.strip() in config]


def test_a_second_run_keeps_secrets_until_told_to_rotate_them(tmp_path: Path) -> None:
    write_users(tmp_path, ["n1"], [], Login.NKEY)
    first = secrets_of(tmp_path)
    write_users(tmp_path, ["n1", "n2"], [], Login.NKEY)
    assert first.items() < secrets_of(tmp_path).items()
    write_users(tmp_path, ["n1"], [], Login.NKEY, rotate=True)
    assert not set(first.values()) & {secrets_of(tmp_path)[name] for name in first}


def test_a_tool_that_was_added_to_a_stack_is_still_known_at_its_next_start(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    home.create()
    write_users(home.bus, ["n1"], ["siem"], Login.PASSWORD)
    before = secrets_of(home.bus)
    assert prepare_nats(home, 4222, node="n1").user == "operator"
    assert secrets_of(home.bus) == before
    assert '"observer-siem"' in (home.bus / CONFIG).read_text()
    assert "token" not in (home.root / "nats.conf").read_text()


def test_secrets_of_the_other_kind_are_replaced(tmp_path: Path) -> None:
    write_users(tmp_path, ["n1"], [], Login.PASSWORD)
    passwords = secrets_of(tmp_path)
    write_users(tmp_path, ["n1"], [], Login.NKEY)
    assert not set(passwords.values()) & set(secrets_of(tmp_path).values())


def test_the_settings_beside_a_secret_are_what_its_service_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = Tls(tmp_path / "c", tmp_path / "k", tmp_path / "ca")
    write_users(tmp_path, ["n1"], [], Login.PASSWORD, tls)
    for line in (tmp_path / "agent-n1.env").read_text().splitlines():
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)
    settings = load_settings(ServiceSettings)
    assert settings.nats_user == "agent-n1"
    assert settings.nats_password_file == tmp_path / "agent-n1.secret"
    assert settings.nats_tls_ca_file == tmp_path / "ca"


@pytest.mark.parametrize("nodes", [["n1", "n1"], ["a.b", "a_b"], ["n 1"], ["*"], [">"]])
def test_nodes_that_would_share_or_widen_a_login_are_refused(tmp_path: Path, nodes: list[str]) -> None:
    with pytest.raises(BadInputError):
        write_users(tmp_path, nodes, [], Login.PASSWORD)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["contracts", "nats-conf", "--out", str(tmp_path / "file" / "bus")]) != 0
    assert "cannot be written" in capsys.readouterr().err


def test_without_a_directory_the_rules_are_shown_and_no_secret_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contracts", "nats-conf"]) == 0
    assert "$COTENANT_GATEWAY_PASSWORD" in capsys.readouterr().out


def test_verifying_clients_needs_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contracts", "nats-conf", "--out", str(tmp_path), "--verify-clients"]) != 0
    assert "--tls" in capsys.readouterr().err


async def joined(server: NatsServer, directory: Path, user: str, kind: Login = Login.PASSWORD) -> NatsBus:
    given = {"nats_user": user, f"nats_{kind.value}_file": directory / f"{user}.secret"}
    login = load_settings(ServiceSettings, overrides=given).nats_login()
    return await connect([server.url], name=user, login=login, timeout_s=30)


@needs_server
@pytest.mark.integration
async def test_a_rotation_ends_old_logins_and_lets_new_ones_in(tmp_path: Path) -> None:
    write_users(tmp_path, ["n1"], [], Login.PASSWORD)
    async with NatsServer(tmp_path, extra_config=f"include {CONFIG}") as server:
        old = load_settings(
            ServiceSettings, overrides={"nats_user": "gateway", "nats_password_file": tmp_path / "gateway.secret"}
        ).nats_login()
        bus = await connect([server.url], name="gateway", login=old, timeout_s=30)
        write_users(tmp_path, ["n1"], [], Login.PASSWORD, rotate=True)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGHUP)
        await asyncio.wait_for(bus.wait_failed(), 60)
        with pytest.raises(AccessDeniedError):
            await connect([server.url], name="gateway", login=old, timeout_s=30)
        again = await joined(server, tmp_path, "gateway")
        await again.bucket(SPECS)
        await again.close()
        await bus.close()


@needs_server
@pytest.mark.integration
@pytest.mark.parametrize("kind", list(Login))
async def test_the_example_goes_on_where_it_was_stopped(tmp_path: Path, kind: Login) -> None:
    write_users(tmp_path, [], ["siem"], kind)
    async with NatsServer(tmp_path, extra_config=f"include {CONFIG}") as server:
        gateway = await joined(server, tmp_path, "gateway", kind)
        for number in ("1", "2"):
            headers = {"ce-type": "pod.bound"}
            body = b"\x81\xa6object\xa1" + number.encode()
            await gateway.publish_event(EVENT, body, event_id=number, headers=headers)
            line = await asyncio.to_thread(first_line, server.url, tmp_path / "observer-siem.secret")
            assert line.split() == [number, "pod.bound", number]
        await gateway.close()


def first_line(url: str, secret: Path) -> str:
    command = [sys.executable, str(EXAMPLE), url, "siem", str(secret)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            return process.stdout.readline()
        finally:
            process.terminate()
