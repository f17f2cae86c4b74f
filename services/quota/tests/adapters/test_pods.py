from typing import Any

from cotenant_common.contracts.messages.state import Deletion, SpecRecord
from cotenant_common.model import labels
from cotenant_common.testing import builders
from cotenant_quota.adapters.pods import pod_facts
from cotenant_quota.core.pods import Gang, PodFacts


def _facts(groups: dict[str, SpecRecord] | None = None, deletion: Deletion | None = None, **more: Any) -> PodFacts:
    record = builders.spec_record(builders.pod_manifest("p", cpu=1, **more), uid="u")
    found = pod_facts(record.model_copy(update={"deletion": deletion}), None, groups or {})
    assert found is not None
    return found


def test_a_gang_says_by_annotation_how_many_it_needs() -> None:
    names = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    assert _facts(annotations=names).gang == Gang("g", 3)


def test_a_pod_group_knows_better_than_the_annotation() -> None:
    group = SpecRecord(
        kind="PodGroup", namespace="default", name="g", uid="x", created_ms=0, manifest={"spec": {"minMember": 5}}
    )
    names = {"gang.scheduling.koordinator.sh/min-available": "3"}
    assert _facts({"default/g": group}, gang="g", annotations=names).gang == Gang("g", 5)


def test_of_a_gang_that_does_not_say_nobody_is_surplus() -> None:
    for text in ("", "many", "-1"):
        found = _facts(gang="g", annotations={"gang.scheduling.koordinator.sh/min-available": text}).gang
        assert found is not None
        assert found.min_member > 1_000_000


def test_what_the_gate_would_never_let_go_is_not_asked_for() -> None:
    assert _facts().evictable
    assert not _facts(annotations={labels.EVICTION_COST: "2147483647"}).evictable
    assert not _facts(priority=2_000_000_000).evictable


def test_a_pod_that_is_being_stopped_says_until_when() -> None:
    mark = Deletion(at_ms=1_000, grace_ms=5_000, reason="r", message="m", requested_by="x")
    assert _facts().leaving_until_ms is None
    assert _facts(deletion=mark).leaving_until_ms == 36_000


def test_a_pod_that_is_held_by_gates_asks_for_nothing() -> None:
    record = builders.spec_record(builders.pod_manifest("p", cpu=1), uid="u")
    gated = {**record.manifest, "spec": {**record.manifest["spec"], "schedulingGates": [{"name": "licence"}]}}
    found = pod_facts(record.model_copy(update={"manifest": gated}), None, {})
    assert found is not None
    assert (found.request, _facts().request) == ({}, {"cpu": 1000})
