"""A replay is an ordinary scenario, and its figures are those of the trace's own clock."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant_simulator import ScenarioError, load, run
from cotenant_simulator.replay import report
from cotenant_simulator.replay.model import TraceError
from cotenant_simulator.replay.run import Options, Prepared, described, prepare, replay

Sample = Callable[..., Path]
FAMILIES = (
    "alibaba-batch-2018", "alibaba-dlrm-2025", "alibaba-genai-2026", "alibaba-openb-gpu-2023", "alibaba-spot-gpu-2026",
    "azure-llm-2023", "google-gcd-vms-2011", "hpc-batch", "nab-series", "philly-jobs-2017", "planetlab-cpu-2011",
)  # fmt: skip


def small(path: Path, **more: Any) -> Prepared:
    return prepare(Options(path, nodes=2, limit=4, backlog=False, from_ms=more.pop("from_ms", 0), **more))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_written_scenario_comes_to_the_same_outcome(sample: Sample, tmp_path: Path, family: str):
    prepared = small(sample(family))
    target = tmp_path / "out"
    target.mkdir()
    prepared.write(target / "replayed.yaml")
    replayed = replay(prepared)
    assert run(load(target / "replayed.yaml")).json() == replayed.outcome.json()
    assert replayed.outcome.troubles == []
    assert family in report.table(replayed.data)


def test_jobs_wait_in_the_seconds_of_the_trace(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("job,submit_s,wait_s,run_s,procs\n1,0,0,1000,8\n2,0,3,1000,8\n")
    options = Options(path, nodes=1, node_cpu_milli=10_000, node_memory_bytes=32 << 30, speed_up=50)
    data = replay(prepare(options)).data
    assert (data["jobs"]["started"], data["jobs"]["finished"]) == (2, 2)
    # The second has to wait for the first, which runs 1,000 s; the rest is seconds of control loops, 50 to one.
    assert 1_000 <= data["jobs"]["wait_s"]["max"] <= 1_000 + 50 * 15
    assert data["told_by_trace"]["wait_s_of_these_jobs"]["max"] == 3.0


def test_what_has_not_ended_is_not_counted_as_finished(sample: Sample):
    data = replay(small(sample("alibaba-dlrm-2025"))).data
    # One instance was there to the end, the other was deleted after an hour.
    assert (data["jobs"]["jobs"], data["jobs"]["started"], data["jobs"]["finished"]) == (2, 2, 1)


def test_a_cut_that_begins_elsewhere_than_the_whole_trace_is_replayed_from_its_start(sample: Sample):
    prepared = prepare(Options(sample("philly-jobs-2017"), nodes=1))
    assert [job.submit_ms for job in prepared.gathered.jobs] == [0, 30_000]


def test_a_second_trace_runs_beside_the_first(sample: Sample):
    services, batch = sample("planetlab-cpu-2011"), sample("alibaba-batch-2018")
    prepared = prepare(Options(services, beside=batch, nodes=1))
    assert (len(prepared.gathered.services), len(prepared.gathered.jobs)) == (2, 2)
    assert "backlog" not in prepared.composed.text


def test_services_alone_get_endless_batch_work(sample: Sample):
    assert "name: backlog" in prepare(Options(sample("planetlab-cpu-2011"), nodes=1)).composed.text


def test_the_policy_decides(sample: Sample, tmp_path: Path):
    policy = tmp_path / "policy.yaml"
    data = {"colocation-config": '{"enable": false}'}
    name = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}]
    policy.write_text(yaml.safe_dump({"config": {"descheduler": {"dryRun": True}}, "objects": objects}))
    path = sample("hpc-batch")
    assert replay(small(path)).data["jobs"]["started"] > 0
    assert replay(small(path, policy=str(policy))).data["jobs"]["started"] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("config: {scheduler: {nonsense: 1}}\n", "p.yaml:1: config.scheduler.nonsense"),
        ("confg: {}\n", "p.yaml:1: confg: unknown field; did you mean 'config'?"),
        ("objects: [1]\n", "p.yaml:1: objects[0]: expected a mapping"),
        ("a: 1\n---\nb: 1\n", "expected one document"),
    ],
)
def test_a_bad_policy_names_its_place(sample: Sample, tmp_path: Path, text: str, says: str):
    policy = tmp_path / "p.yaml"
    policy.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        small(sample("hpc-batch"), policy=str(policy))
    assert says in str(caught.value)


def test_columns_of_another_trace_are_named_by_the_user(tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text("arrival,runtime,cores,n,who\n5,10,2,3,prod\n9,10,1.5,1,batch\n9,10,1,1,other\n")
    named = {"submit": "arrival", "duration": "runtime", "cpu": "cores", "members": "n", "band": "who"}
    prepared = prepare(Options(path, format="columns", columns=named, nodes=1))
    first, second = prepared.gathered.jobs
    assert (first.members, first.band, first.submit_ms) == (3, "prod", 0)
    assert (second.requests["cpu"], second.band, second.submit_ms) == (1_500, "batch", 4_000)
    assert prepared.gathered.left_out.counts == {"broken row: who is none of prod, mid, batch": 1}


def test_too_few_columns_are_an_error(tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text("a\n1\n")
    with pytest.raises(TraceError, match="needs --column submit=NAME"):
        prepare(Options(path, format="columns"))


def test_the_same_seed_generates_the_same_work(sample: Sample):
    path = sample("alibaba-spot-gpu-2026")
    texts = [small(path, seed=seed).composed.text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_what_was_cut_is_said_before_it_runs(tmp_path: Path):
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,duration_s,num_gpus,vc\n" + "".join(f"{at},60,1,a\n" for at in range(1_500)))
    prepared = prepare(Options(path, from_ms=0, limit=20, speed_up=2))
    assert "first 20 of 1,500 jobs" in described(prepared)
    assert "2 times as fast as the trace" in described(prepared)


def test_more_jobs_than_a_scenario_holds_are_refused(tmp_path: Path):
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,duration_s,num_gpus,vc\n" + "0,60,1,a\n" * 4_001)
    with pytest.raises(TraceError, match="at most 4,000 jobs, got 4,001"):
        prepare(Options(path, limit=9_000))


def test_samples_that_fall_on_one_instant_do_not_break_the_table(sample: Sample):
    prepared = small(sample("azure-llm-2023"), speed_up=100_000)
    (table,) = prepared.composed.tables.values()
    assert table.splitlines() == ["t_s,conv.cpu", "0,16000", "10,8000"]


def test_a_row_beyond_all_measure_is_left_out_and_named(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("job,submit_s,wait_s,run_s,procs\n1,0,0,100,1\n2,0,0,1e99,1\n")
    prepared = prepare(Options(path, nodes=1))
    assert len(prepared.gathered.jobs) == 1
    assert any("run_s" in reason for reason in prepared.gathered.left_out.counts)
