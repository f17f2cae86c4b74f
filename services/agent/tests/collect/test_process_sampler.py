from cotenant_agent.collect.process_sampler import Process, ProcessSampler, parse_stat, trees

STAT = b"7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 100 1000 5 18446744073709551615\n"


def stat(pid, ppid, ticks, pages):
    return f"{pid} (x) S {ppid} 0 0 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 0 0 {pages} 0\n"


def test_a_command_name_with_brackets_does_not_shift_the_fields():
    assert parse_stat(7, STAT) == Process(7, 3, 100, 5)
    assert parse_stat(7, b"7 (cut") is None


def test_a_tree_holds_all_descendants_and_no_neighbour():
    processes = [Process(1, 0, 1, 1), Process(2, 1, 1, 1), Process(3, 2, 1, 1), Process(4, 1, 1, 1)]
    found = trees(processes, {"a": [2], "b": [4, 99]})
    assert sorted(p.pid for p in found["a"]) == [2, 3]
    assert [p.pid for p in found["b"]] == [4]


def test_a_pod_is_the_sum_of_its_tree(tmp_path):
    (tmp_path / "pressure").mkdir()
    for pid, ppid, ticks, pages in ((10, 1, 3, 2), (11, 10, 4, 5), (12, 1, 50, 50)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat(pid, ppid, ticks, pages))
        (tmp_path / str(pid) / "schedstat").write_text("2000 5000 3\n")
    sampler = ProcessSampler(lambda uid: {"a": [10], "gone": [77]}[uid], proc=tmp_path, monotonic_ns=lambda: 1_000)
    sampler.track_pod("a", "n/ls/poda", latency_sensitive=True)
    sampler.track_pod("gone", "n/be/podgone", latency_sensitive=False)
    pods = sampler.sample().pods
    assert (pods["a"].cpu_us, pods["a"].memory_bytes) == (70_000, 7 * 4_096)
    assert (pods["a"].wait_us, pods["a"].slices) == (10, 6)
    assert pods["gone"].cpu_us is None
    sampler.close()
