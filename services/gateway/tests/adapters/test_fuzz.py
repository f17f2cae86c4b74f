"""The API and the bus under input that nobody would send: one clear answer each, nothing breaks, nothing grows."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_common.bus.protocol import BusError, Received
from cotenant_common.contracts import codec, subjects
from cotenant_common.contracts.messages.commands import ApplyRequest, EmergencyUsed, EvictReply, EvictRequest
from cotenant_common.contracts.messages.telemetry import NodeUsage, Usage
from cotenant_common.runtime import requests
from cotenant_common.testing.builders import pod_manifest
from cotenant_common.testing.virtual_loop import run
from cotenant_gateway.adapters.http.routes import ROUTES, Route
from cotenant_gateway.testing import stage

STREAMS = ("/v1/watch", "/v1/events", "/v1/logs/{namespace}/{pod}")
"""They answer for as long as the reader stays."""
KNOWN = ("Pod", "default", "a", "n1", "nodes", "-", "pods")
WORD = st.sampled_from(KNOWN) | st.text(max_size=8) | st.sampled_from(["%00", "..", "a" * 300, "\udcff", "💥", "'\"<"])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(KNOWN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELD = st.sampled_from(
    ["name", "namespace", "kind", "victims", "reason", "message", "by", "grace_s", "nodes", "namespaces", "numbers",
     "dryRun", "landing_node", "beneficiary", "deadline_ms"]
)  # fmt: skip
BODY = st.one_of(
    st.binary(max_size=60),
    VALUE.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(FIELD, VALUE, max_size=4).map(lambda value: json.dumps(value).encode()),
    st.just(json.dumps(pod_manifest("b", namespace="x" * 70)).encode()),
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    route: Route = draw(st.sampled_from([route for route in ROUTES if route.path not in STREAMS]))
    parts = [
        quote(draw(WORD), safe="", errors="replace") if part[:1] == "{" else part for part in route.path.split("/")
    ]
    names = [name for name, _ in route.query] + ["dry_run", "x"]
    query = {
        name: draw(WORD).encode("utf-8", "replace").decode()
        for name in draw(st.lists(st.sampled_from(names), max_size=2))
    }
    headers = {
        "Content-Type": draw(st.sampled_from([*route.takes, "application/json", "text/plain", "application/yaml"]))
    }
    options: dict[str, Any] = {"params": query, "headers": headers}
    if route.method != "GET":
        options["data"] = draw(BODY)
    return route.method, "/".join(parts) or "/", options


@settings(max_examples=25)
@given(st.lists(calls(), min_size=1, max_size=15))
def test_every_call_has_one_clear_answer(asked: list[tuple[str, str, dict[str, Any]]]) -> None:
    asyncio.run(_ask_all(asked))


async def _ask_all(asked: list[tuple[str, str, dict[str, Any]]]) -> None:
    async with stage(api_enabled=True, api_port=0) as s:
        base = f"http://127.0.0.1:{s.service.api_port}"
        await s.join("n1")
        await s.apply(pod_manifest("a"))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
            for method, path, options in asked:
                async with session.request(method, base + path, **options) as response:
                    text = await response.text()
                    assert response.status < 500 or response.status == 503, (response.status, text)
                    body = json.loads(text)
                    if response.status >= 400:
                        assert body["error"]["reason"], body
                        assert len(body["error"]["message"]) < 2_000
            async with session.get(f"{base}/healthz") as response:
                assert response.status == 200


SERVED = {
    subjects.POD_EVICT: EvictRequest(id="1", kind="drain", victims=[], requested_by="t", reason="Drained", message="m"),
    subjects.OBJECT_APPLY: ApplyRequest(id="1", manifests=[pod_manifest("a")], requested_by="t"),
    subjects.EMERGENCY_USED: EmergencyUsed(
        id="1", node="n1", victim={"uid": "u", "namespace": "d", "name": "a"}, reason="r", message="m", at_ms=1
    ),
}


@asynccontextmanager
async def listening():
    dead: list[Received] = []

    async def keep(received: Received) -> None:
        dead.append(received)

    async with stage() as s:
        await s.bus.subscribe("cotenant.v1.dead.>", keep)
        yield s, dead


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A message cut off, with a wrong type, or no message at all."""
    topic = draw(st.sampled_from([*SERVED]))
    whole = codec.encode(SERVED[topic])
    kind = draw(st.sampled_from(["cut", "bytes", "types", "huge"]))
    if kind == "cut":
        return topic.format(), whole[: draw(st.integers(0, len(whole) - 1))]
    if kind == "bytes":
        return topic.format(), draw(st.binary(max_size=40))
    if kind == "huge":
        return topic.format(), codec.pack({"id": "x" * 300_000, "junk": list(range(1_000))})
    fields = codec.unpack(whole)
    name = draw(st.sampled_from(sorted(fields)))
    return topic.format(), codec.pack({**fields, name: draw(st.sampled_from([None, [1], {"a": 1}, b"\xff"]))})


@settings(max_examples=40)
@given(st.lists(damaged(), min_size=1, max_size=10))
def test_a_damaged_message_is_answered_kept_and_counted(messages: list[tuple[str, bytes]]) -> None:
    run(_send_all(messages))


async def _send_all(messages: list[tuple[str, bytes]]) -> None:
    async with listening() as (s, dead):
        before = requests.malformed_total.get("gateway", 0)
        refused = 0
        for subject, data in messages:
            try:
                await s.bus.request(subject, data, timeout_s=5)
            except BusError:
                refused += 1
        await s.settle(0.1)
        assert refused == len(dead) == requests.malformed_total.get("gateway", 0) - before
        sound = EvictRequest(id="2", kind="drain", victims=[], requested_by="t", reason="r", message="m")
        assert (await s.call(subjects.POD_EVICT, sound, EvictReply)).reason == "NotFound"


def test_a_message_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    async def ask() -> None:
        async with listening() as (s, dead):
            later = codec.pack({**codec.unpack(codec.encode(SERVED[subjects.POD_EVICT])), "urgency": {"level": 9}})
            answer = await s.bus.request(subjects.POD_EVICT.format(), later, timeout_s=5)
            assert codec.decode(EvictReply, answer.data).reason == "NotFound"
            assert dead == []

    run(ask())


@pytest.mark.parametrize("known", [True, False])
def test_telemetry_of_nodes_that_are_none_is_not_kept(known: bool) -> None:
    async def send() -> None:
        async with listening() as (s, _):
            if known:
                await s.join("n1")
                await s.settle()
            for at in range(50):
                node = "n1" if known else f"ghost-{at}"
                usage = NodeUsage(node=node, at_ms=at, interval_ms=1, usage=Usage(), system=Usage(), pods=[])
                await requests.publish(s.bus, subjects.NODE_USAGE, usage, node=node)
            await s.settle()
            assert list(s.service.world.usage) == (["n1"] if known else [])

    run(send())
