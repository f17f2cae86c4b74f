import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_agent.cgroup.fake import FakeCgroupTree
from cotenant_agent.cgroup.files import Knob, Version
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.cgroup.writer import KnobChange, KnobWriter, Outcome

POD = "n/be/pod1"
OTHER = "n/be/pod2"


def tree_with(*groups, **more):
    tree = FakeCgroupTree(**more)
    for group in groups or (POD,):
        tree.create(group)
    return tree


def change(group, knob, value):
    return KnobChange(group, knob, value, "test")


def write(writer, knob, value, group=POD, now_ms=0):
    return writer.write(change(group, knob, value), now_ms).outcome


def test_an_equal_value_is_not_written_again():
    writer = KnobWriter(tree_with())
    assert write(writer, Knob.CPU_QUOTA, 50_000) is Outcome.WRITTEN
    assert write(writer, Knob.CPU_QUOTA, 50_000, now_ms=1_000) is Outcome.UNCHANGED
    assert len(writer.tree.writes) == 1


def test_a_value_changed_behind_our_back_is_put_right_within_a_minute():
    writer = KnobWriter(tree_with())
    write(writer, Knob.CPU_QUOTA, 50_000)
    writer.tree.write(POD, Knob.CPU_QUOTA, 70_000)
    assert write(writer, Knob.CPU_QUOTA, 50_000, now_ms=60_000) is Outcome.WRITTEN


def test_a_knob_that_refuses_everything_is_left_alone_and_probed_slowly():
    tree = tree_with(refuses={Knob.CPU_BURST})
    writer = KnobWriter(tree)
    for second in range(3_600):
        for group in (POD, "n/be", "n"):
            write(writer, Knob.CPU_BURST, 0 if group == "n" else 1 + second, group, now_ms=second * 1_000)
    assert tree.attempts < 60
    assert Knob.CPU_BURST in writer.unsupported(3_600_000 - 1) or tree.attempts > 3
    assert writer.counts[Outcome.UNSUPPORTED] > 5_000


def test_a_knob_that_works_again_is_used_again():
    tree = tree_with(refuses={Knob.CPU_IDLE})
    writer = KnobWriter(tree)
    for second in range(60):
        write(writer, Knob.CPU_IDLE, 1, now_ms=second * 1_000)
    tree.refuses.clear()
    assert write(writer, Knob.CPU_IDLE, 1, now_ms=3_600_000) is Outcome.WRITTEN
    assert writer.unsupported(3_600_000) == tuple(k for k in Knob if not tree.supports(k))


def test_a_file_that_does_not_exist_is_unsupported():
    assert write(KnobWriter(tree_with(lacks={Knob.CPU_IDLE})), Knob.CPU_IDLE, 1) is Outcome.UNSUPPORTED


def test_a_group_that_is_gone_is_an_outcome_and_not_an_error():
    writer = KnobWriter(tree_with())
    assert write(writer, Knob.CPU_QUOTA, 50_000, "n/be/other") is Outcome.GROUP_GONE


@pytest.mark.parametrize("cpus", ["", "0-7", "4"])
def test_an_empty_or_foreign_cpuset_is_never_written(cpus):
    writer = KnobWriter(tree_with(cpus="0-3"))
    result = writer.write(change(POD, Knob.CPUSET_CPUS, cpus), 0)
    assert result.outcome is Outcome.REFUSED
    assert "cpu" in result.message
    assert writer.tree.attempts == 0


def test_a_child_quota_above_its_parent_is_refused_before_the_kernel_must():
    writer = KnobWriter(tree_with())
    write(writer, Knob.CPU_QUOTA, 50_000, "n/be")
    assert write(writer, Knob.CPU_QUOTA, 60_000) is Outcome.REFUSED


def test_burst_above_quota_is_refused():
    writer = KnobWriter(tree_with())
    write(writer, Knob.CPU_QUOTA, 50_000)
    assert write(writer, Knob.CPU_BURST, 60_000) is Outcome.REFUSED


def test_an_idle_group_takes_no_shares():
    writer = KnobWriter(tree_with())
    write(writer, Knob.CPU_IDLE, 1)
    assert write(writer, Knob.CPU_SHARES, 512) is Outcome.REFUSED


def test_observing_writes_nothing_and_still_reports():
    writer = KnobWriter(tree_with(), observe=True)
    assert write(writer, Knob.CPU_QUOTA, 50_000) is Outcome.OBSERVED
    assert writer.tree.attempts == 0
    assert writer.journal.entries() == []


def test_shrinking_a_parent_shrinks_its_child_first():
    writer = KnobWriter(tree_with())
    plan = [change("n/be", Knob.CPU_QUOTA, 400_000), change(POD, Knob.CPU_QUOTA, 400_000)]
    writer.apply(plan, 0)
    smaller = [change("n/be", Knob.CPU_QUOTA, 333_334), change(POD, Knob.CPU_QUOTA, 333_334)]
    results = writer.apply(smaller, 1)
    assert {result.outcome for result in results} == {Outcome.WRITTEN}
    assert [group for group, _, _ in writer.tree.writes[-2:]] == [POD, "n/be"]


def test_growing_a_child_grows_its_parent_first():
    writer = KnobWriter(tree_with())
    writer.apply([change("n/be", Knob.CPU_QUOTA, 200_000), change(POD, Knob.CPU_QUOTA, 200_000)], 0)
    writer.apply([change(POD, Knob.CPU_QUOTA, 400_000), change("n/be", Knob.CPU_QUOTA, 400_000)], 1)
    assert [group for group, _, _ in writer.tree.writes[-2:]] == ["n/be", POD]


def test_a_cpuset_moves_through_the_union():
    writer = KnobWriter(tree_with(cpus="0-5"))
    writer.apply([change("n/be", Knob.CPUSET_CPUS, "0-3"), change(POD, Knob.CPUSET_CPUS, "0-3")], 0)
    writer.tree.writes.clear()
    writer.apply([change("n/be", Knob.CPUSET_CPUS, "2-5"), change(POD, Knob.CPUSET_CPUS, "2-5")], 1)
    assert writer.tree.writes[0] == ("n/be", Knob.CPUSET_CPUS, "0-5")
    assert writer.tree.read("n/be", Knob.CPUSET_CPUS) == "2-5"


QUOTA = st.one_of(st.just(-1), st.integers(1_000, 500_000))
CPUS = st.sets(st.integers(0, 3), min_size=1).map(lambda cpus: ",".join(map(str, sorted(cpus))))
LEVELS = ("n/be", POD, OTHER)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(QUOTA, QUOTA, QUOTA, CPUS, CPUS, CPUS), max_size=6), st.sampled_from(Version))
def test_no_series_of_plans_ever_breaks_a_kernel_rule(plans, version):
    tree = tree_with(*LEVELS, cgroup_version=version)
    writer = KnobWriter(tree)
    for round_, (top, left, right, *cpus) in enumerate(plans):
        fits = [q if top == -1 or (q != -1 and q <= top) else top for q in (left, right)]
        quotas = [change(g, Knob.CPU_QUOTA, q) for g, q in zip(LEVELS, (top, *fits), strict=True)]
        inner = [",".join(sorted(set(c.split(",")) & set(cpus[0].split(","))) or cpus[0].split(",")) for c in cpus]
        sets = [change(g, Knob.CPUSET_CPUS, c) for g, c in zip(LEVELS, inner, strict=True)]
        results = writer.apply([*quotas, *sets], round_)
        assert {r.outcome for r in results} <= {Outcome.WRITTEN, Outcome.UNCHANGED}
        assert tree.violations() == []


def test_what_was_written_is_restored_to_the_last_difference(tmp_path):
    tree = tree_with()
    tree.write(POD, Knob.CPU_SHARES, 700)
    writer = KnobWriter(tree, KnobJournal(tmp_path / "knobs.jsonl"))
    write(writer, Knob.CPU_IDLE, 1)
    write(writer, Knob.CPU_QUOTA, 90_000, "n/be")
    write(writer, Knob.CPU_QUOTA, 50_000)
    restarted = KnobWriter(tree, KnobJournal(tmp_path / "knobs.jsonl"))
    report = restarted.restore(0)
    assert report.differences == ()
    assert report.written_back == 4
    assert tree.read(POD, Knob.CPU_SHARES) == 700
    assert not (tmp_path / "knobs.jsonl").exists()


def test_a_restore_that_fails_says_what_differs(tmp_path):
    tree = tree_with()
    writer = KnobWriter(tree, KnobJournal(tmp_path / "knobs.jsonl"))
    write(writer, Knob.CPU_QUOTA, 50_000)
    tree.refuses.add(Knob.CPU_QUOTA)
    report = writer.restore(0)
    assert report.differences == ("n/be/pod1 cpu_quota: expected -1, found 50000",)
    assert (tmp_path / "knobs.jsonl").exists()


def test_a_second_start_keeps_the_first_original(tmp_path):
    tree = tree_with()
    for value in (50_000, 60_000):
        write(KnobWriter(tree, KnobJournal(tmp_path / "j")), Knob.CPU_QUOTA, value)
    assert KnobJournal(tmp_path / "j").original(POD, Knob.CPU_QUOTA) == -1


def test_a_removed_group_needs_no_restoring(tmp_path):
    tree = tree_with()
    writer = KnobWriter(tree, KnobJournal(tmp_path / "j"))
    write(writer, Knob.CPU_QUOTA, 50_000)
    tree.remove(POD)
    writer.forget(POD)
    assert KnobJournal(tmp_path / "j").entries() == []


def test_a_journal_cut_short_by_a_crash_still_loads(tmp_path):
    path = tmp_path / "j"
    journal = KnobJournal(path)
    journal.remember(POD, Knob.CPU_QUOTA, -1)
    with path.open("a") as file:
        file.write('{"group": "n/be/pod1", "kno')
    assert KnobJournal(path).entries() == [(POD, Knob.CPU_QUOTA, -1)]


def test_a_journal_stays_small_while_pods_come_and_go(tmp_path):
    journal = KnobJournal(tmp_path / "j")
    for number in range(3_000):
        journal.remember(f"n/be/pod{number}", Knob.CPU_QUOTA, -1)
        journal.forget(f"n/be/pod{number}")
    assert len((tmp_path / "j").read_text().splitlines()) < 2_100


@pytest.mark.parametrize("group", ["../x", "a/../b", "/abs", "a//b", "a b"])
def test_no_group_name_leaves_the_root(group):
    with pytest.raises(CgroupError):
        FakeCgroupTree().create(group)


def test_on_version_2_an_unset_cpuset_is_given_back_as_unset():
    tree = FakeCgroupTree(cpus="0-3", cgroup_version=Version.V2)
    tree.create("n/be")
    writer = KnobWriter(tree, KnobJournal())
    writer.write(KnobChange("n/be", Knob.CPUSET_CPUS, "0-1", "test"), 0)
    assert tree.effective_cpus("n/be") == (0, 1)
    assert writer.restore(0).differences == ()
    assert tree.read("n/be", Knob.CPUSET_CPUS) == ""
    assert tree.effective_cpus("n/be") == (0, 1, 2, 3)
