"""A gateway that answers from memory, and the command line in this process. Shipped, so that others can test too."""

import asyncio
import importlib.util
import io
import json
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest import mock

from aiohttp import web

from cotenant.cli.main import main

TOKEN: Final = "secret"  # noqa: S105 - of the fake


def quiet(_: str) -> None:
    """For what wants to say how far it is."""


def load_program(path: Path) -> ModuleType:
    """A program that belongs to no package, as a module; each call makes a fresh one."""
    specification = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    if specification is None or specification.loader is None:
        raise AssertionError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up by name
    specification.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Cli:
    """``cotenant --home HOME`` without a process of its own."""

    home: Path

    def __call__(self, *arguments: str, status: int | None = 0, text: str = "") -> str:
        """Run one command; return its output, with the errors when it is to fail. ``status`` None accepts every one.

        Raise AssertionError for another exit status.
        """
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", io.StringIO(text)):
            found = main(["--home", str(self.home), *arguments])
        if status is not None and found != status:
            raise AssertionError(f"{arguments}: {found}\n{out.getvalue()}{err.getvalue()}")
        return out.getvalue() + (err.getvalue() if status else "")

    def json(self, *arguments: str, status: int = 0, text: str = "") -> Any:
        """The first value of what is printed: a failing command says why after it."""
        return json.JSONDecoder().raw_decode(self(*arguments, "-o", "json", status=status, text=text))[0]

    def get(self, path: str) -> Any:
        """What the gateway answers, asked with this home's token."""
        url = self.json("status")["gateway_url"] + path
        token = (self.home / "api-token").read_text().strip()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return json.load(response)


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
