import random
from pathlib import Path

import pytest
import yaml

from cotenant_simulator import ScenarioError, chaos, parse, simulate_chaos
from cotenant_simulator.core.scenario import Fault, Scenario
from cotenant_simulator.watch import Violation

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def test_a_seed_names_the_same_faults_every_time():
    chosen = [chaos.choose_faults(random.Random(5), 120_000, ["n1", "n2"], 8) for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 8
    assert all("node" in one["fault"] for one in chosen[0] if one["fault"]["service"] == "agent")


@pytest.mark.parametrize("seed", range(4))
def test_invariants_hold_under_random_faults(seed: int):
    path = SCENARIOS / "every-service-crashes.yaml"
    report = chaos.chaos(path.read_text(), str(path), seed)
    assert report.violations == (), report.file


def test_what_breaks_shrinks_to_what_is_needed(monkeypatch: pytest.MonkeyPatch):
    def breaks_when_quota_is_disturbed(scenario: Scenario) -> list[Violation]:
        faults = [entry.verb for entry in scenario.timeline if isinstance(entry.verb, Fault)]
        return [Violation(1, "broken")] if any(fault.service == "quota" for fault in faults) else []

    monkeypatch.setattr(chaos, "check", breaks_when_quota_is_disturbed)
    path = SCENARIOS / "idle-quota-is-lent.yaml"
    seed = next(
        seed
        for seed in range(100)
        if any(
            one["fault"]["service"] == "quota" for one in chaos.choose_faults(random.Random(seed), 60_000, ["n1"], 8)
        )
    )
    report = chaos.chaos(path.read_text(), str(path), seed)
    assert [one.message for one in report.violations] == ["broken"]
    assert report.file is not None
    left = yaml.safe_load(report.file)["spec"]
    assert left["objects"] == []
    assert [entry["fault"]["service"] for entry in left["timeline"]] == ["quota"]
    assert parse(report.file).name == f"idle-quota-is-lent-chaos-{seed}"


def test_chaos_needs_a_good_scenario(tmp_path: Path):
    with pytest.raises(ScenarioError):
        chaos.chaos("kind: Pod", "x", 1)
    assert simulate_chaos(tmp_path / "missing.yaml", 1)[1] == 3
