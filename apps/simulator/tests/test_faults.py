"""Whatever is crashed, parted or disturbed, the outcome is that of a quiet day."""

from collections import Counter
from typing import Any

import pytest

from cotenant_common.testing.builders import pod_manifest

WORK: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work"},
    "spec": {
        "completions": 8,
        "parallelism": 4,
        "template": {
            "metadata": {"annotations": {"cotenant.io/sim-duration": "8s"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            },
        },
    },
}
KINDS = ("crash", "pause", "partition", "duplicate", "delay", "reorder")
TARGETS: list[dict[str, str]] = [
    *({"service": name} for name in ("gateway", "scheduler", "quota", "profiler", "descheduler", "bus")),
    {"service": "agent", "node": "n1"},
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["service"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_changes_nothing_in_the_end(simulated, node, target: dict[str, str], kind: str):
    found = simulated(
        duration="90s",
        objects=[node("n1"), WORK],
        timeline=[{"at": "4s", "fault": {**target, "kind": kind}, "for": "10s"}],
    )
    counted = Counter(event["type"] for event in found.data["events"])
    assert {pod["phase"] for pod in found.data["pods"].values()} == {"Succeeded"}
    assert (counted["pod.bound"], counted["pod.started"], counted["pod.finished"]) == (8, 8, 8)
    assert counted["pod.evicted"] == 0
    assert found.data["nodes"]["n1"]["requested"] == {}


def test_a_fault_without_an_end_holds_to_the_end(simulated, node):
    found = simulated(
        objects=[node("n1")],
        timeline=[
            {"at": "1s", "fault": {"service": "scheduler", "kind": "crash"}},
            {"at": "2s", "apply": [pod_manifest("a", cpu="1", memory="1Gi")]},
        ],
    )
    assert found.data["pods"]["default/a"]["phase"] == "Pending"


def test_at_one_instant_faults_come_first(simulated, node):
    """The pod is applied in the line above the crash, and still nobody is there to bind it."""
    found = simulated(
        objects=[node("n1")],
        timeline=[
            {"at": "5s", "apply": [pod_manifest("a", cpu="1", memory="1Gi")]},
            {"at": "5s", "fault": {"service": "scheduler", "kind": "crash"}, "for": "10s"},
        ],
    )
    bound = [event["t_ms"] for event in found.data["events"] if event["type"] == "pod.bound"]
    assert len(bound) == 1
    assert bound[0] >= 15_000


def test_a_crashed_agent_finds_its_pods_running(simulated, node):
    found = simulated(
        objects=[node("n1"), pod_manifest("a", cpu="1", memory="1Gi")],
        timeline=[{"at": "5s", "fault": {"service": "agent", "node": "n1", "kind": "crash"}, "for": "5s"}],
    )
    pod = found.data["pods"]["default/a"]
    assert (pod["phase"], pod["reason"], pod["incarnation"]) == ("Running", "Adopted", 0)
