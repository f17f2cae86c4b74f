import pytest

from cotenant_common.bus.provenance import was_asked, was_published, was_stored_by_a_writer

USAGE = "cotenant.v1.tel.node.usage.n2"
READ = {"Nats-Stream": "KV_cotenant-nodes", "Nats-Subject": "$KV.cotenant-nodes.n1", "Nats-Sequence": "7"}
REPUBLISHED = {"Nats-Stream": "KV_cotenant-bindings", "Nats-Subject": "$KV.cotenant-bindings.u1.n1"}


@pytest.mark.parametrize("headers", [{}, {"ce-type": "pod.bound"}, {"traceparent": "00-1-1-01"}])
def test_what_a_user_published_is_believed(headers: dict[str, str]) -> None:
    assert was_published(USAGE, headers, "")
    assert was_published(USAGE, headers, "_INBOX.gateway.a.b")


def test_the_answer_to_a_read_is_not_believed_under_another_subject() -> None:
    assert not was_published(USAGE, READ, "")
    assert not was_stored_by_a_writer(READ)


def test_a_consumers_delivery_is_not_believed() -> None:
    assert not was_published(USAGE, {}, "$JS.ACK.KV_cotenant-nodes.x.1.7.1.1764612000000000000.0")


def test_a_buckets_own_republish_is_believed_below_its_destination_only() -> None:
    assert was_published("cotenant.v1.bound.n1.u1", REPUBLISHED, "")
    assert not was_published("cotenant.v1.bound.n1.u1", READ, "")
    assert not was_published(USAGE, REPUBLISHED, "")


@pytest.mark.parametrize("reply_to", ["", "cotenant.v1.cmd.pod.evict", "$KV.cotenant-specs.x", "_INBOXES.x"])
def test_a_command_that_nobody_waits_for_is_not_carried_out(reply_to: str) -> None:
    assert not was_asked("cotenant.v1.cmd.object.apply", {}, reply_to)
    assert was_asked("cotenant.v1.cmd.object.apply", {}, "_INBOX.quota.a.b")
