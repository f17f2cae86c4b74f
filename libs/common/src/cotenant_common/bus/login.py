"""How a client proves who it is. Secrets stay in wrappers that print as stars, or in files that the client reads."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from cotenant_common.contracts.permissions import INBOX_PREFIX, inbox_prefix


@dataclass(frozen=True, slots=True)
class Login:
    """At most one of token, password, nkey and credentials. ``user`` also names the inbox that replies come to."""

    user: str | None = None
    token: SecretStr | None = None
    password: SecretStr | None = None
    nkey_file: Path | None = None
    creds_file: Path | None = None
    tls: ssl.SSLContext | None = field(default=None, compare=False)

    @property
    def inbox_prefix(self) -> str:
        return INBOX_PREFIX if self.user is None else inbox_prefix(self.user)

    def options(self) -> dict[str, Any]:
        """What the client takes."""
        options: dict[str, Any] = {"inbox_prefix": self.inbox_prefix}
        if self.token is not None:
            options["token"] = self.token.get_secret_value()
        elif self.password is not None:
            options |= {"user": self.user or "", "password": self.password.get_secret_value()}
        elif self.nkey_file is not None:
            options["nkeys_seed"] = str(self.nkey_file)
        elif self.creds_file is not None:
            options["user_credentials"] = str(self.creds_file)
        if self.tls is not None:
            options["tls"] = self.tls
        return options


def token_login(token: str | None) -> Login:
    return Login() if token is None else Login(token=SecretStr(token))
