import os
from dataclasses import replace

from cotenant_agent.capability import Level, outlook, probe
from cotenant_agent.cgroup.layout import LayoutKind

SCHEDSTAT = "1 2 3\n"


def machine(path, *, schedstat=SCHEDSTAT, pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"):
    proc = path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "pressure").mkdir()
    (proc / "self" / "schedstat").write_text(schedstat)
    (proc / "pressure" / "cpu").write_text(pressure)
    return proc


def v1_fs(path, *files):
    for name in ("cpu", "cpuacct", "cpuset", "memory", "pids"):
        (path / "cg" / name).mkdir(parents=True)
        (path / "cg" / name / "cgroup.procs").touch()
    for name in files:
        (path / "cg" / name).touch()
    return path / "cg"


def test_a_machine_with_everything_is_full(tmp_path):
    found = probe(v1_fs(tmp_path, "cpu/cpu.idle"), machine(tmp_path), tmp_path)
    assert found.idle_class
    assert outlook(found).level is Level.FULL


def test_each_missing_means_is_named(tmp_path):
    found = probe(v1_fs(tmp_path), machine(tmp_path, schedstat="0 0 0\n"), tmp_path)
    view = outlook(found)
    assert view.level is Level.REDUCED
    assert view.summary == (
        "reduced: no idle class: batch gets the smallest weight, and is sold and suppressed at a 65% line, and 1 more"
    )
    assert any("run-queue waits" in line for line in view.lines)


def test_without_groups_the_fallback_is_said(tmp_path):
    found = probe(tmp_path / "nothing", machine(tmp_path), tmp_path)
    assert found.layout is LayoutKind.NONE
    view = outlook(replace(found, can_delegate=True))
    assert view.level is Level.REDUCED
    assert "SCHED_IDLE" in view.lines[1]
    assert "systemd-run --user" in view.lines[2]


def test_the_files_of_a_child_speak_for_a_version_two_root(tmp_path):
    root = tmp_path / "cg"
    (root / "system.slice").mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory\n")
    (root / "cgroup.procs").touch()
    (root / "system.slice" / "cpu.idle").touch()
    found = probe(root, machine(tmp_path), tmp_path)
    assert found.has("cpu_idle")
    assert found.has("memory_high")
    assert not found.has("cpu_burst")
    assert not found.has("pids")


def test_counters_need_a_device_behind_the_interface(tmp_path):
    proc, devices = machine(tmp_path), tmp_path / "bus/event_source/devices"
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "sys/kernel/perf_event_paranoid").write_text("-1\n")
    (devices / "software").mkdir(parents=True)
    assert not probe(v1_fs(tmp_path), proc, tmp_path).has("perf")
    (devices / "cpu").mkdir()
    assert probe(tmp_path / "cg", proc, tmp_path).has("perf")


def test_a_probe_changes_nothing():
    before = os.sched_getscheduler(0), os.sched_getaffinity(0), os.nice(0)
    data = probe().as_data()
    assert (os.sched_getscheduler(0), os.sched_getaffinity(0), os.nice(0)) == before
    assert data["level"] in {level.value for level in Level}
