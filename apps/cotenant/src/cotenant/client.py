"""The gateway's HTTP API as Python calls. Errors carry the exit status that a command ends with."""

import asyncio
import json
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import aiohttp

from cotenant.errors import BadInputError, CotenantError, NoConnectionError, NotFoundError, RefusedError

Json = dict[str, Any]
Rows = list[Json]
T = TypeVar("T")

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed", "Deleted"})
_RESUME_DELAY_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=5)
_SNAPSHOT_TIMEOUT: Final = aiohttp.ClientTimeout(total=120, connect=5)
_STREAM_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=5, sock_read=None)


class CotenantClient:
    """One session with one gateway. Use it as ``async with``."""

    def __init__(self, base_url: str, token: str | None) -> None:
        self._base_url = base_url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = aiohttp.ClientSession(headers=headers, timeout=_TIMEOUT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def apply(
        self, manifests: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], *, dry_run: bool = False
    ) -> Rows:
        """Create or change objects, all or none; one result per object. Text keeps its numbers as they were written."""
        text = manifests if isinstance(manifests, str) else _as_documents(manifests)
        reply = await self._call(
            "POST", "/v1/apply", params=_flags(dryRun=dry_run), data=text.encode(), content_type="application/yaml"
        )
        return list(reply["results"])

    async def get(self, kind: str, name: str, namespace: str | None = "default") -> Json:
        return dict(await self._call("GET", _object_path(kind, namespace, name)))

    async def list(self, kind: str, namespace: str | None = None) -> Rows:
        params = {"namespace": namespace} if namespace else {}
        return list((await self._call("GET", f"/v1/objects/{quote(kind)}", params=params))["items"])

    async def delete(
        self, kind: str, name: str, namespace: str | None = "default", *, force: bool = False, dry_run: bool = False
    ) -> Json:
        params = _flags(force=force, dryRun=dry_run)
        return dict(await self._call("DELETE", _object_path(kind, namespace, name), params=params))

    async def pods(self, namespace: str | None = None) -> Rows:
        params = {"namespace": namespace} if namespace else {}
        return list((await self._call("GET", "/v1/pods", params=params))["items"])

    async def pod(self, name: str, namespace: str = "default") -> Json | None:
        """The latest incarnation's view, or None when there is no such pod."""
        found = [pod for pod in await self.pods(namespace) if pod["name"] == name]
        return max(found, key=lambda pod: int(pod.get("incarnation") or 0), default=None)

    async def nodes(self) -> Rows:
        return list((await self._call("GET", "/v1/nodes"))["items"])

    async def top(self, what: str) -> Rows:
        """``nodes``, ``pods`` or ``quotas``."""
        return list((await self._call("GET", f"/v1/top/{what}"))["items"])

    async def top_nodes(self) -> Rows:
        return await self.top("nodes")

    async def top_pods(self) -> Rows:
        return await self.top("pods")

    async def top_quotas(self) -> Rows:
        return await self.top("quotas")

    async def quota_tree(self, tree: str | None = None) -> Rows:
        params = {"tree": tree} if tree else {}
        return list((await self._call("GET", "/v1/quota/tree", params=params))["trees"])

    async def explain(self, pod: str, namespace: str = "default") -> Json:
        return dict(await self._call("GET", f"/v1/explain/{quote(namespace)}/{quote(pod)}"))

    async def why_not(self, node: str, pod: str, namespace: str = "default") -> Json:
        return dict(await self._call("GET", f"/v1/why-not/{quote(node)}/{quote(namespace)}/{quote(pod)}"))

    async def policy(self, node: str) -> Json:
        return dict(await self._call("GET", f"/v1/policy/{quote(node)}"))

    async def status(self) -> Json:
        return dict(await self._call("GET", "/v1/status"))

    async def snapshot(self) -> Json:
        """Every bucket with its revisions, and the latest usage."""
        return dict(await self._call("GET", "/v1/snapshot", timeout=_SNAPSHOT_TIMEOUT))

    async def evict(
        self,
        pod: str,
        namespace: str = "default",
        *,
        kind: str = "drain",
        message: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Ask the eviction gate to remove a pod. Raise RefusedError with the gate's reason."""
        body = {"namespace": namespace, "name": pod, "kind": kind, "dryRun": dry_run}
        if message:
            body["message"] = message
        return await self.ask_gate(body)

    async def ask_gate(self, body: Mapping[str, Any]) -> Json:
        """A request to the gate in full, with the id that makes it safe to repeat. Raise RefusedError."""
        return dict(await self._call("POST", "/v1/evict", data=json.dumps(body).encode()))

    async def cordon(self, node: str, *, dry_run: bool = False) -> Json:
        return dict(await self._call("POST", f"/v1/cordon/{quote(node)}", params=_flags(dryRun=dry_run)))

    async def uncordon(self, node: str, *, dry_run: bool = False) -> Json:
        return dict(await self._call("POST", f"/v1/uncordon/{quote(node)}", params=_flags(dryRun=dry_run)))

    async def drain(
        self, node: str, *, message: str | None = None, grace_s: int | None = None, dry_run: bool = False
    ) -> Json:
        """One pass of emptying a node: ``remaining`` pods, and the gate's answer for each."""
        params = _flags(dryRun=dry_run) | ({} if grace_s is None else {"grace_s": str(grace_s)})
        body = {"message": message} if message else {}
        return dict(await self._call("POST", f"/v1/drain/{quote(node)}", params=params, data=json.dumps(body).encode()))

    async def freeze(self, reason: str, *, by: str = "user", dry_run: bool = False) -> Json:
        body = json.dumps({"reason": reason, "by": by}).encode()
        return dict(await self._call("POST", "/v1/freeze", params=_flags(dryRun=dry_run), data=body))

    async def unfreeze(self, *, by: str = "user", dry_run: bool = False) -> Json:
        body = json.dumps({"by": by}).encode()
        return dict(await self._call("POST", "/v1/unfreeze", params=_flags(dryRun=dry_run), data=body))

    async def observe(
        self,
        *,
        nodes: Sequence[str] = (),
        namespaces: Sequence[str] = (),
        stop: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Only look at these, or with ``stop`` act again; none named is everything."""
        body = json.dumps({"nodes": list(nodes), "namespaces": list(namespaces)}).encode()
        path = "/v1/unobserve" if stop else "/v1/observe"
        return dict(await self._call("POST", path, params=_flags(dryRun=dry_run), data=body))

    async def observed(self) -> Json:
        """What is only observed, and what would have been done there."""
        return dict(await self._call("GET", "/v1/observe"))

    async def logs(
        self, pod: str, namespace: str = "default", *, tail: int | None = None, follow: bool = False
    ) -> AsyncIterator[str]:
        """Pieces of the pod's output as they come; ends with the pod."""
        params = _flags(follow=follow) | ({} if tail is None else {"tail": str(tail)})
        path = f"/v1/logs/{quote(namespace)}/{quote(pod)}"
        async with self._stream(path, params=params) as response:
            async for chunk in response.content.iter_any():
                yield chunk.decode("utf-8", "replace")

    async def events(
        self, *, follow: bool = True, since: str | None = None, types: Sequence[str] = (), last_id: str | None = None
    ) -> AsyncIterator[Json]:
        """Events in order, each once. A broken connection is resumed after the last event that was yielded.

        ``since`` is a sequence number or a time span such as ``10m``.
        """
        attempt = 0
        while True:
            try:
                async for event_id, event in self._read_events(
                    follow=follow, since=since, types=types, last_id=last_id
                ):
                    last_id, attempt = event_id or last_id, 0
                    yield event
                if not follow:
                    return
            except NoConnectionError:
                # Only a stream that once worked is worth waiting for: a wrong address should fail at once.
                if not follow or (last_id is None and attempt == 0) or attempt >= 60:
                    raise
            await asyncio.sleep(_RESUME_DELAY_S[min(attempt, len(_RESUME_DELAY_S) - 1)])
            attempt += 1

    async def _read_events(
        self, *, follow: bool, since: str | None, types: Sequence[str], last_id: str | None
    ) -> AsyncIterator[tuple[str | None, Json]]:
        params = {"follow": "true" if follow else "false"}
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        elif since is not None:
            params["since"] = since
        if types:
            params["type"] = ",".join(types)
        async with self._stream("/v1/events", params=params, headers=headers) as response:
            async for event_id, data in parse_server_sent_events(response.content):
                yield event_id, json.loads(data)

    async def wait_for(self, check: Callable[[], Awaitable[T | None]], *, timeout_s: float, every_s: float = 0.1) -> T:
        """Call ``check`` until it gives something true. Raise TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = await check()
            if found:
                return found
            if time.monotonic() >= deadline:
                raise TimeoutError
            await asyncio.sleep(every_s)

    async def wait_pod(
        self, name: str, namespace: str = "default", *, phases: Sequence[str] = ("Running",), timeout_s: float = 60.0
    ) -> Json:
        """Wait until the pod is in one of the phases. Raise CotenantError when it ends in another or time runs out."""
        last: Json | None = None

        async def reached() -> Json | None:
            nonlocal last
            last = await self.pod(name, namespace)
            if last is None or last["phase"] in phases:
                return last
            if last["phase"] in TERMINAL_PHASES:
                raise CotenantError(f"pod {namespace}/{name} is {last['phase']}: {_why(last)}")
            return None

        try:
            return dict(await self.wait_for(reached, timeout_s=timeout_s))
        except TimeoutError:
            state = "unknown" if last is None else f"{last['phase']}: {_why(last)}"
            raise CotenantError(
                f"pod {namespace}/{name} is not {' or '.join(phases)} after {timeout_s:g} s ({state})"
            ) from None

    async def wait_gone(
        self, kind: str, name: str, namespace: str | None = "default", *, timeout_s: float = 60.0
    ) -> None:
        async def gone() -> bool:
            try:
                await self.get(kind, name, namespace)
            except NotFoundError:
                return True
            return False

        try:
            await self.wait_for(gone, timeout_s=timeout_s)
        except TimeoutError:
            raise CotenantError(f"{kind} {name} is still there after {timeout_s:g} s") from None

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> Any:
        headers = {"Content-Type": content_type} if data is not None else {}
        try:
            async with self._session.request(
                method, self._base_url + path, params=params, data=data, headers=headers, timeout=timeout
            ) as response:
                return await self._body(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_connection(error) from error

    @asynccontextmanager
    async def _stream(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.get(
                self._base_url + path, params=params, headers=headers, timeout=_STREAM_TIMEOUT
            ) as response:
                if response.status >= 400:
                    await self._body(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_connection(error) from error

    def _no_connection(self, error: Exception) -> NoConnectionError:
        cause = str(error) or type(error).__name__
        return NoConnectionError(f"no answer from the gateway at {self._base_url}: {cause}")

    async def _body(self, response: aiohttp.ClientResponse) -> Any:
        text = await response.text()
        try:
            body = json.loads(text) if text else {}
        except ValueError:
            body = {"message": text.strip()[:200]}
        if response.status >= 400:
            raise error_for(response.status, body)
        return body


def error_for(status: int, body: Mapping[str, Any]) -> CotenantError:
    """The exception for an answer that is no success; its text is the gateway's own sentence."""
    found = body.get("error")
    rest = {key: value for key, value in body.items() if key != "error"}
    details: Mapping[str, Any] = {**rest, **found} if isinstance(found, Mapping) else {}
    message = str(body.get("message") or details.get("message") or f"the gateway answered {status}")
    match status:
        case 404:
            return NotFoundError(message, details)
        case 401:
            return NoConnectionError(f"the gateway does not accept the token: {message}", details)
        case 403 | 409 | 429:
            return RefusedError(message, details)
        case _ if status < 500:
            return BadInputError(message, details)
        case _:
            return NoConnectionError(message, details)


async def parse_server_sent_events(lines: AsyncIterable[bytes]) -> AsyncIterator[tuple[str | None, str]]:
    """(id, data) of each event of a ``text/event-stream``; comments and empty events are dropped."""
    event_id: str | None = None
    data: list[str] = []
    async for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield event_id, "\n".join(data)
            data = []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            event_id = value
        elif field == "data":
            data.append(value)


def _as_documents(manifests: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """One JSON document per object: JSON is YAML, and integers and strings stay apart in it."""
    documents = [manifests] if isinstance(manifests, Mapping) else manifests
    return "\n---\n".join(json.dumps(document) for document in documents)


def _object_path(kind: str, namespace: str | None, name: str) -> str:
    return f"/v1/objects/{quote(kind)}/{quote(namespace or '-')}/{quote(name)}"


def _flags(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, value in flags.items() if value}


def _why(pod: Mapping[str, Any]) -> str:
    return str(pod.get("message") or pod.get("reason") or "no reason given")
