import os

from cotenant.demo import knobs


def a_tree(tmp_path):
    """A cgroup directory as the kernel shows one: settings, counters, and files that act when written."""
    for name, text in {
        "cpu.shares": "1024",
        "cpu.cfs_quota_us": "-1",
        "cgroup.procs": "1\n2",
        "memory.usage_in_bytes": "777",
        "memory.max_usage_in_bytes": "888",
        "cpu.stat": "nr_periods 0",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cpu.stat").chmod(0o444)
    return tmp_path


def test_only_settings_are_compared(tmp_path):
    found = knobs.read_settings([a_tree(tmp_path)], "cotenant-demo")

    assert {os.path.basename(path) for path in found} == {"cpu.shares", "cpu.cfs_quota_us"}  # noqa: PTH119


def test_nothing_changed_is_no_difference(tmp_path):
    base = a_tree(tmp_path)
    before = knobs.read_settings([base], "cotenant-demo")
    (base / "memory.usage_in_bytes").write_text("999999")

    assert knobs.differences(before, knobs.read_settings([base], "cotenant-demo")) == []


def test_a_changed_setting_is_named_with_both_values(tmp_path):
    base = a_tree(tmp_path)
    before = knobs.read_settings([base], "cotenant-demo")
    (base / "cpu.shares").write_text("2")

    found = knobs.differences(before, knobs.read_settings([base], "cotenant-demo"))

    assert found == [f"{base}/cpu.shares: was 1024, is 2"]


def test_a_group_left_behind_is_a_difference_and_a_stranger_is_not(tmp_path):
    base = a_tree(tmp_path)
    before = knobs.read_settings([base], "cotenant-demo")
    (base / "cotenant-demo-7" / "ls").mkdir(parents=True)
    (base / "somebody-else").mkdir()

    found = knobs.differences(before, knobs.read_settings([base], "cotenant-demo"))

    assert found == [
        f"{base}/cotenant-demo-7: was (absent), is group",
        f"{base}/cotenant-demo-7/ls: was (absent), is group",
    ]


def test_a_directory_that_is_gone_has_no_settings(tmp_path):
    assert knobs.read_settings([tmp_path / "gone"], "x") == {}
