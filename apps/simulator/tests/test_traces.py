"""A table beside the scenario says what a pod wants, instant by instant."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant_simulator import ScenarioError, load, run
from cotenant_simulator.chaos import simulate_chaos


@pytest.fixture
def written(tmp_path: Path, node: Callable[..., dict[str, Any]]) -> Callable[..., Path]:
    def build(usage: Any, expect: Sequence[Any] = (), table: str | None = "t_s,web\n0,1\n10,3\n") -> Path:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "annotations": {"cotenant.io/sim-usage": json.dumps(usage)}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "6", "memory": "4Gi"}}}]},
        }
        spec = {"duration": "30s", "objects": [node("n1"), pod], "expect": list(expect)}
        path = tmp_path / "story.yaml"
        whole = {"apiVersion": "cotenant.io/v1", "kind": "Scenario", "metadata": {"name": "x"}, "spec": spec}
        path.write_text(yaml.safe_dump(whole, sort_keys=False))
        if table is not None:
            (tmp_path / "d.csv").write_text(table)
        return path

    return build


CPU = {"cpu": {"trace": "d.csv", "column": "web", "time": "t_s"}}


def usage_at(*pairs: tuple[str, str]) -> list[Any]:
    return [{"at": at, "node": "n1", "usage": {"cpu": cpu}} for at, cpu in pairs]


def test_demand_follows_the_table_step_by_step(written: Callable[..., Path]):
    outcome = run(written(CPU, usage_at(("5s", "1"), ("10s", "3"), ("end", "3"))))
    assert [one.ok for one in outcome.verdicts] == [True, True, True]


def test_what_was_used_is_what_the_steps_add_up_to(written: Callable[..., Path]):
    outcome = run(written(CPU))
    prod = outcome.data["summary"]["utilisation_percent"]["cpu"]["prod"]
    # 8 cores for 30 s; the pod runs from 1 s on: 9 s of one core and 20 s of three.
    assert prod == pytest.approx(100 * (9 + 60) / (8 * 30), rel=0.02)


def test_until_the_table_begins_the_request_counts(written: Callable[..., Path]):
    outcome = run(written(CPU, usage_at(("5s", "6"), ("15s", "2")), table="t_s,web\n10,2\n"))
    assert [one.ok for one in outcome.verdicts] == [True, True]


def test_a_packed_table_reads_the_same(written: Callable[..., Path], tmp_path: Path):
    path = written({"cpu": CPU["cpu"] | {"trace": "d.csv.gz"}}, usage_at(("15s", "3")), table=None)
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"t_s,web\n0,1\n10,3\n"))
    assert run(path).ok


def test_the_timeline_still_has_the_last_word(written: Callable[..., Path]):
    path = written(CPU, usage_at(("20s", "5")))
    whole = yaml.safe_load(path.read_text())
    whole["spec"]["timeline"] = [{"at": "5s", "usage": {"pods": {"default/web": {"cpu": "5"}}}}]
    path.write_text(yaml.safe_dump(whole))
    assert run(path).ok


@pytest.mark.parametrize(
    ("usage", "table", "says"),
    [
        (CPU, None, "d.csv cannot be read: No such file"),
        (CPU, "t_s,wed\n0,1\n", "d.csv:1: no column 'web'; did you mean 'wed'?"),
        (CPU, "t,web\n0,1\n", "d.csv:1: no column 't_s'"),
        (CPU, "t_s,web\n0,1\n5\n", "d.csv:3: expected 2 cells"),
        (CPU, "t_s,web\n0,1\n5,x\n", "d.csv:3: column web: expected a number, got 'x'"),
        (CPU, "t_s,web\n", "d.csv: column web: expected at least one row"),
        (CPU, "", "d.csv:1: no column 'web'"),
    ],
)
def test_a_fault_names_the_scenario_and_the_table(
    written: Callable[..., Path], usage: Any, table: str | None, says: str
):
    path = written(usage, table=table)
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert says in caught.value.message
    assert caught.value.line is not None
    assert caught.value.field == "spec.objects[1].metadata.annotations['cotenant.io/sim-usage']"


def test_a_link_does_not_lead_out_of_the_folder(written: Callable[..., Path], tmp_path: Path):
    path = written(CPU, table=None)
    (tmp_path / "d.csv").symlink_to("/etc/passwd")
    with pytest.raises(ScenarioError, match="leads out of the scenario's folder"):
        load(path)


def test_chaos_runs_on_a_scenario_with_a_table(written: Callable[..., Path]):
    text, status = simulate_chaos(written(CPU), 3)
    assert status == 0, text
    path = written(CPU | {"memory": CPU["cpu"] | {"trace": "gone.csv"}})
    assert simulate_chaos(path, 3)[1] == 3
