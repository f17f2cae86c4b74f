"""Files that let every part of an installation log in to the bus with rights of its own.

``auth.conf`` for nats-server, and for each user NAME ``NAME.secret`` and ``NAME.env`` with the settings that use it.
"""

import base64
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.errors import BadInputError
from cotenant_common.contracts.permissions import User
from cotenant_common.contracts.server_config import Login, Tls, render_config, users_for
from cotenant_common.model.ids import InvalidNameError

CONFIG: Final = "auth.conf"
_HEAD: Final = "Made by `cotenant contracts nats-conf`: who may connect, and what each may publish and subscribe to."
_SETTING: Final = {Login.PASSWORD: "NATS_PASSWORD_FILE", Login.NKEY: "NATS_NKEY_FILE"}


@dataclass(frozen=True, slots=True)
class Secret:
    """What a user keeps, and what the server keeps of it."""

    own: str
    server: str


def write_users(
    directory: Path,
    nodes: Sequence[str],
    observers: Sequence[str],
    login: Login,
    tls: Tls | None = None,
    *,
    rotate: bool = False,
) -> list[Path]:
    """Return what was written. A secret that is there is kept unless ``rotate``. Raise BadInputError."""
    try:
        users = users_for(nodes, observers)
    except InvalidNameError as error:
        raise BadInputError(str(error)) from error
    if len({user.name for user in users}) < len(users):
        raise BadInputError("expected every node and tool once; `.` and `_` of a node's name are the same on the bus")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = []
        logins = {}
        for user in users:
            path = directory / f"{user.name}.secret"
            kept = None if rotate else _kept(path, login)
            secret = kept or new_secret(login)
            if kept is None:
                written.append(_write(path, secret.own + "\n"))
            logins[user] = secret.server
            written.append(_write(directory / f"{user.name}.env", _environment(user, path, login, tls)))
        written.append(_write(directory / CONFIG, render_config(_HEAD, login, logins, tls)))
    except OSError as error:
        raise BadInputError(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
    return written


def observers_in(directory: Path) -> list[str]:
    """The outside tools that were given a login here before."""
    names = (path.stem for path in directory.glob("observer-*.secret"))
    return sorted(name.removeprefix("observer-") for name in names)


def new_secret(login: Login) -> Secret:
    if login is Login.PASSWORD:
        password = secrets.token_urlsafe(32)
        return Secret(password, password)
    import nkeys  # noqa: PLC0415 - needed by those who use nkeys

    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode()
    return _nkey(seed)


def _nkey(seed: str) -> Secret:
    import nkeys  # noqa: PLC0415

    return Secret(seed, nkeys.from_seed(bytearray(seed.encode())).public_key.decode())


def _kept(path: Path, login: Login) -> Secret | None:
    """The secret in the file; None when there is none, or one of the other kind."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    if _is_seed(text) != (login is Login.NKEY):
        return None
    return _nkey(text) if login is Login.NKEY else Secret(text, text)


def _is_seed(text: str) -> bool:
    try:
        return text.startswith("SU") and len(base64.b32decode(text + "=" * (-len(text) % 8))) == 36
    except ValueError:
        return False


def _environment(user: User, secret: Path, login: Login, tls: Tls | None) -> str:
    lines = {"NATS_USER": user.name, _SETTING[login]: secret.resolve()}
    if tls is not None:
        lines["NATS_TLS_CA_FILE"] = tls.authority
    return "".join(f"COTENANT_{name}={value}\n" for name, value in lines.items())


def _write(path: Path, text: str) -> Path:
    """Readable by its owner from the first byte on, and never half written."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
    return path
