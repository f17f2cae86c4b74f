"""What the gateway keeps so as not to work it out again, against what it would work out."""

import asyncio
from typing import Any

import pytest

from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import Heartbeat
from cotenant_common.testing.builders import node_manifest, pod_manifest
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_gateway.core import slo_config
from cotenant_gateway.testing import beating, stage

_SWEEP_S = 61
_BEAT_TTL_S = 10


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the nodes whose policy was merged, in order."""
    names: list[str] = []
    render = slo_config.render

    def counted(facts: slo_config.NodeFacts, *rest: Any) -> slo_config.Policy:
        names.append(facts.name)
        return render(facts, *rest)

    monkeypatch.setattr(slo_config, "render", counted)
    return names


@in_virtual_time
async def test_silent_is_who_is_known_and_has_no_live_heartbeat():
    async with stage() as s, beating(s, "n2"):
        await s.join("n1")
        await s.settle()
        assert s.service.world.silent_nodes() == []
        await asyncio.sleep(_BEAT_TTL_S + 1)
        assert s.service.world.silent_nodes() == ["n1"]
        await s.beat("n1")
        await s.settle()
        assert s.service.world.silent_nodes() == []


@in_virtual_time
async def test_a_node_that_only_an_object_names_is_silent_until_it_is_deleted():
    async with stage() as s:
        await s.apply(node_manifest("n1"))
        await s.settle()
        assert s.service.world.silent_nodes() == ["n1"]
        await s.service.operations.delete("Node", None, "n1")
        await s.settle()
        assert s.service.world.silent_nodes() == []


@in_virtual_time
async def test_a_heartbeat_of_a_node_that_nobody_knows_makes_nobody_silent_when_it_ends():
    async with stage() as s:
        message = Heartbeat(node="ghost", agent_id="a", at_ms=0)
        bucket = await s.bus.bucket(buckets.HEARTBEATS)
        await bucket.put("ghost", codec.encode(message), ttl_s=2)
        await asyncio.sleep(4)
        assert s.service.world.silent_nodes() == []


@in_virtual_time
async def test_a_sweep_merges_no_policy_again(rendered: list[str]):
    async with stage() as s, beating(s, "n1", "n2"):
        await s.settle(2)
        assert {"n1", "n2"} <= set(rendered)
        rendered.clear()
        await asyncio.sleep(3 * _SWEEP_S)
        assert rendered == []


@in_virtual_time
async def test_a_policy_is_merged_again_for_the_node_that_changed_and_for_all_when_the_settings_do(
    rendered: list[str],
):
    async with stage() as s, beating(s, "n1", "n2"):
        await s.settle(2)
        rendered.clear()
        await s.apply(node_manifest("n2", node_labels={"pool": "big"}))
        await s.settle(2)
        assert set(rendered) == {"n2"}
        rendered.clear()
        threshold = '{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":45}}'
        await s.apply(config_map("slo-controller-config", **{"resource-threshold-config": threshold}))
        await s.settle(2)
        assert set(rendered) == {"n1", "n2"}
        policy = s.service.reading.policy("n1")
        assert "45" in str(policy["slo"])


@in_virtual_time
async def test_a_node_that_left_and_came_back_gets_its_policy_anew(rendered: list[str]):
    async with stage() as s:
        await s.apply(node_manifest("n1"))
        await s.settle(2)
        await s.service.operations.delete("Node", None, "n1")
        await s.settle(2)
        rendered.clear()
        await s.apply(node_manifest("n1"))
        await s.settle(2)
        assert set(rendered) == {"n1"}


@in_virtual_time
async def test_a_freeze_is_read_from_the_object_as_it_is_now():
    async with stage() as s:
        world = s.service.world
        assert world.frozen() is None
        for reason in ("launch", "still launching"):
            await s.apply(config_map("cotenant-freeze", reason=reason))
            await s.settle()
            assert world.frozen() == reason
        await s.service.operations.delete("ConfigMap", "koordinator-system", "cotenant-freeze")
        await s.settle()
        assert world.frozen() is None


@in_virtual_time
async def test_what_was_seen_of_a_pod_follows_its_statuses():
    async with stage() as s:
        await s.join("n1")
        await s.apply(pod_manifest("a"))
        spec = await s.bind("a")
        assert s.service.world.pod(spec).seen is None
        await s.report(spec)
        await s.settle()
        seen = s.service.world.pod(spec).seen
        assert seen is not None
        assert (seen.phase, seen.node) == ("Running", "n1")
        await (await s.bus.bucket(buckets.PODSTATUS)).delete(f"n1.{spec.uid}")
        await s.settle()
        assert s.service.world.pod(spec).seen is None
