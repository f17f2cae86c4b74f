from cotenant_agent.app.status import PodView, record_of
from cotenant_common.contracts.messages.state import Binding


def test_a_message_that_quotes_a_manifest_is_cut():
    binding = Binding(
        uid="u", namespace="default", name="web", node="n1", attempt=1, epoch=1, spec_digest="", requests={}, bound_ms=0
    )
    record = record_of(PodView(binding, "Pending", message="x" * 1_000_000, warnings=("y" * 1_000_000,)))
    assert len(record.message or "") < 3_000
    assert len(record.warnings[0]) < 3_000
