"""A gateway that answers from memory and remembers what it was asked. Shipped, so that other programs can test too."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

TOKEN: Final = "secret"  # noqa: S105 - of the fake


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    query: Mapping[str, str]
    body: str


@dataclass(slots=True)
class FakeGateway:
    """``answers`` maps ``METHOD /path`` to (status, body). ``cut_after`` events a connection breaks."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, Any] | str]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    cut_after: int | None = None
    asked: list[Asked] = field(default_factory=list)
    resumed_from: list[str | None] = field(default_factory=list)
    url: str = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/events", self._events)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.method, request.path, dict(request.query), await request.text()))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"message": "expected a token"}, status=401)
        if request.path == "/v1/pods":
            space = request.query.get("namespace")
            return web.json_response({"items": [pod for pod in self.pods if space in (None, pod["namespace"])]})
        if request.path == "/v1/nodes":
            return web.json_response({"items": self.nodes})
        unknown = (404, {"message": f"no {request.path}"})
        status, body = self.answers.get(f"{request.method} {request.path}", unknown)
        if isinstance(body, str):
            return web.Response(text=body, status=status)
        return web.json_response(body, status=status)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID")
        self.resumed_from.append(last)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": hello\n\n")
        for sent, event in enumerate(self.events[int(last or 0) :]):
            if sent == self.cut_after and request.transport is not None:
                request.transport.abort()
                break
            number = int(last or 0) + sent + 1
            text = f"id: {number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"
            await response.write(text.encode())
        return response


@contextmanager
def serving(gateway: FakeGateway) -> Iterator[FakeGateway]:
    """Serve from a thread with a loop of its own: commands under test run theirs."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(gateway.app())

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
