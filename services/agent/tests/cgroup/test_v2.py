import pytest

from cotenant_agent.cgroup.files import Knob, Stat
from cotenant_agent.cgroup.v2 import V2Tree

POD = "n/ls/pod1"


@pytest.fixture
def base(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").touch()
    return tmp_path


def test_controllers_are_handed_down_before_a_child_is_made(base):
    V2Tree(base, "cotenant").create("n")
    assert "+" in (base / "cgroup.subtree_control").read_text()


def test_processes_of_a_delegated_group_step_into_a_leaf(base):
    (base / "cgroup.events").write_text("populated 1\n")
    (base / "cgroup.procs").write_text("41\n42\n")
    (base / "cotenant-self").mkdir()
    (base / "cotenant-self" / "cgroup.procs").touch()
    V2Tree(base, "cotenant").create("n")
    assert (base / "cotenant-self" / "cgroup.procs").read_text() == "42"


def test_only_delegated_controllers_are_supported(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    tree = V2Tree(tmp_path, "cotenant")
    assert tree.supports(Knob.MEMORY_HIGH)
    assert not tree.supports(Knob.CPU_QUOTA)


def test_one_hierarchy_holds_knobs_and_statistics(base):
    tree = V2Tree(base, "cotenant")
    assert tree.knob_path(POD, Knob.CPU_QUOTA) == base / "cotenant" / POD / "cpu.max"
    assert tree.stat_path(POD, Stat.CPU_THROTTLE) == base / "cotenant" / POD / "cpu.stat"
    assert tree.procs_files(POD) == (base / "cotenant" / POD / "cgroup.procs",)


def test_oom_kills_are_counted_from_the_events(base):
    tree = V2Tree(base, "cotenant")
    (base / "cotenant" / POD).mkdir(parents=True)
    (base / "cotenant" / POD / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\n")
    assert tree.oom_kills(POD) == 3
    assert tree.oom_kills("n/ls/gone") is None
