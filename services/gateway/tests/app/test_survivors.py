"""Pods that outlived their store: wanted again where they run, once what made them is there."""

from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import PodStatusRecord, SpecRecord
from cotenant_common.testing.builders import pod_manifest
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_gateway.adapters.records import to_record
from cotenant_gateway.testing import Stage, controller, stage


async def record_of(name: str = "a", **fields) -> SpecRecord:
    """As a gateway that is gone had stored it."""
    async with stage() as earlier:
        await earlier.apply(pod_manifest(name, **fields))
        return to_record(earlier.pod(name))


async def tell(on: Stage, record: SpecRecord, node: str = "n1", *, survives: bool = True) -> None:
    status = PodStatusRecord(
        uid=record.uid, namespace="default", name=record.name, node=node, phase="Running", ready=True,
        survivor=record if survives else None,
    )  # fmt: skip
    await (await on.bus.bucket(buckets.PODSTATUS)).put(f"{node}.{record.uid}", codec.encode(status))
    await on.settle()


@in_virtual_time
async def test_a_bare_pod_is_wanted_again_with_its_identity_and_its_node():
    record = await record_of()
    async with stage() as s:
        await s.join("n1")
        await tell(s, record)
        spec = s.pod("a")
        assert (spec.uid, spec.body["nodeName"], spec.incarnation) == (record.uid, "n1", record.incarnation)
        assert s.service.reading.status()["survivors"] == []
        assert await s.apply(pod_manifest("a")) == ["unchanged"]
        (event,) = s.events("pod.queued")
        assert event.reason == "Adopted"


@in_virtual_time
async def test_its_successor_may_run_anywhere():
    record = await record_of()
    async with stage() as s:
        await s.join("n1")
        await tell(s, record)
        await s.service.operations.delete("Node", None, "n1")
        await s.settle()
        successor = s.pod("a")
        assert (successor.incarnation, "nodeName" in successor.body) == (record.incarnation + 1, False)


@in_virtual_time
async def test_a_pod_of_a_controller_waits_until_it_is_applied_again_and_is_not_doubled():
    manifest = dict(controller("Deployment", replicas=1, selector={"matchLabels": {"app": "w"}}).manifest)
    async with stage() as earlier:
        await earlier.apply(manifest)
        await earlier.settle(2)
        record = to_record(earlier.pod("w-0"))
    async with stage() as s:
        await s.join("n1")
        await tell(s, record)
        assert s.spec("w-0") is None
        (listed,) = s.service.reading.status()["survivors"]
        assert (listed["pod"], listed["node"]) == ("Pod/default/w-0", "n1")
        await s.apply(manifest)
        await s.settle(3)
        deployment = s.spec("w", "Deployment")
        assert deployment is not None
        assert (s.pod("w-0").uid, s.pod("w-0").owner_uid) == (record.uid, deployment.uid)
        assert s.service.world.count("Pod") == 1


@in_virtual_time
async def test_a_pod_that_was_asked_for_meanwhile_keeps_its_name():
    record = await record_of()
    async with stage() as s:
        await s.join("n1")
        await s.apply(pod_manifest("a", cpu="2"))
        asked = s.pod("a").uid
        await tell(s, record)
        assert s.pod("a").uid == asked
        assert s.service.reading.status()["survivors"] == []


@in_virtual_time
async def test_a_status_of_a_pod_that_has_its_object_restores_nothing():
    record = await record_of()
    async with stage() as s:
        await s.join("n1")
        await tell(s, record, survives=False)
        assert s.spec("a") is None
