"""`cotenant replay` as a user types it."""

import json
from pathlib import Path

import pytest

from cotenant.cli.main import main

TABLE = "submit_s,duration_s,num_gpus,vc\n0,60,1,a\n30,60,2,a\n60,x,1,a\n"


def trace(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    path.write_text(TABLE)
    return str(path)


def test_a_replay_is_written_run_and_told(tmp_path: Path, capsys) -> None:
    target = tmp_path / "again.yaml"
    status = main(
        ["replay", trace(tmp_path), "--from", "0", "--nodes", "1", "-o", "json", "--write-scenario", str(target)]
    )
    shown = capsys.readouterr()
    assert status == 0
    data = json.loads(shown.out)
    assert data["jobs"]["finished"] == 2
    assert data["left_out"] == [
        {"reason": "broken row: duration_s is no number", "count": 1, "first_at": ["jobs.csv:4"]}
    ]
    assert main(["simulate", str(target), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == data["summary"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--from", "soon"], "--from: expected a duration"),
        (["--from", "9d"], "nothing to replay from 9d: jobs arrive from 0s to 30s"),
        (["--node-cpu", "many"], "--node-cpu: "),
        (["--node-memory", "0"], "--node-memory: expected more than zero"),
        (["--column", "cpu"], "--column: expected FIELD=NAME"),
        (["--format", "phily"], "--format: expected one of"),
        (["--policy", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--with", "nowhere.csv"], "nowhere.csv: no such file or folder"),
        (["--write-scenario", "/nowhere/x.yaml", "--from", "0"], "/nowhere/x.yaml: cannot be written"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, capsys, options: list[str], says: str) -> None:
    assert main(["replay", trace(tmp_path), *options]) == 3
    assert says in capsys.readouterr().err.splitlines()[-1]
