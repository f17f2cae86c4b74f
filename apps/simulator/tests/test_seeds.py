import json
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant_simulator import Many, simulate_many
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.run import load
from cotenant_simulator.trials import Trial, run_trials

SCENARIOS = Path(__file__).parents[3] / "scenarios"
SMALL = """
apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: small}
spec:
  seed: 4
  duration: 5s
  objects:
    - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: "2", memory: 1Gi}}}
    - apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: main, resources: {requests: {cpu: "1"}}}]}
  expect:
    - {at: end, pod: default/web, phase: Running}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_seeds_count_up_from_the_files_own_or_from_the_one_given(small):
    def seeds(**options: int) -> list[int]:
        text, status = simulate_many(Many([small], output="json", **options))
        assert status == 0
        return [run["seed"] for run in json.loads(text)["scenarios"][0]["policies"][0]["runs"]]

    assert seeds(seeds=2) == [4, 5]
    assert seeds(seeds=2, seed=9) == [9, 10]


def test_policies_report_and_tables_come_out_together(small, tmp_path):
    tight = tmp_path / "tight.yaml"
    tight.write_text(
        "objects:\n"
        "  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: 500m, memory: 1Gi}}}\n"
    )
    page, folder = tmp_path / "report.html", tmp_path / "out"
    text, status = simulate_many(Many([small], policies=("none", str(tight)), html=page, csv=folder))
    assert status == 1, "there is no room for the pod"
    assert f"FAILED {small}:15, policy tight, seed 4" in text
    assert f"written: {page}" in text
    assert "nobody waited" in page.read_text()
    assert "metadata: {name: small}" in page.read_text(), "the scenario's own text is in it"
    assert sorted(path.name for path in folder.iterdir()) == ["series.csv", "summary.csv"]


def test_processes_give_what_one_process_gives():
    scenario = load(SCENARIOS / "silence-is-not-idleness.yaml")
    trials = [Trial(_seeded(scenario, seed), "none") for seed in range(4)]
    apart = run_trials(trials)
    assert apart == [*run_trials(trials[:2]), *run_trials(trials[2:])], "few trials run in this process"
    assert [one.seed for one in apart] == [0, 1, 2, 3]


def _seeded(scenario: Scenario, seed: int) -> Scenario:
    return replace(scenario, seed=seed)


@pytest.mark.parametrize("count", [2, 5])
def test_what_the_gateway_refuses_is_said_once_with_its_place(tmp_path, count):
    broken = tmp_path / "broken.yaml"
    broken.write_text(SMALL.replace('{cpu: "2", memory: 1Gi}', "{pods: 9}"))
    text, status = simulate_many(Many([broken], seeds=count))
    assert status == 3
    assert text.startswith(f"{broken}:9: status.capacity.cpu: required")
    assert text.count("\n") == 1


def test_the_same_file_twice_is_a_slip(small):
    text, status = simulate_many(Many([small, small]))
    assert status == 3
    assert "given twice" in text
