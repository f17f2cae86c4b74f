from pathlib import Path

import pytest

from cotenant_agent.adapters.spec_files import SpecFiles
from cotenant_agent.app.survivors import Survivors, key_of
from cotenant_common.testing.builders import pod_manifest, spec_record


@pytest.fixture
def store(tmp_path: Path) -> SpecFiles:
    return SpecFiles(tmp_path / "specs")


def test_a_spec_outlives_the_agent_and_goes_with_its_pod(store: SpecFiles) -> None:
    record = spec_record(pod_manifest("a"))
    store.keep(record)
    assert SpecFiles(store.directory).read(record.uid) == record
    store.forget(record.uid)
    store.forget(record.uid)
    assert store.read(record.uid) is None


def test_a_file_that_nobody_can_read_is_no_spec(store: SpecFiles) -> None:
    store.keep(spec_record(pod_manifest("a")))
    (store.directory / "u.spec").write_bytes(b"\xc1")
    assert store.read("u") is None


def test_a_disk_that_takes_nothing_keeps_nothing_and_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    store = SpecFiles(tmp_path / "taken")
    record = spec_record(pod_manifest("a"))
    store.keep(record)
    assert store.read(record.uid) is None
    store.forget(record.uid)


def test_a_survivor_is_told_with_what_it_was_started_from(store: SpecFiles) -> None:
    record = spec_record(pod_manifest("a"))
    survivors = Survivors("n1", store)
    survivors.keep(record)
    status = survivors.found(record.uid)
    assert status is not None
    assert (status.phase, status.node, status.reason, status.survivor) == ("Running", "n1", "Adopted", record)


def test_nobody_knows_the_name_of_a_pod_without_a_record(store: SpecFiles) -> None:
    assert Survivors("n1", store).found("unheard-of") is None
    assert Survivors("n1", None).found("unheard-of") is None


def test_a_name_given_to_another_pod_supersedes_the_survivor(store: SpecFiles) -> None:
    record = spec_record(pod_manifest("a"))
    survivors = Survivors("n1", store)
    survivors.keep(record)
    survivors.found(record.uid)
    other = record.model_copy(update={"uid": "other"})
    assert survivors.superseded(key_of(record), other) == record.uid
    assert survivors.superseded(key_of(record), record) is None
    assert survivors.superseded(key_of(record), None) is None
    survivors.bound(record.uid)
    assert survivors.superseded(key_of(record), other) is None
