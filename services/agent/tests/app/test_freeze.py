from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant_agent.adapters.freeze_file import FreezeFiles, cluster_freeze, local_freeze
from cotenant_agent.app.placed import Placed
from cotenant_agent.cgroup.files import Knob
from cotenant_agent.core.merge import CpuLimit, WishSource, hold
from cotenant_agent.core.policy import NodePolicy
from cotenant_agent.testing import Rig
from cotenant_common.model.reasons import ReasonCode

GIB = 1 << 30
CALM = {"node": 1_500, "ls": 1_000, "be": 300, "system": 0}
BUSY = CALM | {"node": 3_500, "ls": 3_000}


def change(rig: Rig, **fields: Any) -> None:
    rig.enforcer.set_policy(replace(rig.enforcer.policy, **fields), rig.ms)


def batch_pod(rig: Rig, name: str, namespace: str = "default") -> Placed:
    return rig.place(name, namespace=namespace, qos="BE", band="batch", cpu="1")


def short_of_memory(rig: Rig, *uids: str) -> None:
    rig.node.sampler.memory = {"node": 31 * GIB, "be": 8 * GIB} | dict.fromkeys(uids, 4 * GIB)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.node.sampler.rates = dict(CALM)
    rig.seconds(3)
    return rig


@pytest.mark.parametrize("by_hand", [True, False])
def test_in_a_freeze_the_cap_is_not_tightened_and_may_be_let_go(rig: Rig, by_hand: bool):
    before = rig.quota
    if by_hand:
        rig.enforcer.freeze_locally("launch day")
    else:
        change(rig, frozen="launch day")
    rig.node.sampler.rates = dict(BUSY)
    tick = rig.seconds(3)
    assert rig.quota == before
    assert (tick.limit.source, tick.limit.reason) == (WishSource.FREEZE, ReasonCode.FROZEN)
    assert "launch day" in tick.limit.message
    assert tick.wish_milli is not None
    assert tick.wish_milli < (tick.be_limit_milli or 0)
    rig.node.sampler.rates = CALM | {"node": 800, "ls": 300}
    rig.seconds(5)
    assert rig.quota > before


def test_after_a_freeze_the_cap_follows_services_again(rig: Rig):
    rig.enforcer.freeze_locally("x")
    rig.node.sampler.rates = dict(BUSY)
    frozen = rig.seconds(3)
    rig.enforcer.freeze_locally(None)
    after = rig.seconds(2)
    assert (after.be_limit_milli or 0) < (frozen.be_limit_milli or 0)


def test_work_that_runs_free_goes_on_running_free():
    limit = hold(CpuLimit(500, WishSource.SUPPRESS), None, "x")
    assert (limit.limit_milli, limit.reason) == (None, ReasonCode.FROZEN)
    assert hold(CpuLimit(None), 700, "x") == CpuLimit(None)
    assert hold(CpuLimit(900), 700, "x") == CpuLimit(900)
    assert hold(CpuLimit(500), 700, "x").limit_milli == 700


@pytest.mark.parametrize("brake", ["frozen", "observe"])
def test_nobody_leaves_and_who_would_is_told(rig: Rig, brake: str):
    pod = batch_pod(rig, "batch")
    short_of_memory(rig, pod.uid)
    acting = rig.seconds(2)
    assert acting.memory is not None
    assert (len(acting.memory.victims), acting.would_evict) == (1, ())
    change(rig, **({"frozen": "x"} if brake == "frozen" else {"observe": True}))
    held = rig.seconds(2)
    assert held.memory is None
    assert len(held.would_evict) == 1
    assert "default/batch" in held.would_evict[0]


def test_pods_of_an_observed_namespace_stay_and_the_others_do_not(rig: Rig):
    kept, other = batch_pod(rig, "a", namespace="dev"), batch_pod(rig, "b")
    short_of_memory(rig, kept.uid, other.uid)
    change(rig, observe_namespaces=("dev",))
    tick = rig.seconds(2)
    assert tick.memory is not None
    assert [victim.uid for victim in tick.memory.victims] == [other.uid]
    assert ["dev/a" in line for line in tick.would_evict] == [True]


def test_the_memory_of_batch_work_is_not_cut_in_a_freeze(rig: Rig):
    before = rig.node.tree.read("n1/be", Knob.MEMORY_MAX)
    rig.enforcer.freeze_locally("x")
    rig.place("web", qos="LS", memory="3Gi", cpu="1")
    rig.seconds(1)
    assert rig.node.tree.read("n1/be", Knob.MEMORY_MAX) >= before
    rig.enforcer.freeze_locally(None)
    rig.seconds(1)
    assert rig.node.tree.read("n1/be", Knob.MEMORY_MAX) < before


def test_a_disabled_policy_asks_for_nothing(rig: Rig):
    rig.enforcer.set_policy(NodePolicy(enabled=False, frozen="x"), rig.ms)
    assert rig.seconds(2).wish_milli is None


def test_a_freeze_by_hand_is_a_file_and_so_is_what_the_cluster_said(tmp_path: Path):
    files = FreezeFiles(tmp_path)
    assert (files.local(), files.cluster()) == (None, None)
    local_freeze(tmp_path).write("cut off", "ann", 5)
    files.remember("launch", 6)
    assert (files.local(), FreezeFiles(tmp_path).cluster()) == ("cut off", "launch")
    files.remember(None, 7)
    assert local_freeze(tmp_path).clear()
    assert (files.local(), files.cluster()) == (None, None)
    assert not cluster_freeze(tmp_path).clear()


@pytest.mark.parametrize(("text", "reason"), [("", "no reason given"), ("{}", "no reason given"), ("stop", "stop")])
def test_any_file_freezes_whatever_is_in_it(tmp_path: Path, text: str, reason: str):
    (tmp_path / "freeze").write_text(text)
    assert FreezeFiles(tmp_path).local() == reason


def test_a_file_that_cannot_be_read_freezes(tmp_path: Path):
    (tmp_path / "freeze").mkdir()
    assert "cannot be read" in (FreezeFiles(tmp_path).local() or "")


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    FreezeFiles(tmp_path / "taken").remember("x", 1)
