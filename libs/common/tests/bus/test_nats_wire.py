import asyncio

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from cotenant_common.bus import nats_wire
from cotenant_common.bus.nats_bus import NatsWire, _LeanClient
from cotenant_common.bus.protocol import BusUnavailableError, ConflictError
from cotenant_common.contracts.buckets import BINDINGS, BUCKETS, EVENTS_STREAM, HEARTBEATS, SPECS


def test_a_position_is_read_from_the_reply_subject_old_and_new() -> None:
    expected = nats_wire.Position(sequence=42, consumer_sequence=7, pending=3)
    assert nats_wire.parse_position("$JS.ACK.KV_x.consumer.1.42.7.1700000000.3") == expected
    assert nats_wire.parse_position("$JS.ACK.domain.hash.KV_x.consumer.1.42.7.1700000000.3.random") == expected


def test_a_wrong_sequence_is_a_conflict_that_tells_the_right_one() -> None:
    answer = b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 12"},"stream":"S","seq":0}'
    with pytest.raises(ConflictError) as caught:
        nats_wire.parse_answer(answer)
    assert caught.value.actual == 12


def test_a_server_that_is_not_ready_is_worth_a_retry_and_a_refusal_is_not() -> None:
    with pytest.raises(BusUnavailableError):
        nats_wire.parse_answer(b'{"error":{"code":503,"err_code":10008,"description":"system unavailable"}}')
    with pytest.raises(nats_wire.JetStreamError, match="10052"):
        nats_wire.parse_answer(b'{"error":{"code":500,"err_code":10052,"description":"no"}}')
    assert nats_wire.parse_answer(b"") == {}


def test_headers_are_read_as_the_client_reads_them() -> None:
    raw = b"Nats-Subject: $KV.b.k\r\nce-type:pod.bound\r\nempty:\r\nno colon\r\n"
    raw += b" odd\t: a: \xc3\xa9 \xff \r\nin side: x\r\n\r\n"
    assert _LeanClient._parse_header_lines(raw) == Client._parse_header_lines(raw)


def test_expectations_become_headers() -> None:
    assert nats_wire.expectation_headers("$KV.b.k", None, None) == {}
    assert nats_wire.expectation_headers("$KV.b.k", 0, None) == {nats_wire.EXPECTED: "0"}
    assert nats_wire.expectation_headers("$KV.b.u.n", 3, "$KV.b.u.*") == {
        nats_wire.EXPECTED: "3",
        nats_wire.EXPECTED_SUBJECT: "$KV.b.u.*",
    }
    assert nats_wire.value_headers(10) == {"Nats-TTL": "10s"}
    assert nats_wire.deletion_headers()["KV-Operation"] == "PURGE"


def test_only_keys_that_expire_are_written_lazily_and_they_take_no_batches() -> None:
    lazy = [spec.name for spec in BUCKETS if nats_wire.bucket_config(spec).get("persist_mode") == "async"]
    assert lazy == ["heartbeats", "leases"]
    assert all(("allow_atomic" in nats_wire.bucket_config(spec)) != (spec.name in lazy) for spec in BUCKETS)
    assert "persist_mode" not in nats_wire.bucket_config(HEARTBEATS, replicas=3)


def test_bucket_streams_keep_one_value_per_key_and_copy_what_is_declared() -> None:
    config = nats_wire.bucket_config(BINDINGS)
    assert config["max_msgs_per_subject"] == 1
    assert config["allow_direct"]
    assert config["republish"] == {
        "src": "$KV.cotenant-bindings.*.*",
        "dest": "cotenant.v1.bound.{{wildcard(2)}}.{{wildcard(1)}}",
    }
    assert "republish" not in nats_wire.bucket_config(SPECS)
    assert nats_wire.stream_config(EVENTS_STREAM)["duplicate_window"] == 120 * 10**9


def test_a_server_leaves_out_what_is_zero_so_that_is_no_difference() -> None:
    wanted = {"name": "S", "max_age": 0, "allow_atomic": True}
    assert nats_wire.differs(wanted, {"name": "S"}) == {"allow_atomic": True}
    assert nats_wire.differs(wanted, {"name": "S", "allow_atomic": True, "other": 1}) == {}


async def test_a_cancellation_that_meets_the_answer_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client before Python 3.12 returns the answer then; the task that was told to end went on for ever."""
    wire = NatsWire("test")
    answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()

    async def request(*_: object, timeout: float, **__: object) -> Msg:
        return await asyncio.wait_for(answer, timeout)

    async def connected(_timeout_s: float) -> None:
        return

    monkeypatch.setattr(wire.client, "request", request)
    monkeypatch.setattr(wire, "_until_connected", connected)
    asking = asyncio.create_task(wire.request("s", b"", timeout_s=5))
    await asyncio.sleep(0)
    answer.set_result(Msg(wire.client, data=b"late"))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_a_batch_that_lost_messages_on_the_way_may_be_sent_again() -> None:
    with pytest.raises(BusUnavailableError, match="incomplete"):
        nats_wire.raise_error({"code": 400, "err_code": 10176, "description": "atomic publish batch is incomplete"})
