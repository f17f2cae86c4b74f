"""One stored sample per message: a change that old bytes do not survive fails here."""

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.contracts import codec
from cotenant_common.contracts.messages import commands, state
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.render import declared_messages

GOLDEN = Path(__file__).parent.parent / "golden"
MESSAGES = declared_messages()


def golden(model: type[Message]) -> dict[str, Any]:
    path = GOLDEN / f"{model.__name__}.v{model.version}.json"
    assert path.exists(), f"no sample of {model.__name__}: store one as {path.name} (JSON and its MessagePack as hex)"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("model", MESSAGES, ids=lambda model: model.__name__)
def test_the_stored_sample_still_decodes_to_the_same_message(model: type[Message]) -> None:
    stored = golden(model)
    from_bytes = codec.decode(model, bytes.fromhex(stored["msgpack"]))
    assert from_bytes == model.model_validate(stored["json"])


@pytest.mark.parametrize("model", MESSAGES, ids=lambda model: model.__name__)
def test_a_message_survives_the_wire(model: type[Message]) -> None:
    message = model.model_validate(golden(model)["json"])
    assert codec.decode(model, codec.encode(message)) == message


@pytest.mark.parametrize("model", MESSAGES, ids=lambda model: model.__name__)
def test_a_field_of_a_newer_publisher_is_ignored(model: type[Message]) -> None:
    value = {**golden(model)["json"], "from_the_future": {"a": 1}}
    assert codec.decode(model, codec.pack(value)) == model.model_validate(golden(model)["json"])


def test_messages_are_frozen() -> None:
    message = commands.ExplainRequest(namespace="default", name="web")
    with pytest.raises(ValueError, match="frozen"):
        message.name = "other"  # type: ignore[misc]


def test_unset_values_are_not_sent_and_come_back_as_unset() -> None:
    heartbeat = state.Heartbeat(node="n1", agent_id="a", at_ms=1)
    status = state.PodStatusRecord(uid="u", namespace="default", name="web", node="n1", phase="Running")
    assert set(msgpack.unpackb(codec.encode(heartbeat))) == {"node", "agent_id", "at_ms"}
    assert b"exit_code" not in codec.encode(status)
    assert codec.decode(state.PodStatusRecord, codec.encode(status)).exit_code is None


def test_unset_and_zero_stay_apart() -> None:
    unset = state.OvercommitRecord(node="n1", computed_ms=1)
    zero = state.OvercommitRecord(node="n1", batch={"cpu": 0}, computed_ms=1)
    assert codec.decode(state.OvercommitRecord, codec.encode(unset)).batch is None
    assert codec.decode(state.OvercommitRecord, codec.encode(zero)).batch == {"cpu": 0}


@given(st.binary(max_size=200))
def test_foreign_bytes_are_a_decode_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(state.Binding, data)


def test_a_decode_error_names_message_and_field() -> None:
    with pytest.raises(codec.DecodeError, match=r"Heartbeat: at_ms: .*integer"):
        codec.decode(state.Heartbeat, codec.pack({"node": "n1", "agent_id": "a", "at_ms": "soon"}))


def test_truncated_bytes_are_a_decode_error() -> None:
    data = codec.encode(state.Heartbeat(node="n1", agent_id="a", at_ms=1))
    with pytest.raises(codec.DecodeError, match="MessagePack"):
        codec.decode(state.Heartbeat, data[:-1])
