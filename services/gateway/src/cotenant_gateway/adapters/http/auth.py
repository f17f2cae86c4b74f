"""Who may ask: a token compared in constant time, and only pages of this machine when a browser asks."""

import hmac
import ipaddress
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from cotenant_common.runtime.settings import SettingsError
from cotenant_gateway.core.errors import ApiError

MIN_TOKEN = 16


def is_loopback(host: str) -> bool:
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def read_token(path: Path | None, host: str) -> str | None:
    """The token, or None on loopback without one. Raise SettingsError for anything that lets others in."""
    if path is None:
        if not is_loopback(host):
            raise SettingsError(
                f"api_token_file: required because api_host is {host}, which other machines can reach; "
                "name a file of mode 0600 that holds a token"
            )
        return None
    try:
        info = path.stat()
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"api_token_file: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"api_token_file: {path} is not UTF-8 text") from error
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        raise SettingsError(f"api_token_file: {path} has mode {mode:04o}, so others can read it; run chmod 600 {path}")
    if info.st_uid not in (os.geteuid(), 0):
        raise SettingsError(f"api_token_file: {path} belongs to uid {info.st_uid}, expected {os.geteuid()}")
    if len(token) < MIN_TOKEN:
        raise SettingsError(f"api_token_file: {path} holds {len(token)} characters, expected at least {MIN_TOKEN}")
    return token


class Guard:
    """Decides from the headers alone."""

    def __init__(self, token: str | None, allowed_hosts: Sequence[str] = ()) -> None:
        self._token = token.encode() if token is not None else None
        self._allowed = tuple(host.lower() for host in allowed_hosts)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise ApiError 401 or 403."""
        self._check_browser(headers)
        if self._token is not None:
            self._check_token(headers.get("Authorization", ""))
        else:
            # Without a token the address is all that protects us, and a rebound DNS name would reach it.
            self._check_name(headers.get("Host", ""), "Host")

    def _check_browser(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("Origin")
        if origin is not None:
            self._check_name(_netloc(origin), "Origin")
        elif headers.get("Sec-Fetch-Site") == "cross-site":
            raise ApiError(403, "OriginNotAllowed", "a page of another site may not use this API")

    def _check_name(self, netloc: str, header: str) -> None:
        host = _host(netloc)
        if host is None or not (is_loopback(host) or host in self._allowed):
            raise ApiError(
                403,
                f"{header}NotAllowed",
                f"{header} {netloc[:80]!r} is not allowed; expected a loopback name or one of allowed_origins",
            )

    def _check_token(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        known = self._token or b""
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(errors="surrogateescape"), known):
            raise ApiError(
                401, "Unauthorized", "expected the header 'Authorization: Bearer <token>' with the API token"
            )


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host(netloc: str) -> str | None:
    try:
        return urlsplit(f"//{netloc}").hostname
    except ValueError:
        return None
