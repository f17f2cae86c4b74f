"""Every family is known by its columns and comes down to machines, services and jobs, exactly."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cotenant_simulator.replay.family import families, find
from cotenant_simulator.replay.model import Item, Job, LeftOut, Machine, Service, Site, TraceError

FAMILIES = (
    "alibaba-batch-2018", "alibaba-dlrm-2025", "alibaba-genai-2026", "alibaba-openb-gpu-2023", "alibaba-spot-gpu-2026",
    "azure-llm-2023", "google-gcd-vms-2011", "hpc-batch", "nab-series", "philly-jobs-2017", "planetlab-cpu-2011",
)  # fmt: skip
Imported = Callable[..., tuple[Sequence[Item], LeftOut]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_known_by_its_columns(sample: Callable[..., Path], family: str, packed: bool):
    assert find(sample(family, packed=packed), None).family.name == family


@pytest.mark.parametrize("family", FAMILIES)
def test_so_is_the_folder_it_lies_in(sample: Callable[..., Path], family: str):
    path = sample(family)
    (path.parent / "README.md").write_text("no table")
    found = find(path.parent, None)
    assert (found.family.name, list(found.files)) == (family, [path])


def test_every_family_is_tried_here():
    assert set(families()) == {*FAMILIES, "columns"}


def test_a_task_is_a_job_of_its_instances(imported: Imported):
    items, _ = imported("alibaba-batch-2018")
    assert items[0] == Job("job1-task1-2", 60_000, 30_500, {"cpu": 500, "memory": 343597384}, members=3)


def test_processors_beyond_a_node_make_a_gang_of_equal_members(imported: Imported):
    small, large = imported("hpc-batch")[0]
    assert isinstance(small, Job)
    assert isinstance(large, Job)
    assert (small.members, small.gang, small.requests["cpu"], small.told_wait_ms) == (1, False, 4_000, 5_000)
    assert (large.members, large.gang) == (9, True)
    assert large.members * large.requests["cpu"] >= 70_000 > large.members * (large.requests["cpu"] - 1)


def test_more_gpus_than_a_node_has_make_a_gang(imported: Imported):
    one, gang = imported("philly-jobs-2017")[0]
    assert isinstance(one, Job)
    assert isinstance(gang, Job)
    assert (one.members, one.requests["nvidia.com/gpu"], one.gang) == (1, 1, False)
    assert (gang.members, gang.requests["nvidia.com/gpu"], gang.gang, gang.duration_ms) == (2, 8, True, 120_000)


def test_shares_of_a_gpu_and_pods_that_never_ran_are_left_out_and_counted(imported: Imported):
    items, left_out = imported("alibaba-openb-gpu-2023")
    assert [(one.name, one.band, one.duration_ms) for one in items if isinstance(one, Job)] == [
        ("pod-0", "prod", 90_000),
        ("pod-2", "batch", 30_000),
    ]
    assert list(left_out.counts.values()) == [1, 1]
    assert ["openb_pod_list_default.csv:3"] in left_out.places.values()


def test_machines_keep_their_model(imported: Imported):
    items, _ = imported("alibaba-spot-gpu-2026")
    assert items[1] == Machine(
        "node-1",
        {"cpu": 192_000, "memory": 768 << 30, "nvidia.com/gpu": 4},
        {"nvidia.com/gpu.product": "H800"},
    )


def test_an_instance_without_an_end_stays(imported: Imported):
    first, second = imported("alibaba-dlrm-2025")[0]
    assert isinstance(first, Job)
    assert isinstance(second, Job)
    assert (first.submit_ms, first.duration_ms, first.requests["koordinator.sh/rdma"]) == (0, None, 25)
    assert (second.submit_ms, second.duration_ms, "nvidia.com/gpu" in second.requests) == (90_000_000, 3_600_000, False)


def test_the_peak_of_a_rate_is_all_that_the_service_requested(imported: Imported):
    for family in ("azure-llm-2023", "alibaba-genai-2026"):
        (service,) = imported(family)[0]
        assert isinstance(service, Service)
        assert max(value or 0 for value in service.demand["cpu"].values) == service.requests["cpu"]


def test_a_slot_without_requests_is_zero(imported: Imported):
    (service,) = imported("azure-llm-2023")[0]
    assert isinstance(service, Service)
    assert list(service.demand["cpu"].values) == [16_000, 8_000, 0, 6_000]


def test_percent_keeps_its_size_and_a_timestamp_that_repeats_is_counted(imported: Imported):
    (service,), left_out = imported("nab-series")
    assert isinstance(service, Service)
    assert list(service.demand["cpu"].values) == [1_600, 8_080]
    assert left_out.places == {"broken row: timestamp is not after the one before": ["ec2_cpu_utilization_1.csv:4"]}


def test_a_virtual_machine_wants_its_percent_and_an_empty_cell_is_unknown(imported: Imported):
    items, left_out = imported("planetlab-cpu-2011")
    assert [one.demand["cpu"].values for one in items if isinstance(one, Service)] == [[100, 200, 300], [50, None, 70]]
    assert left_out.places == {"broken row: t1 is no number": ["20110303.csv:4"]}


def test_hundredths_of_a_percent_round_up(imported: Imported):
    (service,) = imported("google-gcd-vms-2011")[0]
    assert isinstance(service, Service)
    assert service.demand["cpu"].values == [68, 73, 71]


def test_a_missing_column_is_one_clear_error(tmp_path: Path):
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,duration,num_gpus,vc\n0,1,1,a\n")
    family = find(path, "philly-jobs-2017").family
    with pytest.raises(TraceError, match=r"jobs.csv:1: no column 'duration_s'; did you mean 'duration'\?"):
        list(family.read(path, Site(8_000, 1 << 30, LeftOut())))


def test_a_file_that_nobody_knows_says_what_would_help(tmp_path: Path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match=r"these columns: a, b; known are .*--format columns"):
        find(path, None)
    with pytest.raises(TraceError, match="1 tables, none known"):
        find(tmp_path, None)
    with pytest.raises(TraceError, match="no such file or folder"):
        find(tmp_path / "y.csv", None)
    with pytest.raises(TraceError, match="--format: expected one of"):
        find(path, "phily")


def test_a_file_that_breaks_off_is_named(sample: Callable[..., Path]):
    path = sample("philly-jobs-2017", packed=True)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(TraceError, match="cannot be read"):
        list(find(path, "philly-jobs-2017").family.read(path, Site(8_000, 1 << 30, LeftOut())))


def test_waiting_times_are_not_replayed_as_demand(tmp_path: Path):
    path = tmp_path / "queue_rt.csv"
    path.write_text("t_s,pod,value\n0,p0,5\n")
    with pytest.raises(TraceError, match="waiting times are outcomes"):
        list(find(path, None).family.read(path, Site(8_000, 1 << 30, LeftOut())))
