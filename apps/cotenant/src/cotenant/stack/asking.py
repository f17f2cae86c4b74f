"""What the services of a running stack say of themselves."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from cotenant.stack.home import ServiceRef, StackHome

# The standard client: `up` and `status` must not pay for importing aiohttp. Without the proxies of the environment:
# nothing but loopback is asked.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class ServiceState:
    service: str
    pid: int
    ready: bool
    alive: bool
    reason: str
    restarts: int = 0


def ask_all(references: Iterable[ServiceRef]) -> list[ServiceState]:
    """Every service's own word on whether it is ready; side by side, since a hung one takes a second."""
    found = list(references)
    if not found:
        return []
    with ThreadPoolExecutor(max_workers=len(found)) as pool:
        return list(pool.map(_ask, found))


def _ask(reference: ServiceRef) -> ServiceState:
    pid = reference.process.pid
    if not reference.process.is_alive():
        return ServiceState(reference.name, pid, ready=False, alive=False, reason="its process has ended")
    try:
        body = _get_json(f"{reference.health_url}/readyz")
    except OSError as error:
        cause = getattr(error, "reason", error)
        reason = "starting" if isinstance(cause, ConnectionRefusedError) else f"does not answer: {cause}"
        return ServiceState(reference.name, pid, ready=False, alive=True, reason=reason)
    return ServiceState(
        reference.name,
        pid,
        ready=bool(body.get("ready")),
        alive=True,
        reason=str(body.get("reason") or ""),
        restarts=int(body.get("restarts") or 0),
    )


def takes_work(gateway_url: str, home: StackHome) -> bool:
    """True when the gateway leads and knows a ready node.

    One that waits for the lease of a killed predecessor reads, and refuses every write for some seconds.
    """
    status = gateway_status(gateway_url, home)
    return bool(status.get("leader") and (status.get("nodes") or {}).get("ready"))


def gateway_status(gateway_url: str, home: StackHome) -> dict[str, Any]:
    """Empty when the gateway does not answer."""
    try:
        return _get_json(f"{gateway_url}/v1/status", home.token(home.api_token))
    except OSError:
        return {}


def _get_json(url: str, token: str | None = None) -> dict[str, Any]:
    request = urllib.request.Request(url)  # noqa: S310 - our own loopback address
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with _OPENER.open(request, timeout=1.0) as response:
            return dict(json.load(response))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))
    except ValueError as error:
        raise OSError(f"no JSON at {url}") from error


def waiting_for(states: Iterable[ServiceState]) -> str:
    missing = [f"{state.service} ({state.reason})" for state in states if not state.ready]
    return "waiting for " + (", ".join(missing) or "the gateway to lead and the node to report")
