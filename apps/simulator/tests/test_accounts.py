from typing import Any

import pytest

from cotenant_simulator import parse, run
from cotenant_simulator.accounts import Accounts
from cotenant_simulator.core.summary import flattened


def pod(name: str, cpu: str, qos: str = "LS", **annotations: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"koordinator.sh/qosClass": qos},
            "annotations": {f"cotenant.io/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }


def figures(outcome: Any) -> dict[str, float | None]:
    return flattened(outcome.data["summary"])


def test_what_was_used_is_told_by_class(simulated, node):
    web = pod("web", "2", sim_usage='{"cpu": "4", "memory": "8Gi"}')
    found = figures(simulated(objects=[node("n1", "8", "32Gi"), web], duration="101s"))
    assert found["utilisation_percent.cpu.prod"] == pytest.approx(50 * 100 / 101, abs=0.6), "it starts after a second"
    assert found["utilisation_percent.memory.prod"] == pytest.approx(25, abs=0.5)
    assert found["utilisation_percent.cpu.batch"] == 0
    assert found["utilisation_percent.cpu.system"] is None, "nobody said what the system uses"
    assert found["nodes_used_max"] == 1
    assert found["node_hours_used"] == pytest.approx(100 / 3600, abs=0.001)


def test_without_a_node_nothing_is_known(simulated):
    found = figures(simulated(objects=[pod("web", "1")]))
    assert found["utilisation_percent.cpu.total"] is None
    assert found["pressure_minutes"] is None
    assert found["waiting.prod.never_bound"] == 1


def test_a_service_that_gets_less_than_it_wants_is_under_pressure(simulated, node):
    hungry = pod("hungry", "1", sim_usage='{"cpu": "8"}')
    content = pod("content", "1")
    found = figures(simulated(objects=[node("n1", "4"), hungry, content], duration="61s"))
    assert found["pressure_minutes"] == pytest.approx(1, abs=0.05)


def test_a_summary_can_be_expected_while_it_runs(simulated, node):
    web = pod("web", "1", sim_usage='{"cpu": "8"}')
    expect = [
        {"at": "1s", "summary": {"pressure_minutes": 0}},
        {"at": "end", "summary": "pressure_minutes", "atLeast": "0.4"},
    ]
    outcome = simulated(objects=[node("n1", "4"), web], expect=expect)
    assert outcome.ok, outcome.verdicts


def test_a_batch_pod_that_completes_wastes_nothing_and_tells_its_delay(simulated, node):
    job = pod("job", "1", "BE", sim_duration="10s")
    job["spec"] |= {"restartPolicy": "Never", "priorityClassName": "koord-free"}
    found = figures(simulated(objects=[node("n1"), job]))
    assert found["batch_delay.mean_s"] == pytest.approx(1, abs=0.2), "the start"
    assert found["batch_work.wasted_cpu_milli_s"] == 0
    assert found["batch_work.done_cpu_milli_s"] == pytest.approx(10_000, abs=1_000)
    assert found["unfinished_pods"] == 0


SCENARIO = """
apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: busy}
spec:
  duration: 40s
  objects:
    - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: "4", memory: 8Gi}}}
    - apiVersion: v1
      kind: Pod
      metadata: {name: web, labels: {koordinator.sh/qosClass: LS}}
      spec: {containers: [{name: main, resources: {requests: {cpu: "2", memory: 1Gi}}}]}
  timeline:
    - {at: 0s, usage: {node: n1, system: {cpu: 200m, memory: 1Gi}}}
    - at: 12s
      apply:
        - apiVersion: v1
          kind: Pod
          metadata: {name: crunch, labels: {koordinator.sh/qosClass: BE}}
          spec:
            priorityClassName: koord-batch
            containers:
              - {name: main, resources: {requests: {kubernetes.io/batch-cpu: "1000", kubernetes.io/batch-memory: 1Gi}}}
    - {at: 20s, usage: {pods: {default/web: {cpu: "4", memory: 2Gi}}}}
"""


def test_neither_counting_nor_sampling_changes_what_happens(monkeypatch):
    scenario = parse(SCENARIO)
    counted, sampled = run(scenario), run(scenario, sample_ms=2_000)
    assert sampled.json() == counted.json()
    assert sampled.series is not None
    assert [point.t_ms for point in sampled.series.points] == list(range(500, 40_000, 2_000))
    assert counted.series is None
    monkeypatch.setattr(Accounts, "start", lambda _: None)
    blind = run(scenario)
    assert {**blind.data, "summary": None} == {**counted.data, "summary": None}


def test_the_series_is_what_the_kernel_gave():
    series = run(parse(SCENARIO), sample_ms=1_000).series
    assert series is not None
    at_15s, at_30s = series.points[15], series.points[30]
    assert at_15s.used["cpu"]["prod"] == 2_000
    assert at_15s.used["cpu"]["batch"] == 1_000
    assert at_15s.used["cpu"]["system"] == 200
    assert at_15s.requested["cpu"] == {"prod": 2_000, "mid": 0, "batch": 1_000, "free": 0}
    assert at_15s.pressed_pods == 0
    assert at_30s.pressed_pods == 1, "4 cores wanted, the system has some"
