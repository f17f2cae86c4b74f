import pytest

from cotenant_agent.cgroup.files import Knob, Stat
from cotenant_agent.cgroup.hierarchy import _read_pids
from cotenant_agent.cgroup.tree import GroupMissingError, KnobUnsupportedError
from cotenant_agent.cgroup.v1 import V1Tree

POD = "n/ls/pod1"


@pytest.fixture
def tree(tmp_path):
    controllers = {name: tmp_path / name for name in ("cpu", "cpuset", "memory")}
    for path in controllers.values():
        path.mkdir()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-3\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    (tmp_path / "unified").mkdir()
    return V1Tree(controllers, "cotenant", tmp_path / "unified")


def test_a_group_is_made_in_every_hierarchy(tree, tmp_path):
    tree.create(POD)
    tree.create(POD)
    assert all((tmp_path / c / "cotenant" / POD).is_dir() for c in ("cpu", "cpuset", "memory", "unified"))
    assert tree.children("n/ls") == (POD,)


def test_a_new_cpuset_takes_cpus_and_memory_nodes_from_its_parent(tree, tmp_path):
    made = []
    original = type(tree).create

    def create_files(path):
        for name in ("cpuset.cpus", "cpuset.mems"):
            (path / name).touch()
        made.append(path)

    parent = tmp_path / "cpuset"
    for part in ("cotenant", "n", "ls", "pod1"):
        parent = parent / part
        parent.mkdir()
        create_files(parent)
    original(tree, POD)
    assert (parent / "cpuset.cpus").read_text() == "0-3"
    assert (parent / "cpuset.mems").read_text() == "0"


def test_two_names_of_one_directory_are_one_hierarchy(tmp_path):
    (tmp_path / "cpu,cpuacct").mkdir()
    for name in ("cpu", "cpuacct"):
        (tmp_path / name).symlink_to("cpu,cpuacct")
    tree = V1Tree({name: tmp_path / name for name in ("cpu", "cpuacct")}, "cotenant")
    assert len(tree.bases()) == 1


def test_knobs_are_read_and_written_in_their_own_hierarchy(tree, tmp_path):
    tree.create(POD)
    file = tmp_path / "cpu" / "cotenant" / POD / "cpu.cfs_quota_us"
    file.write_text("-1\n")
    assert tree.read(POD, Knob.CPU_QUOTA) == -1
    tree.write(POD, Knob.CPU_QUOTA, 70_000)
    assert file.read_text().startswith("70000")


def test_a_missing_file_and_a_missing_group_are_different_errors(tree):
    tree.create(POD)
    with pytest.raises(KnobUnsupportedError):
        tree.write(POD, Knob.CPU_IDLE, 1)
    with pytest.raises(GroupMissingError):
        tree.write("n/ls/gone", Knob.CPU_IDLE, 1)
    assert not tree.supports(Knob.PIDS_MAX)
    assert not tree.supports(Knob.MEMORY_HIGH)


def test_pressure_comes_from_the_unified_hierarchy(tree, tmp_path):
    assert tree.stat_path(POD, Stat.PSI_CPU) == tmp_path / "unified" / "cotenant" / POD / "cpu.pressure"
    assert tree.stat_path(POD, Stat.CPU_USAGE) is None


def test_removing_goes_from_the_leaves_up_and_twice_is_fine(tree, tmp_path):
    tree.create(POD)
    tree.remove("")
    tree.remove("")
    assert not (tmp_path / "cpu" / "cotenant").exists()


def test_best_effort_groups_stand_beside_the_root_and_leave_with_their_node(tree, tmp_path):
    tree.create("n/be/pod2")
    tree.create(POD)
    assert (tmp_path / "cpu" / "cotenant-be-n" / "pod2").is_dir()
    assert tree.children("n/be") == ("n/be/pod2",)
    tree.remove("n")
    assert not list((tmp_path / "cpu").glob("cotenant*/*"))


def test_removing_the_root_takes_every_best_effort_group_along(tree, tmp_path):
    for group in ("n/be/pod2", "m/be/pod3", POD):
        tree.create(group)
    tree.remove("")
    assert not list((tmp_path / "cpu").glob("cotenant*"))


def test_processes_of_another_pid_namespace_are_never_signalled(tmp_path):
    (tmp_path / "cgroup.procs").write_text("0\n7\n0\n")
    assert _read_pids(tmp_path / "cgroup.procs") == [7]
