"""What the file format promises, seen in outcomes."""

import json
from pathlib import Path
from typing import Any

import pytest

from cotenant_common.testing.builders import pod_manifest
from cotenant_simulator import ScenarioError, simulate


def times(found: Any, kind: str) -> list[int]:
    return [event["t_ms"] for event in found.data["events"] if event["type"] == kind]


def test_a_pod_starts_one_second_after_it_is_bound(simulated, node):
    found = simulated(objects=[node("n1"), pod_manifest("a", cpu="1", memory="1Gi")])
    assert times(found, "pod.started")[0] - times(found, "pod.bound")[0] == 1_000


def test_a_duration_ends_a_pod_for_good_whatever_its_restart_policy(simulated, node):
    lasting = pod_manifest("a", cpu="1", memory="1Gi", annotations={"cotenant.io/sim-duration": "5s"})
    found = simulated(objects=[node("n1"), lasting])
    assert found.data["pods"]["default/a"]["phase"] == "Succeeded"
    assert times(found, "pod.finished")[0] - times(found, "pod.started")[0] == 5_000


@pytest.mark.parametrize(("annotations", "takes_ms"), [({}, 1_000), ({"cotenant.io/sim-grace": "7s"}, 7_000)])
def test_termination_takes_a_second_or_what_is_said(simulated, node, annotations: dict[str, str], takes_ms: int):
    found = simulated(
        objects=[node("n1"), pod_manifest("a", cpu="1", memory="1Gi", annotations=annotations)],
        timeline=[{"at": "10s", "delete": [{"kind": "Pod", "namespace": "default", "name": "a"}]}],
    )
    assert times(found, "pod.deleted") == [10_000 + takes_ms]
    pod = found.data["pods"]["default/a"]
    assert (pod["phase"], pod["node"]) == ("Deleted", "n1")


def test_usage_replaces_what_it_names_and_follows_the_pod(simulated, node):
    found = simulated(
        objects=[node("n1"), pod_manifest("a", cpu="2", memory="1Gi"), pod_manifest("b", cpu="1", memory="1Gi")],
        timeline=[
            {"at": "5s", "usage": {"node": "n1", "pods": {"default/a": {"cpu": "500m"}}}},
            {"at": "6s", "usage": {"node": "n1", "system": {"cpu": "1", "memory": "1Gi"}}},
        ],
    )
    assert found.data["nodes"]["n1"]["usage"] == {"cpu": 2_500, "memory": 3 << 30}


def test_usage_for_a_while_ends(simulated, node):
    found = simulated(
        objects=[node("n1"), pod_manifest("a", cpu="2", memory="1Gi")],
        timeline=[{"at": "5s", "usage": {"pods": {"a": {"cpu": "7"}}}, "for": "10s"}],
        expect=[
            {"at": "10s", "node": "n1", "usage": {"cpu": "7"}},
            {"at": "20s", "node": "n1", "usage": {"cpu": "2"}},
        ],
    )
    assert found.ok


def test_a_system_that_was_never_set_is_unknown_and_sells_nothing(simulated, node):
    found = simulated(objects=[node("n1")], duration="2m")
    assert found.data["nodes"]["n1"]["batch"] == {"cpu": None, "memory": None}


def test_a_signal_is_what_the_guard_sees(simulated, node):
    batch = pod_manifest("batch", cpu="4", memory="1Gi", qos="BE", band="batch")
    web = pod_manifest("web", cpu="1", memory="1Gi", qos="LS", band="prod")
    found = simulated(
        duration="60s",
        objects=[node("n1"), web],
        timeline=[
            {"at": "0s", "usage": {"node": "n1", "system": {"cpu": "100m", "memory": "1Gi"}}},
            {"at": "15s", "apply": [batch]},
            {"at": "30s", "signal": {"node": "n1", "pod": "default/web", "sched_wait_ms": 12}, "for": "20s"},
        ],
    )
    assert times(found, "interference.detected")
    assert 30_000 < times(found, "interference.detected")[0] < 40_000


def test_a_deleted_node_ends_at_once(simulated, node):
    found = simulated(
        objects=[node("n1"), pod_manifest("a", cpu="1", memory="1Gi")],
        timeline=[{"at": "10s", "delete": [{"kind": "Node", "name": "n1"}]}],
    )
    assert found.data["nodes"] == {}
    pod = found.data["pods"]["default/a"]
    assert (pod["phase"], pod["incarnation"], pod["node"]) == ("Pending", 1, None)
    assert [event["reason"] for event in found.data["events"] if event["type"] == "pod.evicted"] == ["NodeLost"]


def test_what_the_gateway_refuses_is_bad_input_with_its_line(tmp_path: Path):
    file = tmp_path / "bad.yaml"
    file.write_text(
        """apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: x}
spec:
  duration: 10s
  objects:
    - apiVersion: v1
      kind: Pod
      metadata: {name: a}
      spec:
        priorityClassName: missing
        containers: [{name: main}]
"""
    )
    text, status = simulate(file)
    assert status == 3
    assert text.startswith(f"{file}:11: spec.priorityClassName: the PriorityClass 'missing' does not exist")


def test_a_node_without_cpu_is_bad_input(simulated):
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    with pytest.raises(ScenarioError, match=r"status\.capacity\.cpu"):
        simulated(objects=[bare])


def test_exit_status_says_whether_expectations_hold(tmp_path: Path):
    file = tmp_path / "x.yaml"
    head = "apiVersion: cotenant.io/v1\nkind: Scenario\nmetadata: {name: x}\nspec:\n  duration: 1s\n  expect:\n"
    file.write_text(head + "    - {at: end, count: {event: pod.bound}, equals: 0}\n")
    text, status = simulate(file, "json")
    assert status == 0
    assert json.loads(text)["expectations"] == [
        {"at": "end", "count": {"event": "pod.bound"}, "equals": 0, "ok": True, "got": 0}
    ]
    file.write_text(head + "    - {at: end, pod: a, phase: Running}\n")
    text, status = simulate(file)
    assert status == 1
    assert "FAILED" in text
    assert simulate(tmp_path / "missing.yaml")[1] == 3


def test_another_seed_is_another_run_of_the_same_story(simulated, node):
    objects = [node("n1"), node("n2"), pod_manifest("a", cpu="1", memory="1Gi")]
    assert simulated(objects=objects, seed=1).json() == simulated(objects=objects, seed=1).json()
    assert simulated(objects=objects, seed=2).data["pods"]["default/a"]["phase"] == "Running"


def test_the_table_shows_the_figures_that_are_known_and_not_zero(simulated, node):
    text = simulated(objects=[node("n1"), pod_manifest("a", cpu="1", memory="1Gi")]).table()
    figures = text[text.index("FIGURE") :].split("\n\n")[0]
    assert "nodes_used_max" in figures
    assert "preemptions" not in figures
    assert "None" not in figures
