"""Which gateway a command talks to, and the event loop it does that in."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from cotenant.errors import BadInputError, NoConnectionError
from cotenant.stack.home import StackHome, default_home, is_held, load_record

if TYPE_CHECKING:
    from cotenant.client import CotenantClient

T = TypeVar("T")
_HTTP: Final = re.compile(r"https?://[^/\s]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    home: StackHome
    url: str | None = None
    token_file: Path | None = None


_TARGET: ContextVar[Target | None] = ContextVar("target", default=None)


def choose_target(home: Path | None, url: str | None, token_file: Path | None) -> None:
    """Options win over ``COTENANT_URL`` and ``COTENANT_TOKEN_FILE``; those win over the local stack."""
    file = token_file or (Path(named) if (named := os.environ.get("COTENANT_TOKEN_FILE")) else None)
    url = url or os.environ.get("COTENANT_URL")
    if url is not None and not _HTTP.match(url):
        raise BadInputError(f"--url {url!r}: expected http://HOST:PORT or https://HOST:PORT")
    _TARGET.set(
        Target(
            home=StackHome(home.absolute()) if home else default_home(),
            url=url,
            token_file=file,
        )
    )


def target() -> Target:
    return _TARGET.get() or Target(default_home())


def home() -> StackHome:
    return target().home


def address() -> tuple[str, str | None]:
    """(base URL, token). Raise NoConnectionError when no stack runs here and no address was given."""
    chosen = target()
    if chosen.url is not None:
        return chosen.url, _read_token(chosen.token_file) if chosen.token_file else None
    record = load_record(chosen.home)
    if record is None or not is_held(chosen.home):
        raise NoConnectionError(f"no stack runs in {chosen.home.root}; start one with `cotenant up`")
    return record.gateway_url, _read_token(chosen.token_file or chosen.home.api_token)


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise BadInputError(f"cannot read the token in {path}: {error.strerror}") from error


def with_client(body: "Callable[[CotenantClient], Awaitable[T]]") -> T:
    """Run ``body`` against the chosen gateway in an event loop of its own."""
    base_url, token = address()

    async def connected() -> T:
        # Imported here: half of the commands never talk HTTP and would pay 100 ms for it.
        from cotenant.client import CotenantClient  # noqa: PLC0415

        async with CotenantClient(base_url, token) as client:
            return await body(client)

    return asyncio.run(connected())
