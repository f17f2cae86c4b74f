import json
from pathlib import Path

import pytest

from cotenant.cli.main import main

SCENARIO = """\
apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: small}
spec:
  seed: 1
  duration: 5s
  objects:
    - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: "2", memory: 1Gi, pods: "9"}}}
    - apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: main, image: none, resources: {requests: {cpu: "1"}}}]}
  expect:
    - {at: end, pod: default/web, phase: PHASE}
"""


def scenario(path: Path, phase: str = "Running") -> str:
    file = path / "small.yaml"
    file.write_text(SCENARIO.replace("PHASE", phase))
    return str(file)


def test_json_is_the_whole_outcome_and_the_same_every_time(tmp_path, capsys) -> None:
    file = scenario(tmp_path)
    assert main(["simulate", file, "-o", "json"]) == 0
    first = capsys.readouterr().out
    assert json.loads(first)["pods"]["default/web"]["node"] == "n1"
    assert main(["simulate", file, "-o", "json"]) == 0
    assert capsys.readouterr().out == first


def test_a_failed_expectation_is_status_one(tmp_path, capsys) -> None:
    assert main(["simulate", scenario(tmp_path, "Pending")]) == 1
    assert "expected phase 'Pending'" in capsys.readouterr().out


def test_an_unknown_field_is_named_with_file_and_line(tmp_path, capsys) -> None:
    file = tmp_path / "typo.yaml"
    file.write_text(SCENARIO.replace("duration", "duratoin"))
    assert main(["simulate", str(file)]) == 3
    message = capsys.readouterr().err
    assert "typo.yaml:6" in message
    assert "duratoin" in message


@pytest.mark.parametrize(
    "options",
    [
        ["--chaos", "1", "--seeds", "2"],
        ["--chaos", "1", "-o", "json"],
        ["--sample", "5s"],
        ["--sample", "soon", "--csv", "x.csv"],
        ["--sample", "1s500ms", "--csv", "x.csv"],
        ["--compare", "none"],
        ["--seeds", "0"],
    ],
)
def test_options_that_make_no_sense_are_bad_input(tmp_path, options) -> None:
    assert main(["simulate", scenario(tmp_path), *options]) == 3


def test_seeds_and_policies_side_by_side_as_json(tmp_path, capsys) -> None:
    file = scenario(tmp_path)
    assert main(["simulate", file, "--seeds", "2", "--compare", "none", "observe", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["scenarios"]
    assert [policy["policy"] for policy in found["policies"]] == ["none", "observe"]
    assert all(policy["expectations"] == {"held": 2, "of": 2} for policy in found["policies"])
    assert found["differences"]["evictions.total"]["mean"] == 0


def test_a_report_is_written(tmp_path, capsys) -> None:
    page = tmp_path / "report.html"
    assert main(["simulate", scenario(tmp_path), "--html", str(page), "--sample", "2s"]) == 0
    assert str(page) in capsys.readouterr().out
    assert "<svg" in page.read_text()
