import os

import pytest

from cotenant_agent.cgroup.layout import LayoutKind, detect_layout, open_tree
from cotenant_agent.cgroup.v1 import V1Tree
from cotenant_agent.cgroup.v2 import V2Tree


def v1_at(path, *controllers, unified=False):
    for name in controllers:
        (path / name).mkdir(parents=True)
        (path / name / "cgroup.procs").touch()
    if unified:
        (path / "unified").mkdir(parents=True)
        (path / "unified" / "cgroup.procs").touch()
    return path


def v2_at(path):
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text("cpu cpuset memory pids\n")
    (path / "cgroup.subtree_control").touch()
    (path / "cgroup.procs").touch()
    return path


def proc_at(path, line):
    (path / "self").mkdir(parents=True)
    (path / "self" / "cgroup").write_text(line)
    return path


def test_controllers_alone_are_version_one(tmp_path):
    layout = detect_layout(v1_at(tmp_path, "cpu", "memory"))
    assert layout.kind is LayoutKind.V1
    assert set(layout.controllers) == {"cpu", "memory"}
    assert isinstance(open_tree(layout, "x"), V1Tree)


def test_an_empty_unified_hierarchy_beside_them_is_hybrid(tmp_path):
    layout = detect_layout(v1_at(tmp_path, "cpu", unified=True))
    assert (layout.kind, layout.unified) == (LayoutKind.HYBRID, tmp_path / "unified")


def test_a_root_with_controllers_is_version_two(tmp_path):
    layout = detect_layout(v2_at(tmp_path))
    assert layout.kind is LayoutKind.V2
    assert isinstance(open_tree(layout, "x"), V2Tree)


def test_no_mount_gives_no_groups(tmp_path):
    layout = detect_layout(tmp_path / "nothing")
    assert layout.kind is LayoutKind.NONE
    assert open_tree(layout, "x") is None


@pytest.fixture
def refused(monkeypatch):
    """Directories the user may not write, whoever runs the tests."""
    closed = set()
    real = os.access

    def access(path, mode, **more):
        return str(path) not in closed and real(path, mode, **more)

    monkeypatch.setattr(os, "access", access)
    return closed


def test_a_writable_own_group_is_a_delegation(tmp_path, refused):
    root = v2_at(tmp_path / "cg")
    own = v2_at(root / "user.slice" / "run.scope")
    refused.add(str(root))
    layout = detect_layout(root, proc_at(tmp_path / "proc", "0::/user.slice/run.scope\n"))
    assert (layout.kind, layout.unified) == (LayoutKind.V2_DELEGATED, own)


def test_a_foreign_version_two_names_the_way_out(tmp_path, refused):
    root = v2_at(tmp_path / "cg")
    refused.add(str(root))
    layout = detect_layout(root, proc_at(tmp_path / "proc", "0::/\n"))
    assert layout.kind is LayoutKind.NONE
    assert "systemd-run --user" in layout.reason


def test_controllers_of_root_give_no_groups(tmp_path, refused):
    v1_at(tmp_path, "cpu")
    refused.add(str(tmp_path / "cpu"))
    assert detect_layout(tmp_path).kind is LayoutKind.NONE
