import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotenant_common.contracts import subjects
from cotenant_common.contracts.messages.commands import LogsReply, LogsRequest
from cotenant_common.runtime import requests
from cotenant_common.testing.builders import pod_manifest
from cotenant_gateway.adapters.http import asked, routes
from cotenant_gateway.adapters.http.routes import ROUTES, openapi_document
from cotenant_gateway.testing import Stage, stage

YAML = {"Content-Type": "application/yaml"}
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: main
    command: [sleep, "9"]
    resources: {requests: {cpu: 0.1, memory: 64Mi}}
"""


class Client:
    def __init__(self, stage: Stage, session: aiohttp.ClientSession) -> None:
        self.stage = stage
        self.session = session
        self.base = f"http://127.0.0.1:{stage.service.api_port}"

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.base + path, **options) as response:
            return response.status, await response.json()

    async def apply(self, text: str = POD, **options: Any) -> tuple[int, Any]:
        return await self.ask("POST", "/v1/apply", data=text, headers=YAML, **options)

    async def read_events(
        self, count: int, headers: dict[str, str] | None = None, **params: str
    ) -> list[tuple[str, Any]]:
        """The first ``count`` server-sent events as (id, data)."""
        found: list[tuple[str, Any]] = []
        identity = ""
        async with self.session.get(self.base + "/v1/events", params=params, headers=headers) as response:
            assert response.content_type == "text/event-stream"
            async for line in response.content:
                name, _, value = line.decode().strip().partition(": ")
                if name == "id":
                    identity = value
                elif name == "data":
                    found.append((identity, json.loads(value)))
                    if len(found) == count:
                        break
        return found


@asynccontextmanager
async def client(**settings: Any) -> AsyncIterator[Client]:
    async with (
        stage(api_enabled=True, api_port=0, **settings) as started,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
    ):
        yield Client(started, session)


async def test_a_pod_goes_in_and_comes_out_exact():
    async with client() as c:
        status, body = await c.apply()
        assert (status, body["results"][0]["action"]) == (200, "created")
        _, listing = await c.ask("GET", "/v1/pods")
        (view,) = listing["items"]
        assert (view["requests"]["cpu"], view["phase"], view["reason"]) == (100, "Pending", "Queued")
        status, shown = await c.ask("GET", "/v1/objects/pods/default/a")
        assert (status, shown["metadata"]["uid"], shown["status"]["phase"]) == (200, view["uid"], "Pending")
        assert (await c.ask("GET", "/v1/objects/Pod?selector=app%3Dx"))[1] == {"items": []}


async def test_errors_carry_document_line_and_field_and_change_nothing():
    async with client() as c:
        status, body = await c.apply(POD + "---\n" + POD.replace("name: a", "name: b").replace("command", "comand"))
        assert status == 400
        fault = body["error"]["errors"][0]
        assert (fault["document"], fault["line"]) == (2, 18)
        assert fault["field"] == "spec.containers[0].comand"
        assert "did you mean 'command'?" in body["error"]["message"]
        assert (await c.ask("GET", "/v1/pods"))[1] == {"items": []}


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "reason"),
    [
        ("GET", "/v1/nothing", {}, 404, "NotFound"),
        ("PUT", "/v1/apply", {}, 405, "MethodNotAllowed"),
        ("GET", "/v1/objects/Unicorn", {}, 404, "UnknownKind"),
        ("GET", "/v1/objects/Pod/default/none", {}, 404, "NotFound"),
        ("GET", "/v1/objects/Pod/default/a_b", {}, 400, "Invalid"),
        ("GET", "/v1/objects/Pod?selector=a%20b", {}, 400, "Invalid"),
        ("DELETE", "/v1/objects/Pod/default/none", {}, 404, "NotFound"),
        ("DELETE", "/v1/objects/Pod/default/none?grace_s=-1", {}, 400, "Invalid"),
        ("POST", "/v1/apply", {"data": "a: [", "headers": YAML}, 400, "Invalid"),
        ("POST", "/v1/apply", {"data": "", "headers": YAML}, 400, "Invalid"),
        ("POST", "/v1/apply", {"data": b"\xff\xfe", "headers": YAML}, 400, "Invalid"),
        ("POST", "/v1/apply", {"data": {"form": "x"}}, 415, "UnsupportedMediaType"),
        ("POST", "/v1/apply?dry_run=maybe", {"data": POD, "headers": YAML}, 400, "Invalid"),
        ("POST", "/v1/evict", {"json": {"nam": "a"}}, 400, "Invalid"),
        ("POST", "/v1/evict", {"json": {"name": "none"}}, 404, "NotFound"),
        ("POST", "/v1/evict", {"json": {"name": "a", "kind": "kill"}}, 400, "Invalid"),
        ("POST", "/v1/evict", {"json": []}, 400, "Invalid"),
        ("POST", "/v1/cordon/none", {}, 404, "NotFound"),
        ("GET", "/v1/policy/none", {}, 404, "NotFound"),
        ("GET", "/v1/nodes/none", {}, 404, "NotFound"),
        ("GET", "/v1/top/cats", {}, 404, "NotFound"),
        ("GET", "/v1/explain/default/none", {}, 404, "NotFound"),
        ("GET", "/v1/logs/default/none", {}, 404, "NotFound"),
        ("GET", "/v1/events?since=yesterday", {}, 400, "Invalid"),
        ("GET", "/v1/watch", {}, 400, "Invalid"),
        ("GET", "/v1/pods", {"headers": {"Host": "evil.example"}}, 403, "HostNotAllowed"),
        ("GET", "/v1/pods", {"headers": {"Origin": "http://evil.example"}}, 403, "OriginNotAllowed"),
    ],
)
async def test_every_error_is_json_with_one_sentence(method, path, options, status, reason):
    async with client() as c:
        got, body = await c.ask(method, path, **options)
        assert (got, body["error"]["reason"]) == (status, reason)
        assert len(body["error"]["message"]) > 10
        assert "\n" not in body["error"]["message"]


async def test_a_body_that_is_too_large_is_refused():
    async with client(max_body_bytes=1000) as c:
        status, body = await c.apply("# " + "x" * 2000)
        assert (status, body["error"]["reason"]) == (413, "TooLarge")


async def test_the_token_guards_everything_but_health(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    file.chmod(0o600)
    async with client(api_token_file=file) as c:
        assert (await c.ask("GET", "/v1/pods"))[0] == 401
        assert (await c.ask("GET", "/v1/pods", headers={"Authorization": "Bearer 0123456789abcdef"}))[0] == 200
        assert (await c.ask("GET", "/healthz"))[0] == 200


async def test_delete_says_what_happens():
    async with client() as c:
        await c.apply()
        status, body = await c.ask("DELETE", "/v1/objects/Pod/default/a?dryRun=true")
        assert (status, body["action"], body["dry_run"]) == (200, "deleted", True)
        assert (await c.ask("GET", "/v1/objects/Pod/default/a"))[0] == 200
        assert (await c.ask("DELETE", "/v1/objects/Pod/default/a"))[1]["object"] == "Pod/default/a"
        assert (await c.ask("GET", "/v1/objects/Pod/default/a"))[0] == 404


async def test_an_eviction_by_name_uses_the_gate():
    async with client() as c:
        await c.apply()
        status, body = await c.ask("POST", "/v1/evict", json={"name": "a"})
        assert (status, body["error"]["reason"]) == (409, "NotEvictable")
        await c.stage.join("n1")
        await c.stage.run_pod("a")
        status, body = await c.ask("POST", "/v1/evict?dry_run=true", json={"name": "a"})
        assert (status, body["granted"], body["dry_run"]) == (200, True, True)
        assert c.stage.pod("a").deletion is None
        status, body = await c.ask(
            "POST", "/v1/evict", json={"namespace": "default", "name": "a", "message": "maintenance"}
        )
        assert (status, body["granted"]) == (200, True)
        mark = c.stage.pod("a").deletion
        assert mark is not None
        assert (mark.kind, mark.message) == ("drain", "maintenance")


async def test_events_resume_without_gap_or_duplicate():
    async with client() as c:
        for n in range(6):
            await c.apply(POD.replace("name: a", f"name: p{n}"))
        first = await c.read_events(2, since="0")
        assert [data["object"] for _, data in first] == ["Pod/default/p0", "Pod/default/p1"]
        rest = await c.read_events(4, {"Last-Event-ID": first[-1][0]}, since="0")
        assert [data["object"] for _, data in rest] == [f"Pod/default/p{n}" for n in range(2, 6)]
        assert [int(identity) for identity, _ in first + rest] == sorted({int(i) for i, _ in first + rest})


async def test_events_that_happen_later_arrive():
    async with client() as c:
        reading = asyncio.create_task(c.read_events(1, type="pod.*", object="Pod/default/b"))
        while not c.stage.server.events.listeners:
            await asyncio.sleep(0.01)
        await c.apply()
        await c.apply(POD.replace("name: a", "name: b"))
        ((_, event),) = await reading
        assert (event["type"], event["object"]) == ("pod.queued", "Pod/default/b")


async def test_events_as_lines_end_without_follow():
    async with client() as c:
        await c.apply()
        async with c.session.get(c.base + "/v1/events?since=10m&follow=false&format=ndjson") as response:
            lines = [json.loads(line) for line in (await response.text()).splitlines()]
        assert [line["type"] for line in lines] == ["pod.queued"]


async def test_watch_begins_with_what_there_is():
    async with client() as c:
        await c.apply()
        async with c.session.get(c.base + "/v1/watch?kind=pods") as response:
            lines = [json.loads(await response.content.readline()) for _ in range(2)]
            await c.ask("DELETE", "/v1/objects/Pod/default/a")
            lines.append(json.loads(await response.content.readline()))
        assert [line["type"] for line in lines] == ["ADDED", "SYNCED", "DELETED"]


async def test_logs_come_in_pieces_from_the_agent():
    async with client() as c:
        await c.apply()
        status, body = await c.ask("GET", "/v1/logs/default/a")
        assert (status, body["error"]["reason"]) == (409, "NotStarted")
        await c.stage.run_pod("a")
        pieces = {None: ("one\n", "1"), "1": ("two\n", "2"), "2": ("", "2")}

        async def serve(request: LogsRequest) -> LogsReply:
            text, cursor = pieces[request.after]
            return LogsReply(found=True, text=text, cursor=cursor, running=False)

        await requests.serve(c.stage.bus, subjects.AGENT_LOGS, serve, node="n1")
        async with c.session.get(c.base + "/v1/logs/default/a?follow=true") as response:
            assert await response.text() == "one\ntwo\n"


async def test_a_silent_agent_or_scheduler_is_a_503():
    async with client() as c:
        await c.apply()
        await c.stage.join("n1")
        await c.stage.run_pod("a")
        assert (await c.ask("GET", "/v1/logs/default/a"))[0] == 503
        assert (await c.ask("GET", "/v1/why-not/n1/default/a"))[0] == 503
        status, story = await c.ask("GET", "/v1/explain/default/a")
        assert (status, story["node"]["name"]) == (200, "n1")


async def test_the_description_lists_every_route_once():
    document = openapi_document()
    assert sum(len(operations) for operations in document["paths"].values()) == len(ROUTES)
    async with client() as c:
        status, body = await c.ask("GET", "/v1/openapi.json")
        assert (status, body) == (200, json.loads(json.dumps(document)))
        assert (await c.ask("GET", "/v1/status"))[0] == 200
        assert (await c.ask("GET", "/v1/quota/tree"))[1]["source"] == "record"
        status, answer = await c.ask("GET", "/v1/quota/tree?tree=gold")
        assert (status, answer["message"]) == (404, "a tree of quotas gold does not exist")
        assert (await c.ask("GET", "/v1/top/nodes"))[0] == 200


async def test_json_lists_are_applied_too():
    async with client() as c:
        text = json.dumps([pod_manifest("x"), pod_manifest("y")])
        status, body = await c.ask("POST", "/v1/apply", data=text, headers={"Content-Type": "application/json"})
        assert (status, [result["name"] for result in body["results"]]) == (200, ["x", "y"])


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("POST", "/v1/evict", {"data": '{"numbers":' + "[" * 20_000 + "]" * 20_000 + "}", "headers": JSON}, 400),
        ("POST", "/v1/evict", {"json": {"name": "a", "numbers": {"x": 10**30}}}, 400),
        ("POST", "/v1/evict", {"json": {"name": "a", "grace_s": 10**18}}, 400),
        ("POST", "/v1/evict", {"data": '{"name":"a","message":"\\ud800"}', "headers": JSON}, 400),
        ("POST", "/v1/freeze", {"data": '{"reason":"\\ud800"}', "headers": JSON}, 400),
        ("POST", "/v1/freeze", {"json": {"reason": "a\0b"}}, 400),
        ("GET", "/v1/events?follow=false&since=" + "9" * 5000, {}, 400),
        ("GET", "/v1/logs/default/a?tail=" + "0" * 5000, {}, 400),
        ("GET", "/v1/logs/default/a?tail=000000000000999999999999", {}, 400),
        ("GET", "/v1/watch?kind=Unicorn", {}, 404),
        ("GET", "/v1/pods", {"headers": {"Origin": "http://[::1"}}, 403),
        ("POST", "/v1/apply", {"data": "[" * 50_000, "headers": JSON}, 400),
    ],
)
async def test_odd_input_is_one_clear_error(method: str, path: str, options: dict[str, Any], status: int):
    async with client() as c:
        await c.apply()
        await c.stage.join("n1")
        await c.stage.run_pod("a")
        got, body = await c.ask(method, path, **options)
        assert (got, bool(body["error"]["message"])) == (status, True)


async def test_an_id_of_a_store_that_is_gone_begins_at_the_start_of_the_new_one():
    async with client() as c:
        await c.apply()
        ((identity, event),) = await c.read_events(1, {"Last-Event-ID": "5000"})
        assert (int(identity), event["object"]) == (1, "Pod/default/a")


async def test_an_event_told_twice_is_shown_once():
    async with client() as c:
        await c.apply()
        await c.stage.settle(0.1)
        (stored,) = c.stage.server.events.replay(after_sequence=0, since_ms=None)
        for identity in ("again", "new"):  # the stream's own window for repeated ids is over
            await c.stage.bus.publish_event(stored.subject, stored.data, event_id=identity, headers={})
        async with c.session.get(c.base + "/v1/events?since=0&follow=false&format=ndjson") as response:
            assert len([line for line in (await response.text()).splitlines() if line]) == 1


async def test_a_reader_that_leaves_a_silent_stream_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes, "_LOOK_S", 0.05)
    async with client() as c:
        listeners = c.stage.service.world.listeners
        before = len(listeners)
        response = await c.session.get(c.base + "/v1/watch?kind=Job")
        await response.content.readline()
        assert len(listeners) == before + 1
        response.close()
        async with asyncio.timeout(5):
            while len(listeners) > before:
                await asyncio.sleep(0.02)


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asked, "_BODY_S", 0.05)
    async with client() as c:
        reader, writer = await asyncio.open_connection("127.0.0.1", c.stage.service.api_port)
        writer.write(b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: 1000\r\n\r\n{")
        assert b"408" in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


async def test_any_bytes_to_apply_are_answered_with_json_and_never_a_500():
    async with client() as c:

        async def send(data: bytes, kind: str) -> None:
            options = {"data": data, "headers": {"Content-Type": kind}}
            status, body = await c.ask("POST", "/v1/apply?dry_run=true", **options)
            assert status in (200, 400), (status, data)
            assert status == 200 or body["error"]["message"]

        for data in bodies():
            for kind in ("application/yaml", "application/json"):
                await send(data, kind)


def bodies() -> list[bytes]:
    """Damaged manifests, the same on every run."""
    draw = random.Random(7)
    alphabet = b"{}[]:,-&*!|>'\"%@`#\\\n\t \0ax0~\xff\xc3\xa9"
    found = [bytes(draw.choice(alphabet) for _ in range(draw.randrange(1, 40))) for _ in range(100)]
    for text in (POD.encode(), json.dumps(pod_manifest("a", cpu="1")).encode()):
        for _ in range(100):
            damaged = bytearray(text)
            for _ in range(draw.randrange(1, 4)):
                damaged[draw.randrange(len(damaged))] = draw.choice(alphabet)
            found.append(bytes(damaged))
    return found
