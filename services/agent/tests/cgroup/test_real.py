"""On the kernel itself, under a group of the test's own that is always removed."""

import os
import subprocess
import sys
import time

import pytest

from cotenant_agent.cgroup.files import Knob
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.layout import detect_layout, open_tree
from cotenant_agent.cgroup.teardown import remove_everything
from cotenant_agent.cgroup.writer import KnobChange, KnobWriter, Outcome
from cotenant_agent.collect.cgroup_stats import GroupReader

LAYOUT = detect_layout()
pytestmark = pytest.mark.skipif(LAYOUT.version is None, reason=f"no rights to cgroups here: {LAYOUT.reason}")
POD = "n/be/pod1"


@pytest.fixture
def tree():
    found = open_tree(LAYOUT, f"cotenant-test-{os.getpid()}")
    assert found is not None
    yield found
    remove_everything(KnobWriter(found))
    assert not found.exists("")


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_attached_killed_and_its_group_removed(tree, sleeper):
    tree.create(POD)
    tree.attach(POD, sleeper.pid)
    assert tree.pids("n") == (sleeper.pid,)
    assert tree.kill("n") == 1
    assert sleeper.wait(timeout=5) == -9
    tree.remove("n")
    assert not tree.exists("n")


def test_every_knob_is_written_and_restored(tree, tmp_path):
    tree.create(POD)
    writer = KnobWriter(tree, KnobJournal(tmp_path / "knobs.jsonl"))
    wanted = {
        Knob.CPU_SHARES: 512,
        Knob.CPU_QUOTA: 50_000,
        Knob.CPUSET_CPUS: "0",
        Knob.MEMORY_MAX: 1 << 28,
        Knob.PIDS_MAX: 100,
    }
    plan = [KnobChange(POD, knob, value, "test") for knob, value in wanted.items() if tree.supports(knob)]
    results = writer.apply([*plan, KnobChange("n/be", Knob.CPU_IDLE, 1, "test")], 0)
    assert {r.outcome for r in results if r.change.knob is not Knob.CPU_IDLE} == {Outcome.WRITTEN}
    for item in plan:
        assert tree.read(POD, item.knob) == item.value
    report = writer.restore(0)
    assert report.differences == ()


def test_cpu_and_memory_of_a_busy_group_are_measured(tree):
    tree.create(POD)
    reader = GroupReader(tree, POD, waits=True)
    burn = "x = bytearray(1 << 24); import time\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", burn])
    try:
        tree.attach(POD, process.pid)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            found = reader.read()
            if (found.cpu_us or 0) > 50_000 and (found.run_us or 0) > 20_000:
                break
            time.sleep(0.02)
        assert (found.cpu_us or 0) > 50_000
        assert (found.run_us or 0) > 20_000
        assert found.memory_bytes is not None
    finally:
        process.kill()
        process.wait()
        reader.close()
