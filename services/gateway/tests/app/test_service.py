import asyncio
import json
from typing import Any

import pytest

from cotenant_common.bus.protocol import BusUnavailableError, PayloadTooLargeError, Received
from cotenant_common.contracts import buckets, subjects
from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import (
    ApplyReply,
    ApplyRequest,
    EmergencyUsed,
    EvictReply,
    EvictRequest,
)
from cotenant_common.model import labels
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.testing.builders import pod_manifest, quota_manifest
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_gateway.adapters.records import to_gate_request
from cotenant_gateway.app import observing
from cotenant_gateway.core import lifecycle
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.observe import Observing
from cotenant_gateway.core.removal import Request
from cotenant_gateway.testing import Stage, beating, controller, stage


def evict(stage: Stage, *names: str, kind: str = "drain", command: str = "c1", **fields: Any) -> EvictRequest:
    victims = [PodRef(uid=stage.pod(n).uid, namespace="default", name=n) for n in names]
    defaults = {"requested_by": "t", "reason": "NodeHot", "message": "hot"}
    return EvictRequest(id=command, kind=kind, victims=victims, **{**defaults, **fields})


async def ask(stage: Stage, request: EvictRequest) -> EvictReply:
    return await stage.call(subjects.POD_EVICT, request, EvictReply)


@in_virtual_time
async def test_an_applied_pod_is_queued_once():
    async with stage() as s:
        assert await s.apply(pod_manifest("a")) == ["created"]
        assert await s.apply(pod_manifest("a")) == ["unchanged"]
        await s.settle()
        (event,) = s.events("pod.queued")
        assert (event.object, event.uid) == ("Pod/default/a", s.pod("a").uid)
        assert event.id.startswith("specs/Pod.default.a/")


@in_virtual_time
async def test_a_faulty_request_changes_nothing():
    async with stage() as s:
        planned = await s.service.operations.apply_data([pod_manifest("a"), pod_manifest("b", cpu="?")])
        assert planned.faults
        assert s.spec("a") is None
        assert s.events() == []


@in_virtual_time
async def test_a_dry_run_writes_nothing():
    async with stage() as s:
        planned = await s.service.operations.apply_data([pod_manifest("a")], dry_run=True)
        assert planned.items[0].action == "created"
        assert s.spec("a") is None


@in_virtual_time
async def test_other_services_apply_over_the_bus_and_faults_are_an_answer():
    async with stage() as s:
        request = ApplyRequest(id="1", manifests=[pod_manifest("a", cpu=0.5)], requested_by="profiler")
        reply = await s.call(subjects.OBJECT_APPLY, request, ApplyReply)
        assert (reply.ok, reply.results[0].action) == (True, "created")
        assert s.pod("a").pod().requests == {"cpu": 500}
        bad = ApplyRequest(id="2", manifests=[{"kind": "Pod"}], requested_by="profiler")
        reply = await s.call(subjects.OBJECT_APPLY, bad, ApplyReply)
        assert not reply.ok
        assert "apiVersion" in reply.results[0].errors[0]


@in_virtual_time
async def test_a_deleted_pod_goes_when_its_node_says_so():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        spec = await s.run_pod("a")
        outcome = await s.service.operations.delete("Pod", "default", "a")
        assert outcome.action == "deleting"
        assert s.pod("a").deletion is not None
        await s.report(spec, "Deleted")
        await s.settle()
        assert s.spec("a") is None
        assert [event.uid for event in s.events("pod.deleted")] == [spec.uid]
        assert s.events("pod.evicted") == []


@in_virtual_time
async def test_a_pod_that_never_ran_goes_at_once_and_force_waits_for_nobody():
    async with stage() as s:
        await s.apply(pod_manifest("a"), pod_manifest("b"))
        assert (await s.service.operations.delete("pods", "default", "a")).action == "deleted"
        await s.run_pod("b")
        assert (await s.service.operations.delete("Pod", "default", "b", force=True)).action == "deleted"
        assert (s.spec("a"), s.spec("b")) == (None, None)


@in_virtual_time
async def test_an_eviction_is_one_event_and_a_successor():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        old = await s.run_pod("a")
        request = evict(s, "a")
        reply = await ask(s, request)
        assert reply.granted
        again = await ask(s, request)
        assert again.granted
        await s.report(old, "Deleted")
        await s.settle()
        new = s.pod("a")
        assert (new.incarnation, new.requeued_from) == (1, old.uid)
        (event,) = s.events("pod.evicted")
        assert (event.uid, event.reason, event.data["kind"]) == (old.uid, "NodeHot", "drain")
        assert [e.data["incarnation"] for e in s.events("pod.queued")] == [0, 1]


@in_virtual_time
async def test_a_command_is_answered_again_after_a_crash():
    server = memory_server()
    first = await Stage(server).start()
    await first.apply(pod_manifest("a"))
    await first.run_pod("a")
    request = evict(first, "a")
    await ask(first, request)
    await first.crash()
    second = await Stage(server).start()
    reply = await ask(second, request)
    assert reply.granted
    await second.settle()
    assert len({event.id for event in second.events("pod.evicted")}) == 1
    await second.stop()


@in_virtual_time
async def test_events_that_a_crash_left_unsaid_are_said_once():
    server = memory_server()
    first = await Stage(server).start()
    await first.apply(pod_manifest("a"))
    await first.settle()
    told = {event.id for event in first.events()}
    await first.crash()
    second = await Stage(server).start()
    await second.settle()
    assert {event.id for event in second.events()} == told
    await second.stop()


@in_virtual_time
async def test_refusals_are_told_and_dry_runs_are_not():
    async with stage() as s:
        await s.apply(pod_manifest("a"))
        dry = await ask(s, evict(s, "a", dry_run=True))
        assert (dry.granted, dry.reason) == (False, "NotEvictable")
        assert s.events("eviction.refused") == []
        await ask(s, evict(s, "a", command="c2"))
        await s.settle()
        (event,) = s.events("eviction.refused")
        assert (event.reason, event.cause_id) == ("NotEvictable", "c2")


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
}


@in_virtual_time
async def test_two_evictions_at_once_do_not_both_pass_a_budget_for_one():
    async with stage() as s, beating(s, "n1"):
        await s.apply(*(pod_manifest(n, extra_labels={"app": "x"}) for n in ("a", "b")), BUDGET)
        for name in ("a", "b"):
            await s.run_pod(name)
        replies = await asyncio.gather(ask(s, evict(s, "a")), ask(s, evict(s, "b", command="c2")))
        assert sorted(reply.granted for reply in replies) == [False, True]


@in_virtual_time
async def test_a_freeze_is_kept_and_ends():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        await s.run_pod("a")
        await s.service.brakes.freeze("launch day")
        reply = await ask(s, evict(s, "a", kind="reclaim", beneficiary="q"))
        assert (reply.reason, "launch day" in reply.message) == ("Frozen", True)
        await s.settle()
        assert s.service.reading.policy("n1")["frozen"] == "launch day"
        assert s.service.reading.status()["freeze"]["by"] == "user"
        assert (await s.service.brakes.unfreeze("ann")).action == "unfrozen"
        await s.settle()
        frozen, unfrozen = s.events("cluster.frozen", "cluster.unfrozen")
        assert (frozen.message, frozen.data["by"], "by ann" in unfrozen.message) == ("launch day", "user", True)
        assert (await ask(s, evict(s, "a", kind="reclaim", beneficiary="q", command="c2"))).granted


@in_virtual_time
async def test_an_agents_emergency_is_booked_and_the_pod_queued_again():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        old = await s.run_pod("a")
        await s.report(old, "Failed", reason="NodePressure")
        await s.settle()
        report = EmergencyUsed(
            id="e1", node="n1", victim=PodRef(uid=old.uid, namespace="default", name="a"), reason="NodePressure",
            message="memory", at_ms=0,
        )  # fmt: skip
        for _ in range(2):
            assert (await s.call(subjects.EMERGENCY_USED, report, EvictReply)).granted
        await s.settle()
        assert s.pod("a").incarnation == 1
        assert [e.reason for e in s.events("pod.evicted")] == ["NodePressure"]
        assert len(s.events("emergency.used")) == 1


@in_virtual_time
async def test_a_node_registers_falls_silent_is_lost_and_its_pods_run_elsewhere():
    async with stage() as s:
        async with beating(s, "n1"):
            await s.apply(pod_manifest("a"), pod_manifest("b", annotations={labels.REQUEUE: "false"}))
            old = await s.run_pod("a")
            await s.run_pod("b")
            assert s.service.reading.node("n1")["ready"]
        await asyncio.sleep(60)
        assert s.service.reading.node("n1")["health"] == "NotReady"
        assert s.pod("a").uid == old.uid
        await asyncio.sleep(300)
        assert s.service.reading.node("n1")["health"] == "Lost"
        assert s.pod("a").requeue_reason == ReasonCode.NODE_LOST
        assert s.spec("b") is None
        async with beating(s, "n1"):
            await s.settle(5)
        assert [e.type for e in s.events() if e.type.startswith("node.")] == [
            "node.ready", "node.notready", "node.lost", "node.ready",
        ]  # fmt: skip
        assert len(s.events("pod.evicted")) == 2
        assert s.pod("a").incarnation == 1


@in_virtual_time
async def test_deleting_a_node_ends_the_machine_for_its_pods_at_once():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        await s.run_pod("a")
        await s.service.operations.delete("Node", None, "n1")
        assert s.pod("a").requeue_reason == ReasonCode.NODE_LOST
        await s.settle(30)
        assert s.spec("n1", "Node", None) is None
        with pytest.raises(ApiError, match="a policy of node n1"):
            s.service.reading.policy("n1")
        assert [e.reason for e in s.events("pod.evicted")] == ["NodeLost"]


@in_virtual_time
async def test_a_bus_that_was_away_loses_no_node():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        await s.run_pod("a")
        s.context.bus.partition()
        await asyncio.sleep(900)
        s.context.bus.heal()
        await s.settle(15)
        assert s.service.reading.node("n1")["ready"]
        assert s.events("node.lost") == []
        assert s.pod("a").incarnation == 0


@in_virtual_time
async def test_cordon_marks_the_node():
    async with stage() as s, beating(s, "n1"):
        assert (await s.service.operations.cordon("n1", unschedulable=True)).action == "cordoned"
        assert s.service.reading.node("n1")["unschedulable"]
        assert (await s.service.operations.cordon("n1", unschedulable=True)).action == "unchanged"
        with pytest.raises(ApiError, match="Node/-/n2 does not exist"):
            await s.service.operations.cordon("n2", unschedulable=True)


def slo(**data: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {name.replace("_", "-"): json.dumps(value) for name, value in data.items()},
    }


@in_virtual_time
async def test_policies_are_rendered_per_node_and_follow_the_config_map():
    async with stage() as s, beating(s, "n1"):
        assert s.service.reading.policy("n1")["colocation"]["cpuReclaimThresholdPercent"] == 60
        assert len(s.events("policy.changed")) == 1
        await s.apply(slo(colocation_config={"cpuReclaimThresholdPercent": 70}))
        await s.settle()
        policy = s.service.reading.policy("n1")
        assert policy["colocation"]["cpuReclaimThresholdPercent"] == 70
        assert policy["sources"]["colocation.cpuReclaimThresholdPercent"] == "cluster"
        await s.service.operations.delete("ConfigMap", "koordinator-system", "slo-controller-config")
        await s.settle()
        assert s.service.reading.policy("n1")["colocation"]["cpuReclaimThresholdPercent"] == 60
        assert len(s.events("policy.changed")) == 3


@in_virtual_time
async def test_a_deployment_makes_pods_replaces_evicted_ones_and_takes_them_along():
    async with stage() as s, beating(s, "n1"):
        owner = dict(controller("Deployment", replicas=2, selector={"matchLabels": {"app": "w"}}).manifest)
        await s.apply(owner)
        await s.settle()
        olds = [await s.run_pod(name) for name in ("w-0", "w-1")]
        assert (await ask(s, evict(s, "w-1"))).granted
        await s.report(olds[1], "Deleted")
        await s.settle()
        assert s.pod("w-1").incarnation == 1
        await s.service.operations.delete("Deployment", "default", "w")
        await s.settle()
        assert s.spec("w-1") is None
        assert s.pod("w-0").deletion is not None
        await s.report(olds[0], "Deleted")
        await s.settle()
        assert s.spec("w-0") is None


@in_virtual_time
async def test_a_job_completes():
    async with stage() as s, beating(s, "n1"):
        await s.apply(dict(controller("Job", completions=2, parallelism=1).manifest))
        await s.settle()
        for name in ("w-0", "w-1"):
            await s.report(await s.run_pod(name), "Succeeded")
            await s.settle()
        shown = s.service.reading.object("Job", "default", "w")
        assert shown["status"]["phase"] == "Complete"
        assert shown["status"]["completedIndexes"] == "0-1"


@in_virtual_time
async def test_finished_pods_leave_after_their_time():
    async with stage(keep_finished_s=60) as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        await s.report(await s.run_pod("a"), "Succeeded")
        await s.settle(30)
        assert s.spec("a") is not None
        await s.settle(100)  # looked at once a minute
        assert s.spec("a") is None


@in_virtual_time
async def test_a_quota_in_use_cannot_be_deleted():
    async with stage() as s:
        await s.apply(quota_manifest("q", maximum={"cpu": "4"}), pod_manifest("a", quota="q"))
        with pytest.raises(ApiError, match="1 pods are charged to quota q"):
            await s.service.operations.delete("ElasticQuota", "default", "q")
        assert (await s.service.operations.delete("ElasticQuota", "default", "q", force=True)).action == "deleted"


@in_virtual_time
async def test_explain_answers_from_records_when_the_scheduler_is_away():
    async with stage() as s:
        await s.apply(pod_manifest("a"))
        story = await s.service.reading.explain("default", "a")
        assert (story["reason"], story["scheduler"]) == ("Queued", None)
        assert "does not answer" in story["scheduler_note"]


@in_virtual_time
async def test_a_standby_reads_and_takes_over():
    server = memory_server()
    leader = await Stage(server).start()
    standby = await Stage(server, instance="gateway-2").start(lead=False)
    await leader.apply(pod_manifest("a"))
    await standby.settle()
    assert standby.service.reading.pods()[0]["name"] == "a"
    with pytest.raises(ApiError, match="does not hold the lease"):
        await standby.apply(pod_manifest("b"))
    await leader.crash()
    await standby.settle(10)
    assert await standby.apply(pod_manifest("b")) == ["created"]
    await standby.stop()


@in_virtual_time
async def test_events_are_mirrored_as_json():
    async with stage() as s:
        seen: list[Received] = []

        async def on_message(received: Received) -> None:
            seen.append(received)

        await s.bus.subscribe("cotenant.v1.json.evt.>", on_message)
        await s.apply(pod_manifest("a"))
        await s.settle()
        assert seen[0].subject == "cotenant.v1.json.evt.pod.queued.default.a"
        assert json.loads(seen[0].data)["object"] == "Pod/default/a"


@in_virtual_time
async def test_status_shows_services_and_counts():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"))
        await s.settle()
        status = s.service.reading.status()
        assert (status["leader"], status["nodes"], status["pods"]["total"]) == (True, {"total": 1, "ready": 1}, 1)
        assert {service["service"]: service["state"] for service in status["services"]}["gateway"] == "leads"


@in_virtual_time
async def test_an_unconfirmed_write_is_told_all_the_same(monkeypatch):
    async with stage() as s:
        bucket, batch = s.service.world.specs_bucket, s.service.world.specs_bucket.batch

        async def lost_answer(operations: Any) -> int:
            await batch(operations)
            raise BusUnavailableError("no answer")

        monkeypatch.setattr(bucket, "batch", lost_answer)
        with pytest.raises(ApiError, match="may have happened"):
            await s.apply(pod_manifest("a"))
        monkeypatch.setattr(bucket, "batch", batch)
        assert await s.apply(pod_manifest("a")) == ["unchanged"]
        assert await s.apply(pod_manifest("b")) == ["created"]
        await s.settle()
        assert [event.object for event in s.events("pod.queued")] == ["Pod/default/a", "Pod/default/b"]


@in_virtual_time
async def test_an_eviction_that_a_crash_left_unsaid_is_said_even_if_nothing_comes_back():
    server = memory_server()
    first = await Stage(server).start()
    async with beating(first, "n1"):
        await first.apply(pod_manifest("a", annotations={labels.REQUEUE: "false"}))
        await first.run_pod("a")
        first.context.bus.publish_event = _never  # type: ignore[method-assign]
        await first.service.operations.delete("Node", None, "n1")
        await first.crash()
    second = await Stage(server).start()
    await second.settle()
    assert [event.reason for event in second.events("pod.evicted")] == ["NodeLost"]
    await second.stop()


async def _never(*_args: Any, **_named: Any) -> int:
    raise BusUnavailableError("no")


@in_virtual_time
async def test_one_object_that_cannot_be_decided_on_delays_no_other(monkeypatch):
    real = lifecycle.decide

    def decide(pod: Any, **facts: Any) -> Any:
        if pod.spec.name == "poison":
            raise RuntimeError("no")
        return real(pod, **facts)

    monkeypatch.setattr(lifecycle, "decide", decide)
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("poison"), pod_manifest("good"))
        for name in ("poison", "good"):
            await s.report(await s.run_pod(name), "Failed")
        await s.settle()
        assert s.pod("good").terminal_ms is not None
        assert s.pod("poison").terminal_ms is None


@in_virtual_time
async def test_one_object_that_cannot_be_written_delays_no_other(monkeypatch):
    async with stage() as s, beating(s, "n1"):
        await s.apply(*(pod_manifest(name) for name in ("a", "big", "c")))
        bucket, batch = s.service.world.specs_bucket, s.service.world.specs_bucket.batch

        async def picky(operations: Any) -> int:
            if any("big" in operation.key for operation in operations):
                raise PayloadTooLargeError("big")
            return await batch(operations)

        monkeypatch.setattr(bucket, "batch", picky)
        bound = [await s.bind(name) for name in ("a", "big", "c")]
        for spec in bound:
            await s.report(spec, "Failed")
        await s.settle(2)
        assert [s.pod(name).terminal_ms is not None for name in ("a", "big", "c")] == [True, False, True]


@in_virtual_time
async def test_a_new_job_does_not_take_the_results_of_an_old_one_of_its_name():
    async with stage() as s, beating(s, "n1"):
        job = dict(controller("Job", "j", completions=1).manifest)
        await s.apply(job)
        await s.settle()
        await s.report(await s.run_pod("j-0"), "Succeeded")
        await s.settle()
        first = s.spec("j", "Job")
        await s.service.operations.delete("Job", "default", "j")
        await s.apply(job)
        await s.settle(3)
        second = s.spec("j", "Job")
        assert first is not None
        assert second is not None
        assert first.uid != second.uid
        assert "status" not in second.manifest
        assert s.pod("j-0").owner_uid == second.uid


@in_virtual_time
async def test_controllers_make_no_more_pods_than_their_quota_may_ask_for():
    async with stage() as s, beating(s, "n1"):
        limit = {labels.QUOTA_ADMISSION: '{"cpu": "2"}'}
        quota = quota_manifest("a", minimum={"cpu": 1}, maximum={"cpu": 8}, annotations=limit)
        job = json.loads(json.dumps(controller("Job", "j", completions=3, parallelism=3).manifest))
        job["spec"]["template"].setdefault("metadata", {})["labels"] = {labels.QUOTA_NAME: "a"}
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        await s.apply(quota, job)
        await s.settle(3)
        assert [pod.name for pod in s.service.world.of_kind("Pod")] == ["j-0", "j-1"]
        await s.report(await s.run_pod("j-0"), "Succeeded")
        await s.settle(70)
        assert [pod.name for pod in s.service.world.of_kind("Pod")] == ["j-0", "j-1", "j-2"]


@in_virtual_time
async def test_a_freeze_that_was_not_written_is_an_error_and_unfreeze_finds_every_place():
    async with stage() as s:
        with pytest.raises(ApiError, match="printable sentence"):
            await s.service.brakes.freeze("a\0b")
        elsewhere = {
            "apiVersion": "v1", "kind": "ConfigMap", "data": {},
            "metadata": {"name": "cotenant-freeze", "namespace": "koordinator-system"},
        }  # fmt: skip
        await s.apply(elsewhere)
        assert s.service.world.frozen() is not None
        await s.service.brakes.unfreeze()
        assert s.service.world.frozen() is None


@in_virtual_time
async def test_a_dry_run_of_a_node_delete_forgets_no_agent():
    async with stage() as s, beating(s, "n1"):
        await s.service.operations.delete("Node", None, "n1", dry_run=True)
        assert s.service.world.retired == {}


@in_virtual_time
async def test_two_deliveries_of_one_command_at_once_get_one_answer():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a", extra_labels={"app": "x"}), BUDGET)
        await s.run_pod("a")
        evictions, asked = s.service.evictions, to_gate_request(evict(s, "a"))
        replies = await asyncio.gather(*(evictions.evict(asked) for _ in range(3)))
        await s.settle()
        assert [reply.granted for reply in replies] == [False] * 3
        assert len(s.events("eviction.refused")) == 1


@in_virtual_time
async def test_a_quota_rule_that_looks_at_running_pods():
    async with stage() as s, beating(s, "n1"):
        await s.apply(quota_manifest("q", maximum={"cpu": "4"}), pod_manifest("a", quota="q"))
        with pytest.raises(AssertionError, match="1 pods are charged to quota q; a parent holds none"):
            await s.apply(quota_manifest("q", maximum={"cpu": "4"}, is_parent=True))


@in_virtual_time
async def test_a_cap_counts_pods_that_never_come_back_even_after_a_restart():
    server = memory_server()
    first = await Stage(server, cap_total=1).start()
    await first.join("n1")
    await first.apply(*(pod_manifest(n, annotations={labels.REQUEUE: "false"}) for n in ("a", "b")))
    spec = await first.run_pod("a")
    await first.run_pod("b")
    assert (await ask(first, evict(first, "a"))).granted
    await first.report(spec, "Deleted")
    await first.settle()
    assert first.spec("a") is None
    refused = await ask(first, evict(first, "b", command="c2"))
    assert (refused.reason, refused.numbers["cap"]) == ("BudgetExceeded", 1)
    assert 0 < (refused.retry_after_ms or 0) <= 60_000
    await first.crash()
    second = await Stage(server, cap_total=1).start()
    assert (await ask(second, evict(second, "b", command="c3"))).reason == "BudgetExceeded"
    await second.stop()


@in_virtual_time
async def test_a_drain_cordons_removes_and_answers_the_same_dry():
    async with stage() as s, beating(s, "n1"):
        await s.apply(*(pod_manifest(n, extra_labels={"app": "x"}) for n in ("a", "b")), BUDGET)
        for name in ("a", "b"):
            await s.run_pod(name)
        asked = Request("d1", "drain", (), "user", "Drained", "maintenance")
        dry = await s.service.evictions.drain("n1", asked, dry_run=True)
        assert s.spec("n1", "Node", None).body.get("unschedulable") is None
        done = await s.service.evictions.drain("n1", asked)
        assert [d.granted for d in dry.decisions] == [d.granted for d in done.decisions] == [True, False]
        assert dry.decisions[1].message == done.decisions[1].message
        assert s.spec("n1", "Node", None).body["unschedulable"] is True
        assert done.remaining == 2
        await s.settle()
        assert len(s.events("pod.evicted")) == 1


@in_virtual_time
async def test_observing_a_node_is_in_its_policy_and_refusals_are_listed():
    async with stage() as s, beating(s, "n1", "n2"):
        await s.apply(pod_manifest("a"))
        await s.run_pod("a")
        assert (await s.service.brakes.observe(Observing(nodes=("n1",)))).action == "only observed"
        await s.settle()
        assert [s.service.reading.policy(n)["observe"] for n in ("n1", "n2")] == [True, False]
        reply = await ask(s, evict(s, "a", kind="reclaim", beneficiary="q", numbers={"used": 9}))
        assert (reply.reason, reply.numbers["used"]) == ("ObserveOnly", 9)
        shown = observing.report(s.service.world, s.service.evictions)
        assert shown["scope"]["nodes"] == ["n1"]
        assert shown["evictions"][0]["pods"] == ["default/a"]
        assert [node["observed"] for node in shown["nodes"]] == [True, False]
        await s.service.brakes.observe(Observing(nodes=("n1",)), stop=True)
        assert (await ask(s, evict(s, "a", kind="reclaim", beneficiary="q", command="c2"))).granted


@in_virtual_time
async def test_planted_drift_is_found_repaired_and_told():
    async with stage(audit_s=30) as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"), pod_manifest("b"))
        await s.run_pod("a")
        await ask(s, evict(s, "a"))
        world, book = s.service.world, s.service.evictions._book
        await s.settle(40)
        assert s.events("ledger.repaired") == []
        del world.bindings.items[f"{s.pod('a').uid}.n1"]
        world.specs._revisions["Pod.default.b"] -= 1
        book._entries.clear()
        await s.settle(40)
        repaired = {event.data["ledger"]: event for event in s.events("ledger.repaired")}
        assert sorted(repaired) == ["bindings", "removals", "specs"]
        assert repaired["removals"].object == "Pod/default/a"
        assert f"{s.pod('a').uid}.n1" in world.bindings.items
        await s.settle(40)
        assert len(s.events("ledger.repaired")) == 3


@in_virtual_time
async def test_a_standby_answers_no_write_not_even_with_not_found():
    server = memory_server()
    first = await Stage(server).start()
    second = await Stage(server, instance="gateway-2").start(lead=False)
    with pytest.raises(ApiError, match="lease") as refused:
        await second.service.operations.delete("Pod", "default", "unheard-of")
    assert refused.value.status == 503
    with pytest.raises(ApiError, match="does not exist"):
        await first.service.operations.delete("Pod", "default", "unheard-of")
    assert (await second.service.operations.apply_data([pod_manifest("a")], dry_run=True)).items[0].action == "created"
    await second.stop()
    await first.stop()


@in_virtual_time
async def test_a_leader_that_slept_through_its_lease_answers_nothing():
    async with stage() as s:
        writer = s.service.leadership.writer
        assert writer is not None
        writer._lease._renewed_at -= 60
        with pytest.raises(ApiError) as refused:
            await s.service.operations.delete("Pod", "default", "a")
        assert refused.value.status == 503


@in_virtual_time
async def test_a_store_that_was_made_anew_gets_its_objects_back_and_takes_writes():
    async with stage() as s, beating(s, "n1"):
        await s.apply(pod_manifest("a"), quota_manifest("q"))
        spec = await s.run_pod("a")
        told = len(s.events())
        s.server.lose_bucket(buckets.SPECS)
        await s.settle(3)
        assert (s.pod("a").uid, s.service.reading.status()["orphans"]) == (spec.uid, 0)
        assert s.server.store(buckets.SPECS).get("Pod.default.a") is not None
        assert await s.apply(pod_manifest("a"), pod_manifest("b")) == ["unchanged", "created"]
        await s.settle()
        assert [event.type for event in s.events()[told:]] == ["pod.queued"]


@in_virtual_time
async def test_steady_news_put_off_nothing_that_time_alone_decides():
    async with stage() as s, beating(s, "n1") as beat:
        await s.apply(pod_manifest("a"))
        spec = await s.run_pod("a")

        async def talk() -> None:
            for at in range(1_000):
                await s.report(spec, restarts=at)
                await asyncio.sleep(0.3)

        talking = asyncio.create_task(talk())
        beat.cancel()
        await s.settle(60)
        assert s.service.reading.node("n1")["health"] == "NotReady"
        talking.cancel()
