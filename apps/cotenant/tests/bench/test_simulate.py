import json

import pytest

from cotenant.bench import simulate
from cotenant.cli import develop
from cotenant.errors import BadInputError
from cotenant.testing import quiet

MINUTE_MS = 60_000


def test_every_pod_runs_or_has_run_and_runs_are_alike() -> None:
    found = simulate.measure(2, 20, 2 * MINUTE_MS, 1_000, runs=2, seed=1, say=quiet)
    phases = ("running", "succeeded", "pending", "failed")
    assert [[one[phase] for phase in phases] for one in found["runs"]] == [[8, 12, 0, 0]] * 2
    assert (found["nodes"], found["pods"], found["virtual_s"]) == (2, 20, 120.0)
    assert found["wall_s"] > 0
    assert found["virtual_s_per_wall_s"] > 1
    assert found["rig"]["cores"] >= 1


def test_slow_reports_make_no_node_look_dead_and_no_metric_old() -> None:
    """An hour of it: longer than every time after which a reader gives up on reports that are not slow."""
    text = simulate.scenario(2, 4, 60 * MINUTE_MS, 60_000, 1)
    outcome = simulate.run(simulate.parse(text, "bench"))
    assert outcome.troubles == []
    types = [event["type"] for event in outcome.data["events"]]
    assert "node.notready" not in types
    assert "node.lost" not in types
    degraded = [
        event["data"].get("degraded") for event in outcome.data["events"] if event["type"] == "capacity.changed"
    ]
    assert degraded
    assert "MetricsExpired" not in degraded
    assert all(node["batch"]["cpu"] > 0 for node in outcome.data["nodes"].values())


def test_the_scenario_is_the_same_each_time_and_another_with_another_seed() -> None:
    assert simulate.scenario(3, 30, MINUTE_MS, 1_000, 1) == simulate.scenario(3, 30, MINUTE_MS, 1_000, 1)
    assert json.loads(simulate.scenario(3, 30, MINUTE_MS, 1_000, 7))["spec"]["seed"] == 7


@pytest.mark.parametrize(
    ("option", "text", "said"), [("--duration", "10", "a duration such as"), ("--telemetry", "1ms", "at least 100ms")]
)
def test_a_wrong_time_names_the_option(option: str, text: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said) as raised:
        develop._milliseconds(option, text, least_ms=100)
    assert str(raised.value).startswith(option)
