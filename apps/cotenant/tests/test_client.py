"""The client against a real HTTP server that plays the gateway."""

import pytest

from cotenant.client import CotenantClient, error_for, parse_server_sent_events
from cotenant.errors import BadInputError, CotenantError, ExitStatus, NoConnectionError, NotFoundError, RefusedError
from cotenant.testing import TOKEN, FakeGateway


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadInputError),
        (401, NoConnectionError),
        (403, RefusedError),
        (404, NotFoundError),
        (409, RefusedError),
        (422, BadInputError),
        (429, RefusedError),
        (500, NoConnectionError),
        (503, NoConnectionError),
    ],
)
def test_every_http_status_has_its_exit_status(status: int, error: type[CotenantError]) -> None:
    found = error_for(status, {"message": "because"})
    assert type(found) is error
    assert str(found).endswith("because")


def test_exit_statuses_are_those_of_the_design() -> None:
    assert [int(status) for status in ExitStatus] == [0, 1, 2, 3, 4, 5, 130]


async def test_the_gateways_sentence_reaches_the_caller(gateway: FakeGateway) -> None:
    gateway.answers["GET /v1/policy/n1"] = (404, {"message": "no node n1"})
    async with CotenantClient(gateway.url, TOKEN) as client:
        with pytest.raises(NotFoundError, match="no node n1"):
            await client.policy("n1")


async def test_an_answer_that_is_no_json_is_shown_as_it_came(gateway: FakeGateway) -> None:
    gateway.answers["GET /v1/status"] = (502, "bad gateway")
    async with CotenantClient(gateway.url, TOKEN) as client:
        with pytest.raises(NoConnectionError, match="bad gateway"):
            await client.status()


async def test_nobody_listening_is_no_connection() -> None:
    async with CotenantClient("http://127.0.0.1:9", None) as client:
        with pytest.raises(NoConnectionError, match=r"127\.0\.0\.1:9"):
            await client.status()


async def test_a_wrong_token_names_the_token(gateway: FakeGateway) -> None:
    async with CotenantClient(gateway.url, "other") as client:
        with pytest.raises(NoConnectionError, match="token"):
            await client.status()


async def test_apply_keeps_text_as_it_was_written(gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/apply"] = (200, {"ok": True, "results": []})
    async with CotenantClient(gateway.url, TOKEN) as client:
        await client.apply("cpu: 0.10\n", dry_run=True)
    assert gateway.asked[0].body == "cpu: 0.10\n"
    assert gateway.asked[0].query == {"dryRun": "true"}


async def test_a_cut_event_stream_is_resumed_without_gap_or_duplicate(gateway: FakeGateway) -> None:
    gateway.events = [{"type": "pod.bound", "n": n} for n in range(7)]
    gateway.cut_after = 3
    seen = []
    async with CotenantClient(gateway.url, TOKEN) as client:
        async for event in client.events(follow=True):
            seen.append(event["n"])
            if len(seen) == 7:
                break
    assert seen == list(range(7))
    assert gateway.resumed_from == [None, "3", "6"]


async def test_events_of_a_gateway_that_never_answered_fail_at_once() -> None:
    async with CotenantClient("http://127.0.0.1:9", None) as client:
        with pytest.raises(NoConnectionError):
            await anext(client.events(follow=True))


async def test_the_latest_incarnation_is_the_pod(gateway: FakeGateway) -> None:
    gateway.pods = [
        {"namespace": "default", "name": "a", "incarnation": 1, "phase": "Running"},
        {"namespace": "default", "name": "a", "incarnation": 0, "phase": "Deleted"},
        {"namespace": "other", "name": "a", "incarnation": 9, "phase": "Running"},
    ]
    async with CotenantClient(gateway.url, TOKEN) as client:
        found = await client.pod("a")
        assert found is not None
        assert found["incarnation"] == 1
        assert await client.pod("b") is None


async def test_waiting_for_a_pod_tells_why_it_is_not_there(gateway: FakeGateway) -> None:
    gateway.pods = [{"namespace": "default", "name": "a", "phase": "Pending", "message": "no node has 9 cpu"}]
    async with CotenantClient(gateway.url, TOKEN) as client:
        with pytest.raises(CotenantError, match=r"not Running after 0.1 s \(Pending: no node has 9 cpu\)"):
            await client.wait_pod("a", timeout_s=0.1)


async def test_waiting_ends_early_when_the_pod_has_ended(gateway: FakeGateway) -> None:
    gateway.pods = [{"namespace": "default", "name": "a", "phase": "Failed", "message": "exit code 3"}]
    async with CotenantClient(gateway.url, TOKEN) as client:
        with pytest.raises(CotenantError, match="is Failed: exit code 3"):
            await client.wait_pod("a", timeout_s=60)


async def _lines(text: str):
    for line in text.splitlines(keepends=True):
        yield line.encode()


async def test_server_sent_events_may_have_several_data_lines_and_comments() -> None:
    text = ": keep-alive\n\nid: 4\ndata: {\ndata: }\n\nevent: x\ndata:1\r\n\r\ndata: cut"
    assert [found async for found in parse_server_sent_events(_lines(text))] == [("4", "{\n}"), ("4", "1")]
