"""What the bus does when the server restarts, dies, or comes back without its store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from cotenant_common.bus.nats_bus import NatsBus, UnsupportedServerError, connect
from cotenant_common.bus.protocol import (
    BusClosedError,
    BusUnavailableError,
    Entry,
    PermissionDeniedError,
    Put,
    Received,
    StoreReset,
)
from cotenant_common.contracts.buckets import BINDINGS, HEARTBEATS, SPECS, BucketSpec
from cotenant_common.testing.bus_cases import Watcher, until
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine"),
]


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer() as running:
        yield running


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    connected = await connect([server.url], name="test", timeout_s=30)
    yield connected
    await connected.close()


@pytest.mark.parametrize("kill", [False, True])
async def test_a_watch_goes_on_after_a_restart(server: NatsServer, bus: NatsBus, kill: bool) -> None:
    bucket = await bus.bucket(SPECS)
    await bucket.put("before", b"1")
    async with Watcher(bucket) as watcher:
        await server.restart(kill=kill)
        await bucket.put("after", b"2")
        await until(lambda: len(watcher.entries) == 2)
        assert [entry.key for entry in watcher.entries] == ["before", "after"]
        assert not any(isinstance(item, StoreReset) for item in watcher.items)


async def test_writes_made_by_others_while_away_are_seen(server: NatsServer, bus: NatsBus) -> None:
    bucket = await bus.bucket(SPECS)
    await bucket.put("gone", b"1")
    await bucket.put("kept", b"1")
    async with Watcher(bucket) as watcher:
        await server.kill()
        await until(lambda: not bus.connected)
        await server.start()
        async with NatsServerClient(server) as other:
            await (await other.bucket(SPECS)).delete("gone")
        await until(lambda: any(entry == Entry("gone", None, entry.revision, entry.op) for entry in watcher.entries))
        assert [entry.key for entry in watcher.entries] == ["gone", "kept", "gone"]


async def test_a_reconnect_wakes_who_waits_for_it(server: NatsServer, bus: NatsBus) -> None:
    waiting = asyncio.create_task(bus.wait_reconnected())
    await server.kill()
    await until(lambda: not bus.connected)
    assert not waiting.done()
    await server.start()
    async with asyncio.timeout(30):
        await waiting
    assert bus.connected


async def test_a_connection_that_is_closed_wakes_nobody_who_waits_for_a_reconnect(server: NatsServer) -> None:
    closing = await connect([server.url], name="closing", timeout_s=30)
    waiting = asyncio.create_task(closing.wait_reconnected())
    await asyncio.sleep(0)
    await closing.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


class NatsServerClient:
    """A second connection for the length of a block."""

    def __init__(self, server: NatsServer) -> None:
        self._server = server

    async def __aenter__(self) -> NatsBus:
        self._bus = await connect([self._server.url], name="other", timeout_s=30)
        return self._bus

    async def __aexit__(self, *_: object) -> None:
        await self._bus.close()


async def test_a_lost_store_is_told_as_a_new_world(server: NatsServer, bus: NatsBus) -> None:
    bucket = await bus.bucket(SPECS)
    await bucket.put("old", b"1")
    async with Watcher(bucket) as watcher:
        await server.kill()
        server.lose_store()
        await server.start()
        await until(lambda: any(isinstance(item, StoreReset) for item in watcher.items))
        await bucket.put("new", b"2")
        await until(lambda: watcher.entries[-1].key == "new")
        assert all(entry.value is not None for entry in watcher.entries)


async def test_a_deleted_stream_is_made_again_and_told(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_common.bus.nats_reader._MISSED_S", 1.0)
    bucket = await bus.bucket(SPECS)
    await bucket.put("old", b"1")
    async with Watcher(bucket) as watcher:
        await bus._api.call(f"STREAM.DELETE.{SPECS.stream}")
        await until(lambda: any(isinstance(item, StoreReset) for item in watcher.items))
        assert await bucket.put("new", b"2") == 1
        await until(lambda: watcher.entries[-1].key == "new")


async def test_after_a_long_absence_deletions_whose_markers_are_gone_are_found(
    server: NatsServer, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_common.bus.nats_bucket.DELETED_KEPT_S", 0.002)
    bucket = await bus.bucket(SPECS)
    for key in ("gone", "kept"):
        await bucket.put(key, b"1")
    async with Watcher(bucket) as watcher:
        await server.restart()
        async with NatsServerClient(server) as other:
            await other._api.call(f"STREAM.PURGE.{SPECS.stream}", {"filter": f"$KV.{SPECS.bucket}.gone"})
        # The read may have come back before the purge; a second outage is then the one that hides it.
        await server.restart()
        await until(lambda: watcher.entries[-1].key == "gone" or len(watcher.entries) > 4)
        assert watcher.entries[-1].value is None


async def test_events_are_followed_across_a_restart(server: NatsServer, bus: NatsBus) -> None:
    subject = "cotenant.v1.evt.node.hot.n1"
    seen: list[Received] = []

    async def follow() -> None:
        async with aclosing(bus.events("cotenant.v1.evt.>", after_sequence=0)) as events:
            async for received in events:
                seen.append(received)

    following = asyncio.create_task(follow())
    for i in range(3):
        await bus.publish_event(subject, b"%d" % i, event_id=f"a{i}", headers={})
    await server.restart(kill=True)
    for i in range(3, 6):
        await bus.publish_event(subject, b"%d" % i, event_id=f"a{i}", headers={})
    await until(lambda: len(seen) == 6)
    assert [received.data for received in seen] == [b"%d" % i for i in range(6)]
    following.cancel()
    await asyncio.wait([following])


async def test_subscriptions_and_requests_work_after_a_restart(server: NatsServer, bus: NatsBus) -> None:
    async def respond(received: Received) -> bytes:
        return received.data

    await bus.serve("cotenant.v1.req.test", respond)
    await server.restart(kill=True)
    async with NatsServerClient(server) as other:
        await until(lambda: bus.connected)
        assert (await other.request("cotenant.v1.req.test", b"x", timeout_s=5)).data == b"x"


async def test_a_write_while_the_server_is_away_waits_for_it(server: NatsServer, bus: NatsBus) -> None:
    bucket = await bus.bucket(SPECS)
    await server.kill()
    writing = asyncio.create_task(bucket.create("k", b"1"))
    await until(lambda: not bus.connected)
    await server.start()
    assert await writing == 1


async def test_a_request_in_flight_fails_with_its_connection_and_not_later(server: NatsServer, bus: NatsBus) -> None:
    async def never(_: Received) -> bytes:
        await asyncio.Event().wait()
        return b""

    await bus.serve("cotenant.v1.req.test", never)
    asking = asyncio.create_task(bus.request("cotenant.v1.req.test", b"", timeout_s=60))
    await bus.bucket(SPECS)
    await server.kill()
    with pytest.raises(BusUnavailableError):
        await asyncio.wait_for(asking, 30)


async def test_a_server_that_stays_away_is_unavailable_not_a_hang(server: NatsServer, bus: NatsBus) -> None:
    bucket = await bus.bucket(SPECS)
    await server.kill()
    with pytest.raises(BusUnavailableError):
        async with asyncio.timeout(30):
            await bucket.put("k", b"1")


async def test_connecting_to_nobody_gives_up_in_time() -> None:
    with pytest.raises(BusUnavailableError, match="no NATS server"):
        await connect(["nats://127.0.0.1:1"], name="test", timeout_s=0.3)


async def test_a_server_too_old_for_state_is_refused(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_common.bus.nats_bus.OLDEST_SERVER", (99, 0))
    with pytest.raises(UnsupportedServerError, match=r"expected nats-server 99\.0 or newer"):
        await connect([server.url], name="test", timeout_s=30)


async def test_a_retried_write_of_ones_own_is_no_conflict(bus: NatsBus) -> None:
    bucket = await bus.bucket(SPECS)
    lost: list[str] = []
    request = bus._wire.request

    async def lossy(subject: str, data: bytes, **rest: object) -> object:
        answer = await request(subject, data, **rest)
        if subject.startswith("$KV.") and not lost:
            lost.append(subject)
            raise BusUnavailableError("the answer was lost")
        return answer

    bus._wire.request = lossy
    assert await bucket.create("k", b"1") == 1
    assert lost


async def test_a_retried_batch_of_ones_own_is_no_conflict(bus: NatsBus) -> None:
    bucket = await bus.bucket(BINDINGS)
    lost: list[str] = []
    request = bus._wire.request

    async def lossy(subject: str, data: bytes, **rest: object) -> object:
        answer = await request(subject, data, **rest)
        if "Nats-Batch-Commit" in (rest.get("headers") or {}) and not lost:
            lost.append(subject)
            raise BusUnavailableError("the answer was lost")
        return answer

    bus._wire.request = lossy
    gang = [Put(f"u{i}.n1", b"x", expect=0, expect_filter=f"u{i}.*") for i in range(3)]
    assert await bucket.batch(gang) == 3
    assert await bucket.last_revision() == 3


async def test_every_acknowledged_write_survives_kills_and_none_conflicts_with_itself(
    server: NatsServer, bus: NatsBus
) -> None:
    bucket = await bus.bucket(BINDINGS)
    written: dict[str, int] = {}
    stop = asyncio.Event()

    async def write(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            key = f"{name}-{number}.n1"
            if number % 2:
                written[key] = await bucket.create(key, key.encode())
            else:
                gang = [Put(key, key.encode(), expect=0, expect_filter=f"{name}-{number}.*"), Put(f"x{name}.n2", b"")]
                written[key] = await bucket.batch(gang) - 1

    writing = [asyncio.create_task(write(f"w{i}")) for i in range(4)]
    for kills in range(4):
        await until(lambda kills=kills: len(written) >= 25 * (kills + 1))
        await server.restart(kill=True)
    await until(lambda: len(written) >= 125)
    stop.set()
    await asyncio.gather(*writing)
    for key, revision in written.items():
        entry = await bucket.get(key)
        assert entry == Entry(key, key.encode(), revision)


async def test_a_denied_publish_is_told_as_such() -> None:
    permissions = """
    authorization { users: [ { user: a, password: b, permissions: {
      publish: { allow: ["$JS.API.>", "_INBOX.>"] }, subscribe: [">"] } } ] }
    """
    async with NatsServer(extra_config=permissions) as server:
        bus = await connect([server.url.replace("//", "//a:b@")], name="test", timeout_s=30)
        bucket = await bus.bucket(SPECS)
        with pytest.raises(PermissionDeniedError, match="cotenant-specs"):
            await bucket.put("k", b"1")
        await bus.close()


async def test_a_client_closed_by_the_server_is_a_failure_not_silence(bus: NatsBus) -> None:
    await bus._wire.client._process_err("'Some Fatal Protocol Error'")
    assert "closed" in await asyncio.wait_for(bus.wait_failed(), 30)
    with pytest.raises(BusClosedError):
        await bus.publish("cotenant.v1.tel.x", b"")


async def test_a_watch_on_a_closed_connection_ends_with_an_error(bus: NatsBus) -> None:
    bucket = await bus.bucket(SPECS)

    async def watch() -> None:
        async with aclosing(bucket.watch()) as items:
            async for _ in items:
                pass

    watching = asyncio.create_task(watch())
    await bucket.put("k", b"1")
    await bus.close()
    with pytest.raises(BusClosedError):
        await asyncio.wait_for(watching, 30)


@pytest.mark.parametrize("spec", [SPECS, HEARTBEATS], ids=lambda spec: spec.name)
async def test_markers_of_deleted_keys_do_not_stay_for_ever(
    bus: NatsBus, spec: BucketSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_common.bus.nats_wire.DELETED_KEPT_S", 1)
    bucket = await bus.bucket(spec)
    await bucket.put("k", b"1")
    await bucket.delete("k")

    async def messages() -> int:
        return int((await bus._api.call(f"STREAM.INFO.{spec.stream}"))["state"]["messages"])

    assert await messages() == 1
    async with asyncio.timeout(30):
        while await messages():
            await asyncio.sleep(0.1)
    assert await bucket.create("k", b"2") > 2


async def test_two_services_open_one_bucket_at_once(server: NatsServer) -> None:
    buses = [await connect([server.url], name=f"s{i}", timeout_s=30) for i in range(4)]
    buckets = await asyncio.gather(*(bus.bucket(BINDINGS) for bus in buses))
    await buckets[0].put("u1.n1", b"x")
    assert [await bucket.keys() for bucket in buckets] == [["u1.n1"]] * 4
    for bus in buses:
        await bus.close()


async def test_a_bucket_of_an_older_release_is_brought_up_to_date(bus: NatsBus) -> None:
    await bus._api.call(
        f"STREAM.CREATE.{BINDINGS.stream}",
        {
            "name": BINDINGS.stream,
            "subjects": [f"$KV.{BINDINGS.bucket}.>"],
            "max_msgs_per_subject": 1,
            "storage": "file",
        },
    )
    await bus.bucket(BINDINGS)
    config = (await bus._api.call(f"STREAM.INFO.{BINDINGS.stream}"))["config"]
    assert config["allow_atomic"]
    assert config["allow_msg_ttl"]
    assert config["republish"]["dest"].startswith("cotenant.v1.bound.")
