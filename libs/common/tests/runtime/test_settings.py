from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field

from cotenant_common.bus.login import Login
from cotenant_common.runtime.settings import ServiceSettings, SettingsError, load_settings


class SchedulerSettings(ServiceSettings):
    service: ClassVar[str] = "scheduler"

    cycle_ms: int = Field(default=100, gt=0)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cotenant.yaml"
    path.write_text("common: {log_level: debug, http_port: 7000}\nscheduler: {http_port: 7001, cycle_ms: 50}\n")
    return path


def test_defaults_listen_to_this_machine_only() -> None:
    settings = load_settings(SchedulerSettings)
    assert settings.http_host == "127.0.0.1"
    assert settings.otlp_endpoint is None
    assert settings.nats_servers == ("nats://127.0.0.1:4222",)
    assert settings.instance_name


def test_the_services_section_wins_over_the_common_one(config: Path) -> None:
    settings = load_settings(SchedulerSettings, config)
    assert (settings.log_level, settings.http_port, settings.cycle_ms) == ("debug", 7001, 50)


def test_the_environment_wins_over_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_CONFIG", str(config))
    monkeypatch.setenv("COTENANT_LOG_LEVEL", "error")
    monkeypatch.setenv("COTENANT_HTTP_PORT", "8000")
    monkeypatch.setenv("COTENANT_SCHEDULER_HTTP_PORT", "8001")
    monkeypatch.setenv("COTENANT_NATS_SERVERS", "nats://a:1, nats://b:2")
    settings = load_settings(SchedulerSettings)
    assert (settings.log_level, settings.http_port, settings.cycle_ms) == ("error", 8001, 50)
    assert settings.nats_servers == ("nats://a:1", "nats://b:2")


def test_an_override_wins_over_everything_and_none_overrides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_SCHEDULER_CYCLE_MS", "20")
    assert load_settings(SchedulerSettings, overrides={"cycle_ms": 10}).cycle_ms == 10
    assert load_settings(SchedulerSettings, overrides={"cycle_ms": None}).cycle_ms == 20


def test_an_error_names_the_variable_and_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_SCHEDULER_CYCLE_MS", "-5")
    with pytest.raises(SettingsError, match=r"COTENANT_SCHEDULER_CYCLE_MS \(cycle_ms\).*greater than 0.*'-5'"):
        load_settings(SchedulerSettings)


def test_an_unknown_setting_in_the_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("scheduler: {cycle_mss: 5}\n")
    with pytest.raises(SettingsError, match="cycle_mss"):
        load_settings(SchedulerSettings, path)


@pytest.mark.parametrize("text", ["[1, 2]", "scheduler: 5", "scheduler: {"])
def test_a_file_of_another_shape_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"c\.yaml"):
        load_settings(SchedulerSettings, path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(SchedulerSettings, tmp_path / "none.yaml")


def test_settings_are_frozen() -> None:
    settings = load_settings(SchedulerSettings)
    with pytest.raises(ValueError, match="frozen"):
        settings.cycle_ms = 5  # type: ignore[misc]


def test_the_token_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    login = load_settings(SchedulerSettings, overrides={"nats_token_file": path}).nats_login()
    assert login.options()["token"] == "secret"
    assert load_settings(SchedulerSettings).nats_login() == Login()
    with pytest.raises(SettingsError, match="nats_token_file"):
        load_settings(SchedulerSettings, overrides={"nats_token_file": tmp_path / "none"}).nats_login()


def test_a_secret_prints_as_stars_wherever_settings_and_logins_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("open-sesame\n")
    settings = load_settings(SchedulerSettings, overrides={"nats_user": "scheduler", "nats_password_file": path})
    login = settings.nats_login()
    assert login.options()["password"] == "open-sesame"
    assert "open-sesame" not in f"{login!r} {login} {settings!r} {settings.model_dump(mode='json')}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"nats_token_file": "a", "nats_nkey_file": "b"}, "one way to log in, got nats_token_file and nats_nkey_file"),
        ({"nats_password_file": "a"}, "expected nats_user"),
        ({"nats_tls_cert_file": "a"}, "together"),
        ({"nats_tls_ca_file": "/dev/null"}, "nats_tls_ca_file"),
        ({"nats_nkey_file": "/nowhere/seed"}, "nats_nkey_file: cannot read /nowhere/seed"),
    ],
)
def test_a_login_that_cannot_work_is_one_clear_error(given: dict[str, str], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        load_settings(SchedulerSettings, overrides=given).nats_login()


def test_replies_come_to_an_inbox_of_the_user(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.write_text("x")
    settings = load_settings(SchedulerSettings, overrides={"nats_user": "agent-n1", "nats_nkey_file": seed})
    assert settings.nats_login().options() == {"inbox_prefix": "_INBOX.agent-n1", "nkeys_seed": str(seed)}
