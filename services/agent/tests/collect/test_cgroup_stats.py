import pytest

from cotenant_agent.cgroup.v1 import V1Tree
from cotenant_agent.cgroup.v2 import V2Tree
from cotenant_agent.collect.cgroup_stats import GroupReader
from cotenant_agent.collect.schedstat import WaitReader

V1_FILES = {
    "cpuacct/cpuacct.usage": "5000000\n",
    "cpu/cpu.stat": "nr_periods 8\nnr_throttled 3\nthrottled_time 9\n",
    "memory/memory.stat": (
        "inactive_anon 1\nactive_anon 1\nunevictable 1\n"
        "total_inactive_anon 10\ntotal_active_anon 20\ntotal_inactive_file 99\ntotal_unevictable 3\n"
    ),
}
V2_FILES = {
    "cpu.stat": "usage_usec 5000\nuser_usec 1\nnr_periods 8\nnr_throttled 3\n",
    "memory.stat": "anon 7\ninactive_anon 10\nactive_anon 20\ninactive_file 99\nunevictable 3\n",
    "cpu.pressure": "some avg10=4.50 avg60=0.00 avg300=0.00 total=7\n",
}


def v1_tree(path):
    for name, text in V1_FILES.items():
        controller, file = name.split("/")
        (path / controller / "c" / "pod").mkdir(parents=True)
        (path / controller / "c" / "pod" / file).write_text(text)
    return V1Tree({name.split("/")[0]: path / name.split("/")[0] for name in V1_FILES}, "c")


def v2_tree(path):
    (path / "c" / "pod").mkdir(parents=True)
    (path / "cgroup.controllers").write_text("cpu memory")
    for file, text in V2_FILES.items():
        (path / "c" / "pod" / file).write_text(text)
    return V2Tree(path, "c")


@pytest.mark.parametrize("build", [v1_tree, v2_tree])
def test_both_versions_give_the_same_counters(build, tmp_path):
    found = GroupReader(build(tmp_path), "pod").read()
    assert (found.cpu_us, found.memory_bytes, found.periods, found.throttled_periods) == (5_000, 33, 8, 3)
    assert found.wait_us is None


def test_pressure_is_read_where_latency_matters(tmp_path):
    tree = v2_tree(tmp_path)
    assert GroupReader(tree, "pod", waits=True).read().cpu_pressure_some == 4.5
    assert GroupReader(tree, "pod").read().cpu_pressure_some is None


def test_a_group_that_is_not_there_is_unknown_and_not_zero(tmp_path):
    found = GroupReader(v2_tree(tmp_path), "gone").read()
    assert (found.cpu_us, found.memory_bytes, found.periods) == (None, None, None)


def schedstat(path, tid, text):
    (path / str(tid)).mkdir(parents=True, exist_ok=True)
    (path / str(tid) / "schedstat").write_text(text)


def test_waits_add_up_over_threads_that_come_and_go(tmp_path):
    threads = tmp_path / "tasks"
    threads.write_text("1\n2\n")
    schedstat(tmp_path, 1, "1000000 500000 10\n")
    schedstat(tmp_path, 2, "1000000 500000 10\n")
    reader = WaitReader(threads, tmp_path)
    first = reader.read()
    assert first is not None
    assert (first.run_us, first.wait_us, first.slices) == (0, 0, 0)
    schedstat(tmp_path, 1, "3000000 900000 14\n")
    schedstat(tmp_path, 2, "")
    second = reader.read()
    assert second is not None
    assert (second.run_us, second.wait_us, second.slices) == (2_000, 400, 4)
    threads.write_text("1\n")
    for _ in range(5):
        last = reader.read()
    assert last == second
    reader.close()
