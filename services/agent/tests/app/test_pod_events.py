from cotenant_agent.app.pod_events import events_of, pod_event, status_key
from cotenant_common.bus.protocol import Entry, Op
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import PodStatusRecord

ENDED = PodStatusRecord(
    uid="u", namespace="default", name="p", node="n.1", phase="Failed", reason="OOMKilled", message="m", finished_ms=7
)


def _written(status: PodStatusRecord, revision: int = 5) -> Entry:
    return Entry(status_key(status.node, status.uid), codec.encode(status), revision, Op.PUT)


def test_what_was_written_and_not_told_gives_the_very_event() -> None:
    (again,) = events_of(_written(ENDED), "n.1", 99)
    assert again == pod_event("pod.finished", ENDED, 5, 7, "OOMKilled", "m")
    assert again.id != pod_event("pod.finished", ENDED, 6, 7, "OOMKilled", "m").id


def test_a_running_pod_another_node_and_what_cannot_be_read_tell_nothing() -> None:
    running = ENDED.model_copy(update={"phase": "Running", "finished_ms": None})
    assert events_of(_written(running), "n.1", 0) == []
    assert events_of(_written(ENDED), "n", 0) == []
    assert events_of(Entry("n_1.u", b"\xff", 1, Op.PUT), "n.1", 0) == []
    assert events_of(Entry("n_1.u", None, 1, Op.DELETE), "n.1", 0) == []


def test_a_refused_binding_is_told() -> None:
    refused = ENDED.model_copy(update={"phase": "Pending", "rejected": True, "finished_ms": None})
    (event,) = events_of(_written(refused), "n.1", 99)
    assert (event.type, event.at_ms) == ("pod.rejected", 99)
