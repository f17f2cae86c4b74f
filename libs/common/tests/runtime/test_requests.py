import asyncio

import pytest

from cotenant_common.bus.memory_bus import MemoryBus
from cotenant_common.bus.protocol import BusUnavailableError, NoResponderError, Received, RemoteError
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import BINDINGS
from cotenant_common.contracts.messages.commands import ExplainReply, ExplainRequest, LogsReply, LogsRequest
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.contracts.messages.telemetry import NodeUsage, Usage
from cotenant_common.contracts.subjects import AGENT_LOGS, BOUND, NODE_USAGE, SCHEDULER_EXPLAIN
from cotenant_common.runtime import requests
from cotenant_common.testing.bus_cases import until
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.virtual_loop import in_virtual_time

QUESTION = ExplainRequest(namespace="default", name="web")


def pair() -> tuple[MemoryBus, MemoryBus]:
    server = memory_server()
    return server.connect("gateway"), server.connect("scheduler")


def usage(node: str) -> NodeUsage:
    return NodeUsage(node=node, at_ms=1, interval_ms=1000, usage=Usage(), system=Usage(), pods=[])


@in_virtual_time
async def test_readers_in_one_process_share_the_message_and_its_bytes_are_those_of_the_wire() -> None:
    sender, reader = pair()
    typed: list[NodeUsage] = []
    raw: list[bytes] = []

    async def take(message: NodeUsage) -> None:
        typed.append(message)

    async def take_bytes(received: Received) -> None:
        raw.append(received.data)

    await requests.subscribe(reader, NODE_USAGE, take)
    await reader.subscribe("cotenant.v1.tel.node.usage.*", take_bytes)
    sent = usage("n1")
    await requests.publish(sender, NODE_USAGE, sent, node="n1")
    await asyncio.sleep(1)
    assert typed[0] is sent
    assert raw == [codec.encode(sent)]


@in_virtual_time
async def test_a_message_waits_out_a_pause_and_is_lost_in_a_partition() -> None:
    sender, reader = pair()
    seen: list[NodeUsage] = []

    async def take(message: NodeUsage) -> None:
        seen.append(message)

    await requests.subscribe(reader, NODE_USAGE, take)
    sender.partition()
    await requests.publish(sender, NODE_USAGE, usage("lost"), node="n1")
    sender.pause()
    waiting = asyncio.create_task(requests.publish(sender, NODE_USAGE, usage("late"), node="n1"))
    await asyncio.sleep(1)
    assert seen == []
    sender.heal()
    await waiting
    await asyncio.sleep(1)
    assert [one.node for one in seen] == ["late"]


async def explain(request: ExplainRequest) -> ExplainReply:
    return ExplainReply(found=True, state="Queued", message=request.name)


async def dead_letters(bus: MemoryBus) -> list[Received]:
    seen: list[Received] = []

    async def handle(received: Received) -> None:
        seen.append(received)

    await bus.subscribe("cotenant.v1.dead.>", handle)
    return seen


def test_ids_that_are_not_given_are_wildcards() -> None:
    assert requests.subject_for(NODE_USAGE) == "cotenant.v1.tel.node.usage.*"
    assert requests.subject_for(NODE_USAGE, node="a.b") == "cotenant.v1.tel.node.usage.a_b"
    assert requests.subject_for(BOUND, node="n1") == "cotenant.v1.bound.n1.*"


@in_virtual_time
async def test_a_call_is_answered() -> None:
    caller, server = pair()
    await requests.serve(server, SCHEDULER_EXPLAIN, explain)
    reply = await requests.call(caller, SCHEDULER_EXPLAIN, QUESTION, ExplainReply)
    assert reply == ExplainReply(found=True, state="Queued", message="web")


@in_virtual_time
async def test_a_topic_with_an_id_reaches_only_its_server() -> None:
    caller, agent = pair()

    async def logs(request: LogsRequest) -> LogsReply:
        return LogsReply(found=True, text=request.uid)

    await requests.serve(agent, AGENT_LOGS, logs, node="n1")
    assert (await requests.call(caller, AGENT_LOGS, LogsRequest(uid="u"), LogsReply, node="n1")).text == "u"
    with pytest.raises(NoResponderError):
        await requests.call(caller, AGENT_LOGS, LogsRequest(uid="u"), LogsReply, retries=0, node="n2")


@in_virtual_time
async def test_a_call_asks_again_until_somebody_serves() -> None:
    caller, server = pair()
    asking = asyncio.create_task(requests.call(caller, SCHEDULER_EXPLAIN, QUESTION, ExplainReply))
    await asyncio.sleep(0.5)
    await requests.serve(server, SCHEDULER_EXPLAIN, explain)
    assert (await asking).found


@in_virtual_time
async def test_silence_ends_after_the_retries() -> None:
    caller, server = pair()

    async def never(_: ExplainRequest) -> ExplainReply:
        await asyncio.sleep(1000)
        raise AssertionError

    await requests.serve(server, SCHEDULER_EXPLAIN, never)
    with pytest.raises(BusUnavailableError):
        await requests.call(caller, SCHEDULER_EXPLAIN, QUESTION, ExplainReply, timeout_s=1, retries=2)
    assert asyncio.get_running_loop().time() == pytest.approx(3.75)


@in_virtual_time
async def test_a_failure_of_the_server_is_not_retried() -> None:
    caller, server = pair()
    calls: list[int] = []

    async def fail(_: ExplainRequest) -> ExplainReply:
        calls.append(1)
        raise ValueError("no such pod index")

    await requests.serve(server, SCHEDULER_EXPLAIN, fail)
    with pytest.raises(RemoteError, match="no such pod index"):
        await requests.call(caller, SCHEDULER_EXPLAIN, QUESTION, ExplainReply)
    assert calls == [1]


@in_virtual_time
async def test_a_malformed_request_is_refused_buried_and_does_not_stop_the_server() -> None:
    caller, server = pair()
    before = requests.malformed_total.get("scheduler", 0)
    buried = await dead_letters(caller)
    await requests.serve(server, SCHEDULER_EXPLAIN, explain)
    with pytest.raises(RemoteError, match="expected ExplainRequest"):
        await caller.request(SCHEDULER_EXPLAIN.format(), b"\xc1", timeout_s=1)
    await until(lambda: len(buried) == 1)
    assert (buried[0].subject, buried[0].data) == ("cotenant.v1.dead.scheduler", b"\xc1")
    assert buried[0].headers["Cotenant-Subject"] == SCHEDULER_EXPLAIN.format()
    assert requests.malformed_total["scheduler"] == before + 1
    assert (await requests.call(caller, SCHEDULER_EXPLAIN, QUESTION, ExplainReply)).found


@in_virtual_time
async def test_a_malformed_sample_is_buried_and_the_next_one_handled() -> None:
    sender, receiver = pair()
    seen: list[str] = []

    async def handle(message: NodeUsage) -> None:
        seen.append(message.node)

    await requests.subscribe(receiver, NODE_USAGE, handle)
    await sender.publish(NODE_USAGE.format(node="n1"), b"garbage")
    await requests.publish(sender, NODE_USAGE, usage("n2"), node="n2")
    await until(lambda: seen == ["n2"])


@in_virtual_time
async def test_republished_writes_tell_key_message_and_revision() -> None:
    agent, scheduler = pair()
    seen: list[tuple[str, bool, int]] = []

    async def handle(key: str, message: Binding | None, revision: int) -> None:
        seen.append((key, message is not None, revision))

    await requests.subscribe_republished(agent, BOUND, handle, node="n1")
    bucket = await scheduler.bucket(BINDINGS)
    binding = Binding(
        uid="u1",
        namespace="default",
        name="web",
        node="n1",
        attempt=1,
        epoch=1,
        spec_digest="d",
        requests={},
        bound_ms=1,
    )
    await bucket.put("u1.n1", codec.encode(binding))
    await bucket.delete("u1.n1")
    await until(lambda: len(seen) == 2)
    assert seen == [("u1.n1", True, 1), ("u1.n1", False, 2)]


@in_virtual_time
async def test_a_duplicated_command_reaches_its_handler_twice_with_the_same_id() -> None:
    """The bus promises at least once; the id in the command is what makes the second time harmless."""
    caller, server = pair()
    names: list[str] = []

    async def note(request: ExplainRequest) -> ExplainReply:
        names.append(request.name)
        return await explain(request)

    from cotenant_common.bus.memory_link import Disturbance

    server.disturb(Disturbance(duplicate=True))
    await requests.serve(server, SCHEDULER_EXPLAIN, note)
    assert (await requests.call(caller, SCHEDULER_EXPLAIN, QUESTION, ExplainReply)).found
    await until(lambda: names == ["web", "web"])
