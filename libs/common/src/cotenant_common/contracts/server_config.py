"""The ``authorization`` and ``tls`` blocks of nats-server's configuration, for users and their logins."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from cotenant_common.contracts.permissions import (
    APPLICATION,
    OPERATOR,
    SERVICES,
    User,
    agent_user,
    may_publish,
    may_subscribe,
    observer_user,
    service_user,
)


class Login(StrEnum):
    PASSWORD = "password"  # noqa: S105 - the kind, not one
    NKEY = "nkey"


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path
    key: Path
    authority: Path
    verify_clients: bool = False


def users_for(nodes: Sequence[str], observers: Sequence[str] = ()) -> list[User]:
    """Everyone of an installation. Raise InvalidNameError for a name that is no token."""
    services = [service_user(service) for service in SERVICES if service not in ("agent", "bridge")]
    agents = [agent_user(node) for node in nodes]
    return [*services, *agents, *(observer_user(name) for name in observers), APPLICATION, OPERATOR]


def render_config(head: str, login: Login, logins: Mapping[User, str], tls: Tls | None = None) -> str:
    """``logins``: what the server keeps of each user: the password, or the public key of an nkey."""
    users = "".join(_user(user, _login_lines(user, login, kept)) for user, kept in logins.items())
    return f"# {head}\n{_tls(tls)}authorization {{\n  users = [\n{users}  ]\n}}\n"


def render_template(head: str) -> str:
    """The same for readers: NODE and TOOL are names, and passwords come from the server's environment."""
    users = [*(service_user(service) for service in SERVICES if service != "agent"), agent_user("NODE")]
    users += [observer_user("TOOL"), APPLICATION, OPERATOR]
    rendered = "".join(_user(user, _environment_lines(user)) for user in users)
    return (
        f"# {head}\n"
        "# To read, and to compare; `cotenant contracts nats-conf` makes one to run, with its secrets.\n"
        "# NODE stands for a node's name, `.` written as `_`, TOOL for an outside tool's.\n"
        f"authorization {{\n  users = [\n{rendered}  ]\n}}\n"
    )


_PLACEHOLDERS: Final = {"agent-NODE": "AGENT", "observer-TOOL": "OBSERVER"}


def _environment_lines(user: User) -> str:
    variable = _PLACEHOLDERS.get(user.name, user.name.upper())
    return f"      user: {user.name}\n      password: $COTENANT_{variable}_PASSWORD\n"


def _login_lines(user: User, login: Login, kept: str) -> str:
    # JSON strings are valid in the server's format, which takes care of quoting.
    if login is Login.NKEY:
        return f"      # {user.name}\n      nkey: {kept}\n"
    return f"      user: {json.dumps(user.name)}\n      password: {json.dumps(kept)}\n"


def _user(user: User, login: str) -> str:
    return (
        f"    {{\n{login}      permissions: {{\n"
        f"        publish: {{ allow: [\n{_lines(may_publish(user))}        ] }}\n"
        f"        subscribe: {{ allow: [\n{_lines(may_subscribe(user))}        ] }}\n"
        "      }\n    }\n"
    )


def _lines(subjects: Iterable[str]) -> str:
    return "".join(f'          "{subject}"\n' for subject in subjects)


def _tls(tls: Tls | None) -> str:
    if tls is None:
        return ""
    files = {"cert_file": tls.certificate, "key_file": tls.key, "ca_file": tls.authority}
    lines = "".join(f"  {name}: {json.dumps(str(path))}\n" for name, path in files.items())
    verify = "  verify: true\n" if tls.verify_clients else ""
    return f"tls {{\n{lines}{verify}}}\n"
