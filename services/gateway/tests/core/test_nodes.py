from dataclasses import replace
from typing import Any

from cotenant_common.model.labels import TAINT_NOT_READY
from cotenant_common.testing.builders import node_manifest
from cotenant_gateway.core import nodes
from cotenant_gateway.core.nodes import Health, Inventory, Watched, decide, health_of
from cotenant_gateway.core.records import Spec

S = 1000


def inventory(agent: str = "a1", **node_labels: str) -> Inventory:
    return Inventory("n1", agent, {"cpu": 4000}, {"cpu": 4000}, node_labels)


def watched(spec: Spec | None = None, **fields: Any) -> Watched:
    defaults: dict[str, Any] = {"since_ms": 0, "inventory": inventory()}
    return Watched(name="n1", spec=spec, **{**defaults, **fields})


def registered(**node_labels: str) -> Spec:
    change = decide(watched(alive=True, beat_ms=0, inventory=inventory(**node_labels)), 0, "u")
    assert change is not None
    return change.spec


def tainted(spec: Spec) -> bool:
    return any(taint["key"] == TAINT_NOT_READY for taint in spec.body.get("taints") or ())


def test_a_beating_agent_registers_its_node():
    spec = registered(zone="a")
    assert spec.tells == ("node.ready",)
    assert spec.labels == {"zone": "a"}
    assert (health_of(spec), tainted(spec)) == (Health.READY, False)


def test_an_inventory_without_a_beat_is_what_a_machine_left_behind():
    assert decide(watched(), 10 * S, "u") is None
    assert decide(watched(alive=True, beat_ms=0, retired_agent="a1"), 0, "u") is None
    assert decide(watched(alive=True, beat_ms=0, retired_agent="a0"), 0, "u") is not None


def test_silence_becomes_not_ready_once_and_lost_once():
    spec, events = registered(), []
    for second in range(400):
        change = decide(watched(spec, beat_ms=0), second * S, "u")
        if change is not None:
            spec = change.spec
            events.append((second, spec.tells))
    assert events == [(40, ("node.notready",)), (300, ("node.lost",))]
    assert tainted(spec)
    assert nodes.is_gone(spec)


def test_a_node_that_comes_back_is_ready_once_and_untainted():
    lost = decide(watched(registered(), beat_ms=0), 300 * S, "u").spec
    back = decide(watched(lost, beat_ms=301 * S, alive=True), 301 * S, "u").spec
    assert (back.tells, tainted(back), nodes.is_gone(back)) == (("node.ready",), False, False)
    assert decide(watched(back, beat_ms=302 * S, alive=True), 302 * S, "u") is None


def test_our_own_deafness_is_not_its_silence():
    spec = registered()
    assert decide(watched(spec, since_ms=1000 * S), 1039 * S, "u") is None
    assert decide(watched(spec, since_ms=1000 * S), 1040 * S, "u").spec.tells == ("node.notready",)


def test_a_restart_of_ours_gives_a_silent_node_no_second_five_minutes():
    silent = decide(watched(registered(), beat_ms=0), 40 * S, "u").spec
    after_restart = watched(silent, since_ms=200 * S)
    assert decide(after_restart, 239 * S, "u") is None
    assert decide(after_restart, 300 * S, "u").spec.tells == ("node.lost",)


def test_a_node_that_a_user_announced_is_not_ready_until_it_beats():
    manifest = nodes.with_user_part(None, node_manifest("n1"))
    change = decide(watched(Spec("Node", None, "n1", "u", 0, manifest), inventory=None), 0, "u")
    assert change.spec.tells == ("node.notready",)
    assert decide(watched(change.spec, inventory=None), 500 * S, "u").spec.tells == ("node.lost",)


def test_labels_that_the_agent_brings_later_are_added_and_the_users_win():
    spec = registered(zone="a")
    mine = replace(spec, manifest={**spec.manifest, "metadata": {"name": "n1", "labels": {"zone": "mine"}}})
    change = decide(watched(mine, beat_ms=0, alive=True, inventory=inventory(zone="a", disk="ssd")), 0, "u")
    assert change.spec.labels == {"zone": "mine", "disk": "ssd"}
    assert change.spec.tells == ()


def test_applying_a_node_again_keeps_what_the_system_wrote():
    silent = decide(watched(registered(), beat_ms=0), 40 * S, "u").spec
    cordoned = nodes.cordon(silent, unschedulable=True).spec
    manifest = nodes.with_user_part(cordoned, {"metadata": {"name": "n1", "labels": {"a": "b"}}, "spec": {}})
    again = replace(cordoned, manifest=manifest)
    assert (health_of(again), tainted(again)) == (Health.NOT_READY, True)
    assert again.body["unschedulable"] is True


def test_cordon_is_idempotent():
    cordoned = nodes.cordon(registered(), unschedulable=True)
    assert cordoned is not None
    assert nodes.cordon(cordoned.spec, unschedulable=True) is None
    assert "unschedulable" not in nodes.cordon(cordoned.spec, unschedulable=False).spec.body
