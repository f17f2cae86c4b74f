"""Every path of the API, its handler and its documentation in one table."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from cotenant_common.bus.protocol import BusError
from cotenant_gateway.adapters.events import EventFilter, Item, json_line, server_sent
from cotenant_gateway.adapters.http import asked
from cotenant_gateway.core.errors import ApiError, bad_request
from cotenant_gateway.core.yaml_source import Document, SourceError, load

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "application/json")
NDJSON: Final = "application/x-ndjson"
SSE: Final = "text/event-stream"
_WRITE_S: Final = 60.0
_LOOK_S: Final = 5.0
"""How often a silent stream looks whether its reader is still there."""
_SMALL: Final = 65_536


@dataclass(frozen=True, slots=True)
class Route:
    """``query`` documents the parameters; ``takes`` the body's media types."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: tuple[tuple[str, str], ...] = ()
    takes: tuple[str, ...] = ()
    gives: str = "application/json"
    status: int = 200


async def apply(request: web.Request) -> web.Response:
    documents = await _documents(await asked.body_text(request, YAML_TYPES))
    status, body = await asked.api(request).apply(documents, dry_run=asked.dry_run(request))
    return asked.answer(body, status)


async def _documents(text: str) -> list[Document]:
    """A megabyte of YAML takes seconds to parse; leases and probes of this process must not wait for it."""
    try:
        documents = load(text) if len(text) <= _SMALL else await asyncio.to_thread(load, text)
    except SourceError as error:
        document = f"document {error.document}, " if error.document else ""
        line = f"line {error.line}: " if error.line else ""
        fault = {"document": error.document, "line": error.line, "field": "", "message": str(error)}
        raise ApiError(400, "Invalid", f"{document}{line}{error}", None, {"errors": [fault]}) from error
    if not documents:
        raise bad_request("expected at least one object, got none")
    return documents


async def list_objects(request: web.Request) -> web.Response:
    query = request.query
    return asked.answer(
        {"items": asked.api(request).objects(request.match_info["kind"], query.get("namespace"), query.get("selector"))}
    )


async def get_object(request: web.Request) -> web.Response:
    return asked.answer(
        asked.api(request).object(request.match_info["kind"], asked.namespace(request), request.match_info["name"])
    )


async def delete_object(request: web.Request) -> web.Response:
    body = await asked.api(request).delete(
        request.match_info["kind"],
        asked.namespace(request),
        request.match_info["name"],
        force=asked.flag(request, "force"),
        grace_s=asked.number(request, "grace_s", 86_400),
        dry_run=asked.dry_run(request),
    )
    return asked.answer(body)


async def watch(request: web.Request) -> web.StreamResponse:
    kind = request.query.get("kind")
    if not kind:
        raise bad_request("required: the kind to watch, such as Pod", "kind")
    changes = asked.api(request).watch(kind, request.query.get("namespace"))
    return await _stream(request, NDJSON, _lines(changes))


async def _lines(changes: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async for change in changes:
        yield json.dumps(change).encode() + b"\n"


async def pods(request: web.Request) -> web.Response:
    query = request.query
    return asked.answer(
        {"items": asked.api(request).pods(query.get("namespace"), query.get("selector"), query.get("node"))}
    )


async def nodes(request: web.Request) -> web.Response:
    return asked.answer({"items": asked.api(request).nodes()})


async def node(request: web.Request) -> web.Response:
    return asked.answer(asked.api(request).node(request.match_info["node"]))


async def top(request: web.Request) -> web.Response:
    return asked.answer({"items": asked.api(request).top(request.match_info["what"])})


async def quota_tree(request: web.Request) -> web.Response:
    return asked.answer(await asked.api(request).quota_tree(request.query.get("tree")))


async def explain(request: web.Request) -> web.Response:
    return asked.answer(await asked.api(request).explain(request.match_info["namespace"], request.match_info["pod"]))


async def why_not(request: web.Request) -> web.Response:
    info = request.match_info
    return asked.answer(await asked.api(request).why_not(info["node"], info["namespace"], info["pod"]))


async def policy(request: web.Request) -> web.Response:
    return asked.answer(asked.api(request).policy(request.match_info["node"]))


async def status(request: web.Request) -> web.Response:
    return asked.answer(asked.api(request).status())


async def snapshot(request: web.Request) -> web.Response:
    """A large cluster's copy takes a second to print; leases and probes of this process must not wait for it."""
    body = await asked.api(request).snapshot()
    text = await asyncio.to_thread(json.dumps, body, separators=(",", ":"))
    return web.Response(text=text, content_type="application/json")


async def healthz(request: web.Request) -> web.Response:
    good, body = asked.api(request).healthy()
    return asked.answer(body, 200 if good else 503)


async def logs(request: web.Request) -> web.StreamResponse:
    pieces = await asked.api(request).logs(
        request.match_info["namespace"],
        request.match_info["pod"],
        container=request.query.get("container"),
        tail=asked.number(request, "tail", 1_000_000),
        follow=asked.flag(request, "follow"),
    )
    return await _stream(request, "text/plain", _encoded(pieces), "utf-8")


async def _encoded(pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield piece.encode("utf-8", "replace")


async def events(request: web.Request) -> web.StreamResponse:
    query, api = request.query, asked.api(request)
    lines = query.get("format") == "ndjson" or (
        "format" not in query and NDJSON in request.headers.get("Accept", "") and SSE not in request.headers["Accept"]
    )
    wanted = EventFilter(tuple(filter(None, query.get("type", "").split(","))), query.get("object", ""))
    start = api.start_of(query.get("since"), request.headers.get("Last-Event-ID") or query.get("last_event_id"))
    forever = asked.flag(request, "follow") if "follow" in query else True
    items = api.events(start, wanted, forever=forever)
    render = json_line if lines else server_sent
    return await _stream(request, NDJSON if lines else SSE, _rendered(items, render))


async def _rendered(items: AsyncIterator[Item], render: Callable[[Item], bytes]) -> AsyncIterator[bytes]:
    async for item in items:
        yield render(item)


async def _stream(
    request: web.Request, content_type: str, chunks: AsyncIterator[bytes], charset: str | None = None
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    response.content_type = content_type
    if charset:
        response.charset = charset
    await response.prepare(request)
    try:
        async with aclosing(_while_read(request, chunks)) as open_chunks:
            async for chunk in open_chunks:
                async with asyncio.timeout(_WRITE_S):
                    await response.write(chunk)
        await response.write_eof()
    except (ConnectionError, TimeoutError, ApiError, BusError):
        # The status has left already: a closed connection is all that can still be said.
        response.force_close()
    return response


async def _while_read(request: web.Request, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """A reader that left is noticed by writing only: without a look, a silent stream would stay for ever."""
    pending: asyncio.Future[bytes] | None = None
    try:
        while request.transport is not None:
            pending = pending or asyncio.ensure_future(anext(chunks))
            done, _ = await asyncio.wait([pending], timeout=_LOOK_S)
            if done:
                finished, pending = pending, None
                yield finished.result()
    except StopAsyncIteration:
        return
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait([pending])
        await chunks.aclose()  # type: ignore[attr-defined]


async def evict(request: web.Request) -> web.Response:
    status_code, body = await asked.api(request).evict(await asked.body_json(request), dry_run=asked.dry_run(request))
    return asked.answer(body, status_code)


async def cordon(request: web.Request) -> web.Response:
    return asked.answer(
        await asked.api(request).cordon(request.match_info["node"], unschedulable=True, dry_run=asked.dry_run(request))
    )


async def uncordon(request: web.Request) -> web.Response:
    return asked.answer(
        await asked.api(request).cordon(request.match_info["node"], unschedulable=False, dry_run=asked.dry_run(request))
    )


async def drain(request: web.Request) -> web.Response:
    message = asked.sentence(await asked.optional_body(request), "message", "asked for by a user")
    grace_s = asked.number(request, "grace_s", 1_000_000)
    node_name = request.match_info["node"]
    return asked.answer(
        await asked.api(request).drain(node_name, message=message, grace_s=grace_s, dry_run=asked.dry_run(request))
    )


async def freeze(request: web.Request) -> web.Response:
    body = await asked.optional_body(request)
    reason, by = asked.sentence(body, "reason", "no reason given"), asked.sentence(body, "by", "user")
    return asked.answer(await asked.api(request).freeze(reason, by, dry_run=asked.dry_run(request)))


async def unfreeze(request: web.Request) -> web.Response:
    by = asked.sentence(await asked.optional_body(request), "by", "user")
    return asked.answer(await asked.api(request).unfreeze(by, dry_run=asked.dry_run(request)))


async def observe(request: web.Request) -> web.Response:
    body = await asked.optional_body(request)
    return asked.answer(await asked.api(request).observe(body, stop=False, dry_run=asked.dry_run(request)))


async def unobserve(request: web.Request) -> web.Response:
    body = await asked.optional_body(request)
    return asked.answer(await asked.api(request).observe(body, stop=True, dry_run=asked.dry_run(request)))


async def observed(request: web.Request) -> web.Response:
    return asked.answer(asked.api(request).observed())


async def openapi(_request: web.Request) -> web.Response:
    return asked.answer(openapi_document())


_DRY: Final = ("dry_run", "true: decide and answer, write nothing")
_NS: Final = ("namespace", "only this namespace")
_SEL: Final = ("selector", "labels, such as app=web,!old")

ROUTES: Final = (
    Route(
        "POST", "/v1/apply", apply, "Create or change objects: all of them, or none and every error",
        (_DRY,), YAML_TYPES,
    ),
    Route("GET", "/v1/objects/{kind}", list_objects, "Objects of one kind", (_NS, _SEL)),
    Route("GET", "/v1/objects/{kind}/{namespace}/{name}", get_object, "One object; namespace '-' for none"),
    Route(
        "DELETE", "/v1/objects/{kind}/{namespace}/{name}", delete_object, "Delete one object",
        (_DRY, ("force", "true: do not wait for the node"), ("grace_s", "seconds a pod has to stop")),
    ),
    Route("GET", "/v1/watch", watch, "Changes of one kind as they happen", (("kind", "required"), _NS), (), NDJSON),
    Route("GET", "/v1/pods", pods, "Pods with phase, node and reason", (_NS, _SEL, ("node", "only on this node"))),
    Route("GET", "/v1/nodes", nodes, "Nodes with capacity, batch resources and usage"),
    Route("GET", "/v1/nodes/{node}", node, "One node"),
    Route("GET", "/v1/top/{what}", top, "nodes, pods or quotas, busiest first"),
    Route("GET", "/v1/quota/tree", quota_tree, "Quotas: min, max, request, used, runtime", (("tree", "one tree"),)),
    Route("GET", "/v1/explain/{namespace}/{pod}", explain, "Why a pod is where it is, or why it waits"),
    Route("GET", "/v1/why-not/{node}/{namespace}/{pod}", why_not, "Why a pod does not run on a node"),
    Route(
        "GET", "/v1/logs/{namespace}/{pod}", logs, "A pod's output",
        (("container", "default: the only one"), ("tail", "last lines"), ("follow", "true: as it comes")),
        (), "text/plain",
    ),
    Route(
        "GET", "/v1/events", events, "Events in order; resume with the header Last-Event-ID",
        (
            ("since", "sequence, span such as 10m, or RFC 3339 time"), ("type", "types, comma-separated, pod.* works"),
            ("object", "Kind/namespace/name or the start of it"), ("follow", "false: end at the newest"),
            ("format", "ndjson, or by Accept"),
        ),
        (), SSE,
    ),
    Route("POST", "/v1/evict", evict, "Ask the eviction gate to remove pods", (_DRY,), ("application/json",)),
    Route("POST", "/v1/cordon/{node}", cordon, "Place nothing new on a node", (_DRY,)),
    Route("POST", "/v1/uncordon/{node}", uncordon, "Undo cordon", (_DRY,)),
    Route(
        "POST", "/v1/drain/{node}", drain, "One pass of emptying a node: cordon, and whoever may go goes; ask again",
        (_DRY, ("grace_s", "seconds each pod has to stop")), ("application/json",),
    ),
    Route("POST", "/v1/freeze", freeze, "No removal and no tightening until unfreeze", (_DRY,), ("application/json",)),
    Route("POST", "/v1/unfreeze", unfreeze, "Undo freeze", (_DRY,), ("application/json",)),
    Route("GET", "/v1/observe", observed, "What is only observed, and what would have been done there"),
    Route(
        "POST", "/v1/observe", observe, "Only look at nodes, namespaces, or everything when none is named",
        (_DRY,), ("application/json",),
    ),
    Route("POST", "/v1/unobserve", unobserve, "Act again there", (_DRY,), ("application/json",)),
    Route("GET", "/v1/policy/{node}", policy, "A node's policy with the source of each value"),
    Route("GET", "/v1/status", status, "Services, bus, nodes and pods in one look"),
    Route("GET", "/v1/snapshot", snapshot, "Every bucket with its revisions and the latest usage, to try things on"),
    Route("GET", "/v1/openapi.json", openapi, "This description"),
    Route("GET", "/healthz", healthz, "Alive? Needs no token"),
)  # fmt: skip


def openapi_document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cotenant gateway", "version": "1"},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR_SCHEMA},
        },
        "security": [{}, {"token": []}],
    }


_ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["reason", "message"],
            "properties": {"reason": {"type": "string"}, "message": {"type": "string"}, "field": {"type": "string"}},
        },
        "message": {"type": "string"},
    },
}


def _operation(route: Route) -> dict[str, Any]:
    in_path = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in in_path]
    parameters += [
        {"name": n, "in": "query", "description": text, "schema": {"type": "string"}} for n, text in route.query
    ]
    error = {
        "description": "what is wrong",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handler.__name__,
        "parameters": parameters,
        "responses": {str(route.status): {"description": "done", "content": {route.gives: {}}}, "default": error},
    }
    if route.takes:
        operation["requestBody"] = {"content": {media: {} for media in route.takes}}
    return operation
