"""backup and restore as commands: what they refuse, and that they say what to do instead."""

import hashlib
from pathlib import Path

import pytest

from cotenant.backup.archive import Manifest, StreamEntry, Writer
from cotenant.cli.main import main
from cotenant.stack.home import ProcessRef, StackHome, StackRecord, hold


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COTENANT_NATS_SERVERS", "COTENANT_NATS_TOKEN_FILE", "COTENANT_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def empty_backup(path: Path) -> Path:
    nothing_at_all = hashlib.sha256().hexdigest()
    entry = StreamEntry("KV_cotenant-specs", "streams/a", 0, nothing_at_all, 0, 0, {}, {})
    with Writer(path) as writer:
        with path.with_suffix(".empty").open("w+b") as nothing:
            writer.add("streams/a", nothing, 0)
        writer.finish(Manifest(1, "0.1.0", "test", (), (entry,)))
    return path


def record(root: Path) -> StackRecord:
    return StackRecord(
        process=ProcessRef.current(), mode="one process", node="here", gateway_url="http://127.0.0.1:1",
        nats_url="nats://127.0.0.1:1", started_ms=1, version="0.1.0", cgroup_root=root.name,
    )  # fmt: skip


def test_a_backup_without_a_stack_names_the_way_to_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(tmp_path / "home"), "backup", str(tmp_path / "file")]) == 4
    assert "name a server with --nats-server" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()


def test_a_restore_into_a_stack_that_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = StackHome(tmp_path / "home")
    home.create()
    record(tmp_path).save(home)
    path = empty_backup(tmp_path / "file")
    with hold(home):
        assert main(["--home", str(home.root), "restore", str(path), "--yes"]) == 5
    assert "services that write would be overtaken" in capsys.readouterr().err


def test_a_restore_from_standard_input_cannot_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "-"]) == 3
    assert "say --yes" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", str(tmp_path / "none"), "--yes"]) == 3
    assert "no such file" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.cli.operations._CONNECT_S", 0.2)
    assert main(["backup", str(tmp_path / "file"), "--nats-server", "nats://127.0.0.1:1"]) == 4
    token = ["--nats-token-file", str(tmp_path / "none")]
    assert main(["backup", str(tmp_path / "file"), "--nats-server", "nats://127.0.0.1:1", *token]) == 3
