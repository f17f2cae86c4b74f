"""Ways to log in other than a password: nkeys, and TLS in one direction and both."""

import asyncio
import secrets
import shutil
import subprocess
from pathlib import Path

import nkeys
import pytest

from cotenant_common.bus.nats_bus import connect
from cotenant_common.bus.protocol import AccessDeniedError, BusUnavailableError, PermissionDeniedError
from cotenant_common.contracts import server_config
from cotenant_common.contracts.buckets import NODES, SPECS
from cotenant_common.contracts.permissions import agent_user, service_user
from cotenant_common.contracts.server_config import Tls, render_config
from cotenant_common.runtime.service import EXIT_BAD_INPUT, EXIT_FAILED, Service, ServiceContext, run_service
from cotenant_common.runtime.settings import ServiceSettings, load_settings
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine"),
]
GATEWAY, AGENT = service_user("gateway"), agent_user("n1")


def seed_file(path: Path) -> str:
    """Write a new seed; return its public key."""
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    path.write_bytes(seed + b"\n")
    return nkeys.from_seed(bytearray(seed)).public_key.decode()


def settings(**given: object) -> ServiceSettings:
    return load_settings(ServiceSettings, overrides=given)


async def test_nkeys_carry_the_same_rights_and_a_strange_one_is_refused(tmp_path: Path) -> None:
    public = {user: seed_file(tmp_path / user.name) for user in (GATEWAY, AGENT)}
    seed_file(tmp_path / "stranger")
    config = render_config("test", server_config.Login.NKEY, public)
    async with NatsServer(extra_config=config) as server:
        buses = {}
        for user in (GATEWAY, AGENT):
            login = settings(nats_user=user.name, nats_nkey_file=tmp_path / user.name).nats_login()
            buses[user] = await connect([server.url], name=user.name, login=login, timeout_s=30)
            await buses[user].bucket(NODES)
        await (await buses[AGENT].bucket(NODES)).put("n1", b"x")
        await buses[GATEWAY].bucket(SPECS)
        with pytest.raises(PermissionDeniedError):
            await (await buses[AGENT].bucket(SPECS)).put("Pod.default.web", b"x")
        stranger = settings(nats_user="agent-n1", nats_nkey_file=tmp_path / "stranger").nats_login()
        with pytest.raises(AccessDeniedError, match="wrong user, password, token or key"):
            await connect([server.url], name="agent", login=stranger)
        for bus in buses.values():
            await bus.close()


@pytest.mark.parametrize("kind", list(server_config.Login))
async def test_a_login_that_was_replaced_while_the_server_was_away_ends_the_connection(
    tmp_path: Path, kind: server_config.Login
) -> None:
    if kind is server_config.Login.NKEY:
        kept, replaced = (seed_file(tmp_path / name) for name in ("mine", "other"))
    else:
        kept, replaced = "mine", "other"
        (tmp_path / "mine").write_text("mine")
    given: dict[str, object] = {"nats_user": GATEWAY.name, f"nats_{kind.value}_file": tmp_path / "mine"}
    login = settings(**given).nats_login()
    auth = tmp_path / "auth.conf"
    auth.write_text(render_config("test", kind, {GATEWAY: kept}))
    async with NatsServer(tmp_path, extra_config="include auth.conf") as server:
        bus = await connect([server.url], name="gateway", login=login, timeout_s=30)
        auth.write_text(render_config("test", kind, {GATEWAY: replaced}))
        await server.restart(kill=True)
        assert "no longer lets it in" in await asyncio.wait_for(bus.wait_failed(), 30)
        await bus.close()


async def test_a_service_with_a_wrong_login_ends_with_one_line_that_holds_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    password = tmp_path / "password"
    password.write_text("guess-of-mine\n")
    config = render_config("test", server_config.Login.PASSWORD, {GATEWAY: "secret"})
    async with NatsServer(extra_config=config) as server:
        wrong = settings(nats_servers=(server.url,), nats_user="gateway", nats_password_file=password)
        assert await run_service("gateway", unused, wrong) == EXIT_FAILED
        gone = settings(nats_servers=(server.url,), nats_user="gateway", nats_password_file=tmp_path / "none")
        assert await run_service("gateway", unused, gone) == EXIT_BAD_INPUT
    said = "".join(capfd.readouterr())
    assert said.count("bus_refused") == 1
    assert "guess-of-mine" not in said
    assert "Traceback" not in said


def unused(_: ServiceContext) -> Service:
    raise AssertionError("a service without a bus was made")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def certified(directory: Path, name: str, authority: str) -> None:
    """A key and a certificate for loopback, signed by the authority of the same directory."""
    key, request, certificate = (str(directory / f"{name}.{ending}") for ending in ("key", "csr", "pem"))
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
            "-out", request, "-subj", f"/CN={name}")  # fmt: skip
    names = directory / "names"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    openssl("x509", "-req", "-in", request, "-CA", f"{directory / authority}.pem", "-CAkey",
            f"{directory / authority}.key", "-CAcreateserial", "-days", "2", "-extfile", str(names),
            "-out", certificate)  # fmt: skip


def authority(directory: Path, name: str) -> None:
    files = ("-keyout", f"{directory / name}.key", "-out", f"{directory / name}.pem")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-days", "2", "-subj", f"/CN={name}", *files)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl binary to make certificates with")
async def test_tls_in_both_directions(tmp_path: Path) -> None:
    for name in ("ca", "other"):
        authority(tmp_path, name)
    for name in ("server", "client"):
        certified(tmp_path, name, "ca")
    password = tmp_path / "password"
    password.write_text("secret\n")
    tls = Tls(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem", verify_clients=True)
    config = render_config("test", server_config.Login.PASSWORD, {GATEWAY: "secret"}, tls)
    user = {"nats_user": "gateway", "nats_password_file": password}
    client = {"nats_tls_cert_file": tmp_path / "client.pem", "nats_tls_key_file": tmp_path / "client.key"}
    async with NatsServer(extra_config=config) as server:
        both = settings(**user, **client, nats_tls_ca_file=tmp_path / "ca.pem").nats_login()
        bus = await connect([server.url], name="gateway", login=both, timeout_s=30)
        assert await (await bus.bucket(SPECS)).put("k", b"1") == 1
        await bus.close()
        wrong = settings(**user, **client, nats_tls_ca_file=tmp_path / "other.pem").nats_login()
        with pytest.raises(AccessDeniedError, match=r"TLS: .*nats_tls_ca_file"):
            await connect([server.url], name="gateway", login=wrong, timeout_s=30)
        unnamed = settings(**user, nats_tls_ca_file=tmp_path / "ca.pem").nats_login()
        with pytest.raises((AccessDeniedError, BusUnavailableError)):
            await connect([server.url], name="gateway", login=unnamed, timeout_s=3)
