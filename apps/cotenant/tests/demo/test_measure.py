import os
import struct

from cotenant.demo import measure
from cotenant.demo.stats import Work


def test_steal_is_no_time_of_this_machine(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 0 50 800 50 0 0 500 0 0\ncpu0 1 2 3\n")
    found = measure.machine_times(tmp_path)

    ticks = os.sysconf("SC_CLK_TCK")
    assert found.busy_s == 150 / ticks
    assert found.machine_s == 1000 / ticks


def test_cpu_and_faults_of_processes_with_awkward_names(tmp_path):
    process = tmp_path / "7"
    process.mkdir()
    fields = ["S", *["0"] * 8, "12", "0", "300", "40", *["0"] * 10]
    (process / "stat").write_text(f"7 (a) b (c) {' '.join(fields)}\n")

    assert measure.cpu_seconds([7, 8], tmp_path) == 340 / os.sysconf("SC_CLK_TCK")
    assert measure.major_faults([7, 8], tmp_path) == 12


def test_processes_are_found_by_whole_arguments(tmp_path):
    for pid, command in {
        "5": b"python\0service.py\0--port\08090\0",
        "6": b"python\0service.py\0--port\080901\0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(command)
    (tmp_path / "self").mkdir()

    assert measure.pids_of(["service.py", "8090"], tmp_path) == [5]


def test_a_counter_is_units_cpu_and_pid(tmp_path):
    file = tmp_path / "counter"
    file.write_bytes(struct.pack("<QQQ", 12, 3_500_000_000, 99))

    assert measure.read_counter(file) == measure.Counter(Work(12, 3.5), 99)


def test_a_neighbour_that_has_not_begun_has_done_nothing(tmp_path):
    assert measure.read_counter(tmp_path / "missing") == measure.Counter(Work(0, 0.0), 0)


def test_samples_keep_errors_apart_from_answers(tmp_path):
    file = tmp_path / "samples.csv"
    file.write_text("intended_s,latency_ms,late_ms,status,step\n0.5,2.5,0.1,200,0\n0.6,2000.0,0.1,599,1\n")

    found = measure.read_samples(file)

    assert [sample.ok for sample in found] == [True, False]
    assert found[1].latency_ms == 2000.0


def test_this_process_is_measurable():
    assert measure.cpu_seconds([os.getpid()]) > 0
    assert measure.resident_bytes(os.getpid()) > 1_000_000
    assert measure.available_memory_bytes() > 0
