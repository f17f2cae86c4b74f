"""Settings of a service: one frozen model, from code, environment and one YAML file, checked before anything starts."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from cotenant_common.bus.login import Login
from cotenant_common.telemetry.logging import Format, Level

CONFIG_VARIABLE: Final = "COTENANT_CONFIG"
COMMON_SECTION: Final = "common"
_PREFIX: Final = "COTENANT_"

S = TypeVar("S", bound="ServiceSettings")


class SettingsError(ValueError):
    """A setting cannot be used; the text names it, what was expected and what came."""


class ServiceSettings(BaseSettings):
    """What every service has. A subclass sets ``service`` and adds its own fields, unit and reason on each.

    Sources, strongest first: overrides in code (the command line), ``COTENANT_<SERVICE>_<FIELD>``,
    ``COTENANT_<FIELD>`` for all services at once, the service's section of the YAML file, its section ``common``.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_ignore_empty=True)

    service: ClassVar[str] = ""

    nats_servers: Annotated[tuple[str, ...], NoDecode] = ("nats://127.0.0.1:4222",)
    """Comma-separated in the environment; tried in turn."""
    nats_token_file: Path | None = None
    """A file, so that the token stays out of the process list and of dumps of the environment."""
    nats_user: str | None = None
    """The login beside a password, and with any other the name of the inbox that replies come to."""
    nats_password_file: Path | None = None
    nats_nkey_file: Path | None = None
    """Seed of an nkey: the server knows the public half only."""
    nats_creds_file: Path | None = None
    """JWT and seed in one, where the server trusts an operator's signature."""
    nats_tls_ca_file: Path | None = None
    """Who vouches for the server; unset: the machine's authorities, for servers that ask for TLS."""
    nats_tls_cert_file: Path | None = None
    """With its key: who we are, for servers that verify their clients."""
    nats_tls_key_file: Path | None = None
    nats_replicas: int = Field(default=1, ge=1, le=5)
    """Copies of every bucket and of the events, one per server of a cluster; 3 outlive the loss of one server."""
    http_host: str = "127.0.0.1"
    """Health and metrics answer anybody who can reach them, so they listen to this machine only unless told."""
    http_port: int = Field(default=0, ge=0, le=65_535)
    """0: no health server; what several services of one machine would collide on is chosen, not guessed."""
    log_level: Level = "info"
    log_format: Format = "console"
    otlp_endpoint: str | None = None
    """Base address of an OpenTelemetry collector; unset: nothing is exported, nothing imported."""
    instance: str = ""
    """Who this is among replicas; empty: host name and process id. A name that lasts, such as a unit's, lets a process
    that was killed take its own lease over at once; no two processes may then have it at one time."""
    shutdown_timeout_s: float = Field(default=5.0, gt=0)
    """How long SIGTERM waits for work in hand. Below the 10 s after which most supervisors kill."""

    @field_validator("nats_servers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @property
    def instance_name(self) -> str:
        return self.instance or f"{os.uname().nodename}-{os.getpid()}"

    def nats_login(self) -> Login:
        """Read the files. Raise SettingsError naming the setting."""
        self._check_login()
        return Login(
            user=self.nats_user,
            token=_secret("nats_token_file", self.nats_token_file),
            password=_secret("nats_password_file", self.nats_password_file),
            nkey_file=_readable("nats_nkey_file", self.nats_nkey_file),
            creds_file=_readable("nats_creds_file", self.nats_creds_file),
            tls=self._tls(),
        )

    def _check_login(self) -> None:
        ways = ("nats_token_file", "nats_password_file", "nats_nkey_file", "nats_creds_file")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            raise SettingsError(f"expected one way to log in, got {' and '.join(given)}")
        if self.nats_password_file is not None and not self.nats_user:
            raise SettingsError("nats_password_file: expected nats_user beside it")
        if (self.nats_tls_cert_file is None) != (self.nats_tls_key_file is None):
            raise SettingsError("expected nats_tls_cert_file and nats_tls_key_file together, got one of them")

    def _tls(self) -> ssl.SSLContext | None:
        if self.nats_tls_ca_file is None and self.nats_tls_cert_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=_readable("nats_tls_ca_file", self.nats_tls_ca_file))
            if self.nats_tls_cert_file is not None:
                context.load_cert_chain(self.nats_tls_cert_file, self.nats_tls_key_file)
        except OSError as error:  # of which ssl.SSLError is one
            raise SettingsError(f"nats_tls_ca_file, nats_tls_cert_file: cannot be used: {error}") from error
        return context

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - replaced by two with prefixes of their own
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - a .env of the working directory is no source
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
            EnvSettingsSource(settings_cls, env_prefix=variable_prefix(cls.service)),
            EnvSettingsSource(settings_cls, env_prefix=_PREFIX),
            InitSettingsSource(settings_cls, init_kwargs=dict(_file_values(cls.service))),
        )


def _readable(setting: str, path: Path | None) -> Path | None:
    if path is not None:
        _read(setting, path)
    return path


def _secret(setting: str, path: Path | None) -> SecretStr | None:
    return None if path is None else SecretStr(_read(setting, path).strip())


def _read(setting: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise SettingsError(f"{setting}: cannot read {path}: {reason}") from error


def variable_prefix(service: str) -> str:
    return f"{_PREFIX}{service.upper()}_" if service else _PREFIX


_file: list[Path | None] = [None]


def _file_values(service: str) -> Mapping[str, Any]:
    path = _file[0]
    if path is None:
        return {}
    sections = read_config(path)
    return {**_section(path, sections, COMMON_SECTION), **_section(path, sections, service)}


def read_config(path: Path) -> Mapping[str, Any]:
    """The YAML file as a map of sections, one per service plus ``common``. Raise SettingsError."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is no YAML: {error}") from error
    if loaded is not None and not isinstance(loaded, dict):
        raise SettingsError(f"{path}: expected a map of sections, got {type(loaded).__name__}")
    return loaded or {}


def _section(path: Path, sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = sections.get(name) or {}
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {name}: expected a map of settings, got {type(section).__name__}")
    return section


def load_settings(cls: type[S], path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> S:
    """Read and check all sources. ``path`` defaults to ``COTENANT_CONFIG``. Raise SettingsError naming the setting."""
    chosen = path or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    _file[0] = chosen
    try:
        return cls(**{name: value for name, value in (overrides or {}).items() if value is not None})
    except ValidationError as error:
        raise SettingsError(_explain(cls, chosen, error)) from error
    finally:
        _file[0] = None


def _explain(cls: type[ServiceSettings], path: Path | None, error: ValidationError) -> str:
    lines = []
    for fault in error.errors(include_url=False):
        field = ".".join(str(part) for part in fault["loc"])
        variable = variable_prefix(cls.service) + str(fault["loc"][0]).upper() if fault["loc"] else "settings"
        lines.append(f"{variable} ({field}{f', or in {path}' if path else ''}): {fault['msg']}, got {fault['input']!r}")
    return "; ".join(lines)
