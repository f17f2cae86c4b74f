"""The way out of a node that no stack command manages."""

from pathlib import Path

import pytest

from cotenant_agent import leave
from cotenant_agent.cgroup.writer import RestoreReport
from cotenant_agent.node import NodeEnd


def test_a_clean_end_is_told_with_its_numbers() -> None:
    end = NodeEnd(2, 1, 0, True, RestoreReport(9, 0))
    assert leave.sentence("n1", end) == "n1: 2 pods stopped, 9 knobs written back"


def test_what_is_left_is_named() -> None:
    end = NodeEnd(2, 1, 3, False, RestoreReport(9, 0, ("cpu.shares of ls: expected 1024, found 2",)))
    said = leave.sentence("n1", end)
    assert said.endswith(
        "but: 3 processes do not end; a cgroup is still in use; cpu.shares of ls: expected 1024, found 2"
    )


def test_a_node_without_groups_and_pods_leaves_with_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COTENANT_CONFIG", raising=False)
    for name, value in (("NODE", "n1"), ("STATE_DIR", tmp_path / "state"), ("CGROUP_FS", tmp_path)):
        monkeypatch.setenv(f"COTENANT_AGENT_{name}", str(value))
    assert leave.main() == 0
    assert "n1: 0 pods stopped" in capsys.readouterr().out


def test_a_setting_that_cannot_be_used_is_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COTENANT_AGENT_CPUS", "x")
    assert leave.main() == 3
    assert "COTENANT_AGENT_CPUS" in capsys.readouterr().err
