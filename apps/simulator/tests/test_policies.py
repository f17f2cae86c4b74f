import re
from pathlib import Path

import pytest

from cotenant_simulator import ScenarioError, parse
from cotenant_simulator.policies import Policy, apply_policy, choose_policy, named_apart, read_policy

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"
SCENARIO = """
apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: x}
spec:
  duration: 10s
  config: {descheduler: {consecutiveNormalities: 2, coolDownMs: 9000}}
  objects:
    - apiVersion: scheduling.sigs.k8s.io/v1alpha1
      kind: ElasticQuota
      metadata: {name: team, namespace: default}
      spec: {min: {cpu: "1"}, max: {cpu: "2"}}
"""
POLICY = """
config: {descheduler: {coolDownMs: 1000}}
objects:
  - apiVersion: scheduling.sigs.k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {name: team}
    spec: {min: {cpu: "2"}, max: {cpu: "4"}}
  - apiVersion: scheduling.sigs.k8s.io/v1alpha1
    kind: ElasticQuota
    metadata: {name: other}
    spec: {min: {cpu: "1"}, max: {cpu: "4"}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "tight.yaml"
    path.write_text(text)
    return path


def test_a_policy_wins_setting_by_setting_and_object_by_object(tmp_path):
    policy = read_policy(written(tmp_path, POLICY))
    assert policy.name == "tight"
    found = apply_policy(parse(SCENARIO), policy)
    assert found.overrides["descheduler"] == {"consecutive_normalities": 2, "cool_down_ms": 1000}
    assert [(one.data["metadata"]["name"], one.data["spec"]["min"]["cpu"]) for one in found.objects] == [
        ("team", "2"),
        ("other", "1"),
    ]


def test_the_policy_of_the_docs_is_one(tmp_path):
    (example,) = re.findall(r"```yaml\n(# tight.yaml\n.*?)```", PAGE.read_text(), re.DOTALL)
    policy = read_policy(written(tmp_path, example))
    assert policy.overrides["descheduler"] == {"high_thresholds": {"cpu": 70}}
    assert len(policy.objects) == 1


def test_the_scenario_as_written_and_shipped_names_are_policies():
    scenario = parse(SCENARIO)
    for name in ("none", "default"):
        unchanged = apply_policy(scenario, choose_policy(name))
        assert (unchanged.overrides, unchanged.objects) == (scenario.overrides, scenario.objects)
    for name in ("conservative", "observe"):
        assert apply_policy(scenario, choose_policy(name)).overrides["gateway"]["policy"] == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config:\n  gateway:\n    policy: wild\n", ":3: config.gateway.policy: "),
        ("config:\n  gateway:\n    polcy: observe\n", ":3: config.gateway.polcy: unknown field"),
        ("configs: {}\n", ":1: configs: unknown field"),
        ("objects:\n  - {apiVersion: v1, kind: Nude, metadata: {name: x}}\n", ":2: objects[0].kind: "),
        ("objects: 3\n", ":1: objects: expected a list"),
        ("{}\n", ":1: changes nothing"),
        ("a: [\n", ": not valid YAML"),
        ("config: {}\n---\nconfig: {}\n", ": expected one document"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_with_file_line_and_field(tmp_path, text: str, said: str):
    path = written(tmp_path, text)
    with pytest.raises(ScenarioError) as problem:
        read_policy(path)
    assert str(problem.value).startswith(str(path))
    assert said in str(problem.value)


def test_a_name_that_is_neither_file_nor_shipped_is_refused_with_the_names_there_are():
    with pytest.raises(ScenarioError, match="one of none, default, conservative, observe"):
        choose_policy("agressive")


def test_two_files_of_one_name_are_told_apart():
    first, second = Policy("p", "a/p.yaml"), Policy("p", "b/p.yaml")
    assert [one.name for one in named_apart([first, second])] == ["A: a/p.yaml", "B: b/p.yaml"]
    assert named_apart([Policy("p"), Policy("q")])[0].name == "p"
