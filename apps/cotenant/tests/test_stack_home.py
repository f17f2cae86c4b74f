import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.errors import BadInputError
from cotenant.stack import ports
from cotenant.stack.asking import takes_work
from cotenant.stack.home import (
    AlreadyRunningError,
    ProcessRef,
    ServiceRef,
    StackHome,
    StackRecord,
    default_home,
    hold,
    is_held,
    load_record,
)
from cotenant.stack.options import StackOptions
from cotenant.testing import TOKEN, FakeGateway


@pytest.fixture
def home(tmp_path: Path) -> StackHome:
    found = StackHome(tmp_path / "home")
    found.create()
    return found


def a_record() -> StackRecord:
    own = ProcessRef.current()
    return StackRecord(
        process=own,
        mode="one process",
        node="n1",
        gateway_url="http://127.0.0.1:1",
        nats_url="nats://127.0.0.1:2",
        started_ms=3,
        version="0",
        cgroup_root="g",
        nats=own,
        services=(ServiceRef("agent", own, "http://127.0.0.1:3"),),
    )


def test_the_home_is_where_the_environment_says() -> None:
    assert default_home({"COTENANT_HOME": "/x"}).root == Path("/x")
    assert default_home({"XDG_STATE_HOME": "/y"}).root == Path("/y/cotenant")
    assert default_home({}).root == Path.home() / ".local/state/cotenant"


def test_only_the_user_can_enter_the_home_or_read_a_token(home: StackHome) -> None:
    token = home.token(home.api_token)
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.api_token.stat().st_mode) == 0o600
    assert home.token(home.api_token) == token
    assert len(token) >= 40


def test_a_record_survives_the_file(home: StackHome) -> None:
    a_record().save(home)
    assert load_record(home) == a_record()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": {}}'])
def test_a_broken_record_is_none(home: StackHome, text: str) -> None:
    home.record.write_text(text)
    assert load_record(home) is None


def test_a_process_is_not_its_number() -> None:
    own = ProcessRef.current()
    assert own.is_alive()
    assert not replace(own, start_ticks=own.start_ticks + 1).is_alive()
    assert not replace(own, boot_id="before the reboot").is_alive()
    assert ProcessRef.of(2**22 + 1) is None


def test_a_home_has_one_holder(home: StackHome) -> None:
    assert not is_held(home)
    with hold(home):
        assert is_held(home)
        with pytest.raises(AlreadyRunningError, match="cotenant down"), hold(home):
            pass
    assert not is_held(home)


def test_the_earlier_port_is_taken_again_when_it_is_free() -> None:
    free = ports.choose("x", None, None)
    assert ports.choose("x", None, free) == free
    assert ports.choose("x", None, free, taken=[free]) != free


def test_a_port_in_use_is_bad_input_only_when_it_was_asked_for() -> None:
    import socket

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        number = busy.getsockname()[1]
        assert ports.choose("x", None, number) != number
        with pytest.raises(BadInputError, match=str(number)):
            ports.choose("gateway", number, None)


def test_ports_of_urls() -> None:
    assert ports.of_url("http://127.0.0.1:80/") == 80
    assert ports.of_url(None) is None


def test_options_travel_as_json(tmp_path: Path) -> None:
    options = StackOptions(home=tmp_path, node="a.b", cpus="0", memory_bytes=5, processes=True)
    assert StackOptions.from_json(options.to_json()) == options


@pytest.mark.parametrize("cpus", ["", "x", "1-", "0-4096"])
def test_a_slice_that_is_not_there_is_bad_input(tmp_path: Path, cpus: str) -> None:
    with pytest.raises(BadInputError, match="--cpus"):
        StackOptions(home=tmp_path, cpus=cpus).checked()


def test_a_home_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BadInputError, match="COTENANT_HOME"):
        StackHome(blocked / "home").create()
    assert list(tmp_path.iterdir()) == [blocked]


def test_a_proxy_in_the_environment_is_not_asked_for_loopback(
    home: StackHome, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    home.api_token.write_text(TOKEN)
    gateway.answers["GET /v1/status"] = (200, {"leader": True, "nodes": {"ready": 1}})
    assert takes_work(gateway.url, home)
    gateway.answers["GET /v1/status"] = (200, {"leader": False, "nodes": {"ready": 1}})
    assert not takes_work(gateway.url, home)
    assert not takes_work("http://127.0.0.1:9", home)


def test_a_port_for_a_listener_is_never_one_that_systems_lend_to_connections():
    lent_from = 32_768
    taken: list[int] = []
    for _ in range(20):
        taken.append(ports.choose("test", None, None, taken))
    assert len(set(taken)) == 20
    assert max(taken) < lent_from


def test_a_port_that_another_holds_or_was_promised_is_passed_over(monkeypatch):
    monkeypatch.setattr(ports, "_LISTENERS", range(20_000, 20_003))
    monkeypatch.setattr(ports, "is_free", lambda port: port != 20_001)
    assert ports.choose("test", None, None, [20_000]) == 20_002
    with pytest.raises(BadInputError, match="no free port from 20000 to 20002"):
        ports.choose("test", None, None, [20_000, 20_002])
