"""Every wrong write, tried on a real server, and what each user does all day, which must keep working."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import nats
import pytest
from nats.aio.client import Client
from pydantic import SecretStr

from cotenant_common.bus.login import Login
from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import AccessDeniedError, BusUnavailableError, PermissionDeniedError, Put, Received
from cotenant_common.contracts import codec, server_config
from cotenant_common.contracts.buckets import BINDINGS, BUCKETS, NODES, PODSTATUS, SPECS
from cotenant_common.contracts.messages.state import NodeInventory
from cotenant_common.contracts.permissions import User, agent_user, observer_user, service_user
from cotenant_common.contracts.server_config import render_config, users_for
from cotenant_common.runtime.mirror import BucketMirror
from cotenant_common.testing.builders import node_inventory
from cotenant_common.testing.bus_cases import Watcher, until
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine"),
]

USERS = users_for(["n1", "n2"], ["siem", "other"])
CONFIG = render_config("test", server_config.Login.PASSWORD, {user: f"{user.name}-secret" for user in USERS})
EVENT = "cotenant.v1.evt.pod.bound.default.web"
SERVICES = ("gateway", "scheduler", "quota", "descheduler", "profiler")

# Written by hand, not from the declarations: what the generated rules are held against.
KEYS = {
    "specs.Pod.default.web": {"gateway"},
    "policies.n1": {"gateway"},
    "policies.n2": {"gateway"},
    "nodes.n1": {"agent-n1"},
    "nodes.n2": {"agent-n2"},
    "heartbeats.n1": {"agent-n1"},
    "heartbeats.n2": {"agent-n2"},
    "podstatus.n1.u1": {"agent-n1"},
    "podstatus.n2.u1": {"agent-n2"},
    "podstatus.announced.agent-n1": {"agent-n1"},
    "podstatus.announced.agent-n2": {"agent-n2"},
    "bindings.u1.n1": {"scheduler"},
    "bindings.lease.scheduler": {"scheduler"},
    "podsched.u1": {"scheduler"},
    "quotastatus.default": {"quota"},
    "overcommit.n1": {"profiler"},
    "migrations.m1": {"descheduler"},
    **{f"leases.{service}": {service} for service in SERVICES},
}
SUBJECTS = {
    **{f"$KV.cotenant-{key}": writers for key, writers in KEYS.items()},
    "cotenant.v1.tel.node.usage.n1": {"agent-n1"},
    "cotenant.v1.tel.node.signal.n2": {"agent-n2"},
    "cotenant.v1.tel.app.latency.default.web": {"application"},
    "cotenant.v1.bound.n1.u1": set(),
    "cotenant.v1.json.evt.pod.bound.default.web": {"gateway"},
    "cotenant.v1.cmd.object.apply": {"quota"},
    "cotenant.v1.cmd.pod.evict": {"scheduler", "quota", "descheduler", "agent-n1", "agent-n2"},
    "cotenant.v1.req.agent.logs.n1": {"gateway"},
    "cotenant.v1.req.scheduler.why_not": {"gateway", "descheduler"},
    "cotenant.v1.evt.node.suppressed.n1": {*SERVICES, "agent-n1"},
    EVENT: set(SERVICES),
    "_INBOX.scheduler.x.y": {"gateway"},
    "_INBOX.agent-n2.x.y": {"gateway"},
    "$JS.API.STREAM.DELETE.KV_cotenant-none": {"operator"},
    "$JS.API.STREAM.PURGE.KV_cotenant-none": {"operator"},
    "$JS.API.STREAM.UPDATE.KV_cotenant-specs": {"gateway", "operator"},
    "$JS.API.CONSUMER.CREATE.KV_cotenant-podstatus.x.$KV.cotenant-podstatus.n2.*": {*SERVICES, "operator", "agent-n2"},
    "$JS.API.CONSUMER.CREATE.COTENANT_EVENTS.observer-siem.cotenant.v1.evt.>": {
        "gateway",
        "operator",
        "observer-siem",
    },
    "$JS.API.DIRECT.GET.KV_cotenant-podstatus": {*SERVICES, "operator"},
}


def login(user: User) -> Login:
    return Login(user=user.name, password=SecretStr(f"{user.name}-secret"))


async def joined(server: NatsServer, user: User) -> NatsBus:
    return await connect([server.url], name=user.name, login=login(user), timeout_s=30)


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer(extra_config=CONFIG) as running:
        gateway = await joined(running, service_user("gateway"))
        for spec in BUCKETS:
            await gateway.bucket(spec)
        await gateway.publish_event(EVENT, b"first", event_id="1", headers={})
        await gateway.close()
        yield running


async def raw(server: NatsServer, user: User, errors: list[str]) -> Client:
    async def note(error: Exception) -> None:
        errors.append(str(error))

    return await nats.connect(server.url, error_cb=note, **login(user).options())


async def all_told(errors: list[str], count: int) -> None:
    await until(lambda: len(errors) >= count)


async def stored(operator: Client) -> dict[str, int]:
    """Last sequence of every stream."""
    found = {}
    for stream in ("COTENANT_EVENTS", *(spec.stream for spec in BUCKETS)):
        answer = await operator.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=30)
        found[stream] = json.loads(answer.data)["state"]["last_seq"]
    return found


async def test_every_wrong_write_of_every_user_is_refused_and_every_right_one_arrives(server: NatsServer) -> None:
    operator = await raw(server, USERS[-1], [])
    assert USERS[-1].name == "operator"
    for user in USERS:
        errors: list[str] = []
        client = await raw(server, user, errors)
        before = await stored(operator)
        wrong = [subject for subject, allowed in SUBJECTS.items() if user.name not in allowed]
        for subject in wrong:
            await client.publish(subject, b"x")
        await client.flush(30)
        await all_told(errors, len(wrong))
        told = {error.split('"')[1] for error in errors}
        assert told == {subject.lower() for subject in wrong}, user.name
        assert await stored(operator) == before, user.name
        own = [key for key, writers in KEYS.items() if user.name in writers]
        for key in own:
            await client.request(f"$KV.cotenant-{key}", b"x", timeout=30)
        for subject, allowed in SUBJECTS.items():
            if user.name in allowed and not subject.startswith(("$KV.", "$JS.")):
                await client.publish(subject, b"x")
        await client.flush(30)
        assert len(errors) == len(wrong), user.name
        assert sum((await stored(operator)).values()) >= sum(before.values()) + len(own), user.name
        await client.close()
    await operator.close()


async def test_nobody_may_listen_to_what_is_not_for_it(server: NatsServer) -> None:
    deaf_to = {
        agent_user("n1"): ("cotenant.v1.bound.n2.*", "cotenant.v1.req.agent.logs.n2", "$KV.>", "_INBOX.gateway.>", ">"),
        observer_user("siem"): ("cotenant.v1.cmd.>", "cotenant.v1.>", "$KV.>", "_INBOX.>"),
        service_user("quota"): ("_INBOX.gateway.>", "_INBOX.>", "$JS.API.>"),
    }
    for user, subjects in deaf_to.items():
        errors: list[str] = []
        client = await raw(server, user, errors)
        for subject in subjects:
            await client.subscribe(subject)
        await client.flush(30)
        await all_told(errors, len(subjects))
        assert all("subscription" in error for error in errors)
        await client.close()


async def test_what_services_and_agents_do_all_day_is_allowed(server: NatsServer) -> None:
    agent, scheduler = await joined(server, agent_user("n1")), await joined(server, service_user("scheduler"))
    nodes = await agent.bucket(NODES)
    await nodes.put("n1", codec.encode(node_inventory("n1")))
    with pytest.raises(PermissionDeniedError):
        await nodes.put("n2", b"x")
    mirror = BucketMirror(await scheduler.bucket(NODES), NodeInventory)
    running = asyncio.create_task(mirror.run())
    await mirror.wait_ready()
    assert sorted(mirror.items) == ["n1"]
    bindings = await scheduler.bucket(BINDINGS)
    await bindings.batch([Put("u1.n1", b"x", expect=0, expect_filter="u1.*"), Put("u2.n1", b"x")])
    await scheduler.publish_event(EVENT, b"x", event_id="e", headers={})
    status = await agent.bucket(PODSTATUS)
    await status.create("n1.u1", b"x")
    assert await status.keys("n1.*") == ["n1.u1"]
    assert await (await agent.bucket(BINDINGS)).keys("*.n1") == ["u1.n1", "u2.n1"]
    assert await (await agent.bucket(SPECS)).keys("Pod.>") == []
    running.cancel()
    await asyncio.wait([running])
    assert agent.error_counts == {"Error": 1}  # the one write that was refused above
    assert scheduler.error_counts == {}
    await agent.close()
    await scheduler.close()


async def test_opening_a_bucket_that_is_as_declared_asks_for_no_change(server: NatsServer) -> None:
    quota = await joined(server, service_user("quota"))
    for spec in BUCKETS:
        await quota.bucket(spec)
    await quota.last_event_sequence()
    assert quota.error_counts == {}
    await quota.close()


async def test_an_agent_waits_for_a_bucket_that_it_may_not_make() -> None:
    async with NatsServer(extra_config=CONFIG) as fresh:
        agent = await joined(fresh, agent_user("n1"))
        with pytest.raises(BusUnavailableError, match="no stream KV_cotenant-nodes yet"):
            await agent.bucket(NODES)
        await agent.close()


async def test_an_observers_consumer_goes_on_where_it_stopped(server: NatsServer) -> None:
    gateway = await joined(server, service_user("gateway"))
    seen = []
    for event_id in ("2", "3"):
        await gateway.publish_event(EVENT, event_id.encode(), event_id=event_id, headers={})
        errors: list[str] = []
        client = await raw(server, observer_user("siem"), errors)
        consumer = await client.jetstream().pull_subscribe(
            "cotenant.v1.evt.>", durable="observer-siem", stream="COTENANT_EVENTS"
        )
        for message in await consumer.fetch(10, timeout=2):
            seen.append(message.data)
            await message.ack_sync(timeout=30)
        assert errors == []
        await client.close()
    assert seen == [b"first", b"2", b"3"]
    await gateway.close()


async def test_a_wrong_password_and_an_unknown_user_are_refused_at_once(server: NatsServer) -> None:
    for user, password in (("agent-n1", "agent-n2-secret"), ("nobody", "x"), ("agent-n1", "")):
        with pytest.raises(AccessDeniedError, match=f"does not let agent in as '{user}': wrong user, password"):
            await connect([server.url], name="agent", login=Login(user=user, password=SecretStr(password)))


async def by_reply(agent: Client, subject: str) -> None:
    """Have the server send the agent's own key to any subject: it does not check where an answer goes."""
    own = "$KV.cotenant-nodes.n1"
    await agent.publish(f"$JS.API.DIRECT.GET.KV_cotenant-nodes.{own}", b"", reply=subject)
    await agent.flush(30)


async def by_delivery(agent: Client, subject: str) -> None:
    own = "$KV.cotenant-nodes.n1"
    config = {
        "name": f"x{abs(hash(subject))}",
        "filter_subject": own,
        "deliver_subject": subject,
        "ack_policy": "none",
        "deliver_policy": "all",
    }
    body = json.dumps({"stream_name": "KV_cotenant-nodes", "config": config, "action": "create"})
    call = f"$JS.API.CONSUMER.CREATE.KV_cotenant-nodes.{config['name']}.{own}"
    answer = json.loads((await agent.request(call, body.encode(), timeout=30)).data)
    assert "error" not in answer


@pytest.mark.parametrize("around", [by_reply, by_delivery])
async def test_what_an_agent_sends_around_the_permissions_is_believed_by_nobody(
    server: NatsServer, around: Callable[[Client, str], Awaitable[None]]
) -> None:
    gateway, scheduler = await joined(server, service_user("gateway")), await joined(server, service_user("scheduler"))
    obeyed: list[str] = []

    async def obey(received: Received) -> bytes:
        obeyed.append(received.subject)
        return b""

    async def believe(received: Received) -> None:
        obeyed.append(received.subject)

    command, usage = "cotenant.v1.cmd.object.apply", "cotenant.v1.tel.node.usage.n2"
    await gateway.serve(command, obey)
    await scheduler.subscribe(usage, believe)
    specs = await gateway.bucket(SPECS)
    await specs.put("Pod.default.web", b"genuine")
    agent = await raw(server, agent_user("n1"), [])
    await agent.request("$KV.cotenant-nodes.n1", b"forged", timeout=30)
    async with Watcher(await scheduler.bucket(SPECS)) as watcher:
        for subject in (command, usage, EVENT, "$KV.cotenant-specs.Pod.default.evil"):
            await around(agent, subject)
        await until(lambda: gateway.error_counts.get("forged") == 1 and scheduler.error_counts.get("forged") == 1)
        await specs.put("Pod.default.last", b"genuine")
        await until(lambda: any(entry.key == "Pod.default.last" for entry in watcher.entries))
    assert {entry.key for entry in watcher.entries} == {"Pod.default.web", "Pod.default.last"}
    assert await specs.keys("Pod.>") == ["Pod.default.last", "Pod.default.web"]
    await scheduler.publish_event(EVENT, b"last", event_id="2", headers={})
    async with aclosing(gateway.events(EVENT, after_sequence=0)) as events:
        assert [(await anext(events)).data for _ in range(2)] == [b"first", b"last"]
    assert obeyed == []
    for bus in (gateway, scheduler):
        await bus.close()
    await agent.close()


async def test_an_agent_cannot_roll_a_whole_bucket_up_into_its_own_key(server: NatsServer) -> None:
    first, second = await raw(server, agent_user("n1"), []), await raw(server, agent_user("n2"), [])
    await second.request("$KV.cotenant-nodes.n2", b"x", timeout=30)
    headers = {"Nats-Rollup": "all"}
    answer = json.loads((await first.request("$KV.cotenant-nodes.n1", b"x", timeout=30, headers=headers)).data)
    assert "rollup" in answer["error"]["description"]
    gateway = await joined(server, service_user("gateway"))
    assert await (await gateway.bucket(NODES)).keys() == ["n2"]
    for bus in (first, second, gateway):
        await bus.close()


async def test_a_bucket_of_an_earlier_version_loses_the_right_to_roll_up(server: NatsServer) -> None:
    operator = await raw(server, USERS[-1], [])
    stream = f"$JS.API.STREAM.%s.{NODES.stream}"
    config = json.loads((await operator.request(stream % "INFO", b"", timeout=30)).data)["config"]
    earlier = json.dumps({**config, "allow_rollup_hdrs": True}).encode()
    assert "error" not in json.loads((await operator.request(stream % "UPDATE", earlier, timeout=30)).data)
    gateway = await joined(server, service_user("gateway"))
    await gateway.bucket(NODES)
    now = json.loads((await operator.request(stream % "INFO", b"", timeout=30)).data)["config"]
    assert not now.get("allow_rollup_hdrs")
    await gateway.close()
    await operator.close()


async def test_the_operator_saves_a_bucket_and_puts_it_back(server: NatsServer) -> None:
    gateway, operator = await joined(server, service_user("gateway")), await joined(server, USERS[-1])
    specs = await gateway.bucket(SPECS)
    revision = await specs.put("Pod.default.web", b"x")
    snapshots = operator.snapshots()
    state, *pieces = [item async for item in snapshots.read(SPECS.stream)]
    with pytest.raises(PermissionDeniedError):
        await gateway.snapshots().remove(SPECS.stream)
    await snapshots.remove(SPECS.stream)
    await snapshots.write(state, pieces)
    entry = await specs.get("Pod.default.web")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"x", revision)
    await gateway.close()
    await operator.close()
