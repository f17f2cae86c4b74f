from cotenant_agent.collect.files import field
from cotenant_agent.collect.proc import Memory, ProcReader, busy_ticks, cpu_topology, parse_meminfo
from cotenant_agent.collect.psi import parse_pressure
from cotenant_agent.collect.sampler import NodeSampler, slice_used
from cotenant_agent.core.usage import GroupCounters

STAT = (
    b"cpu  10 20 30 400 50 6 7 8 0 0\n"
    b"cpu0 1 2 3 40 5 6 7 8 0 0\n"
    b"cpu1 9 18 27 360 45 0 0 0 0 0\n"
    b"cpu10 100 0 0 0 0 0 0 0 0 0\n"
    b"intr 1 2 3\n"
)
MEMINFO = b"MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     600 kB\nBuffers: 1 kB\n"


def test_busy_leaves_out_idle_iowait_and_steal():
    assert busy_ticks(STAT) == 10 + 20 + 30 + 6 + 7


def test_a_slice_counts_its_own_cpus():
    assert busy_ticks(STAT, {0}) == 1 + 2 + 3 + 6 + 7
    assert busy_ticks(STAT, {0, 10}) == 19 + 100
    assert busy_ticks(STAT, {7}) is None


def test_memory_needs_both_numbers():
    assert parse_meminfo(MEMINFO) == Memory(1_024_000, 614_400)
    assert parse_meminfo(b"MemTotal: 5 kB\n") is None


def test_pressure_reads_the_some_line_and_tolerates_kernels_without_it():
    line = b"some avg10=2.63 avg60=1.21 avg300=0.53 total=3756682\nfull avg10=0.00 avg60=0 avg300=0 total=0\n"
    found = parse_pressure(line)
    assert found is not None
    assert (found.some_avg10, found.some_total_us) == (2.63, 3_756_682)
    assert parse_pressure(b"") is None
    assert parse_pressure(None) is None


def test_a_field_is_found_only_at_the_start_of_a_line():
    data = b"total_active_anon 5\nactive_anon 7\n"
    assert field(data, b"active_anon") == 7
    assert field(data, b"total_active_anon") == 5
    assert field(data, b"anon") is None


def proc_at(path, stat=STAT):
    (path / "pressure").mkdir(parents=True)
    (path / "stat").write_bytes(stat)
    (path / "meminfo").write_bytes(MEMINFO)
    return path


def test_a_kernel_without_pressure_gives_none(tmp_path):
    reader = ProcReader(proc_at(tmp_path))
    assert reader.pressure_some("cpu") is None
    assert reader.cpu_us() == 73 * 10_000
    reader.close()


def test_a_node_without_groups_still_measures_itself(tmp_path):
    sampler = NodeSampler(None, proc=proc_at(tmp_path), monotonic_ns=lambda: 5_000)
    sampler.track_pod("a", "n/be/poda", latency_sensitive=False)
    sample = sampler.sample()
    assert (sample.at_us, sample.memory_bytes, sample.pods) == (5, 409_600, {})
    sampler.close()


def test_used_memory_of_a_slice_is_what_it_holds_or_what_is_lacking():
    memory = Memory(100, 60)
    assert slice_used(memory, None, []) == 40
    assert slice_used(memory, 30, [GroupCounters(memory_bytes=10)]) == 10
    assert slice_used(Memory(100, 5), 30, [GroupCounters(memory_bytes=10)]) == 25
    assert slice_used(None, 30, []) is None


def test_topology_of_a_machine_that_hides_it_is_flat(tmp_path):
    assert [(cpu.cpu, cpu.core, cpu.socket, cpu.numa) for cpu in cpu_topology([1, 0], tmp_path)] == [
        (0, 0, 0, 0),
        (1, 1, 0, 0),
    ]
