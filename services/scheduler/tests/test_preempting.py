"""Preemption by the whole service, with a gate that answers as the test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cotenant_common.bus.protocol import Bus
from cotenant_common.contracts.buckets import SPECS
from cotenant_common.contracts.messages.commands import EvictReply, EvictRequest, VictimDecision
from cotenant_common.contracts.messages.state import Deletion, SpecRecord
from cotenant_common.contracts.subjects import POD_EVICT
from cotenant_common.runtime import requests
from cotenant_common.testing.context import EPOCH_MS
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_scheduler.app import SchedulerService

from .test_app import Stack, running  # noqa: TID252 - tests are no package that could be named


class Gate:
    """Notes what it is asked, and what was on record then."""

    def __init__(self, stack: Stack, *answers: str) -> None:
        self.stack = stack
        self.answers = list(answers)
        self.asked: list[EvictRequest] = []
        self.nominated: list[str | None] = []
        self.numbers: dict[str, object] = {}

    async def serve(self, bus: Bus) -> None:
        await requests.serve(bus, POD_EVICT, self.answer, queue="gateway")

    async def answer(self, request: EvictRequest) -> EvictReply:
        self.asked.append(request)
        record = await self.stack.record(request.beneficiary.removeprefix("uid-"))
        self.nominated.append(record.nominated_node if record and record.state == "Nominated" else None)
        reason = self.answers.pop(0) if self.answers else None
        victims = [VictimDecision(pod=each, granted=reason is None, reason=reason) for each in request.victims]
        return EvictReply(
            id=request.id,
            granted=reason is None,
            reason=reason,
            message=reason or "go",
            victims=victims,
            numbers=self.numbers if reason else {},
        )

    @property
    def victims(self) -> list[list[str]]:
        return [[each.name for each in request.victims] for request in self.asked]


def mark(beneficiary: str, *, now_ms: int = EPOCH_MS + 1_000) -> Deletion:
    data = {"beneficiary": beneficiary, "promised_until_ms": now_ms + 90_000, "node": "n1", "kind": "preempt"}
    return Deletion(
        at_ms=now_ms,
        grace_ms=30_000,
        reason="Preempted",
        message="",
        requested_by="scheduler",
        kind="preempt",
        data=data,
    )


async def full(stack: Stack) -> None:
    await stack.node("n1", cpu="2")
    await stack.pod("cheap", cpu="1", priority=5000)
    await stack.pod("cheaper", cpu="1", priority=3000)
    await asyncio.sleep(0.2)


@asynccontextmanager
async def outranked(*answers: str) -> AsyncIterator[tuple[Gate, SchedulerService]]:
    """A full node, a gate with these refusals to give first, and a more important pod that has just come."""
    stack = Stack()
    gate = Gate(stack, *answers)
    await gate.serve(stack.bus)
    async with running(stack) as service:
        await full(stack)
        await stack.pod("dear", cpu="1", priority=9500)
        yield gate, service


@in_virtual_time
async def test_a_nomination_is_on_record_before_the_gate_is_asked_and_the_pod_starts_when_the_room_is_free():
    async with outranked() as (gate, service):
        stack = gate.stack
        await asyncio.sleep(0.5)
        assert gate.victims == [["cheaper"]]
        assert gate.nominated == ["n1"]
        assert gate.asked[0].kind == "preempt"
        assert gate.asked[0].beneficiary == "uid-dear"
        told = await stack.explain("dear")
        assert told.state == "Nominated"
        assert "default/cheaper" in told.message
        await stack.pod("cheaper", cpu="1", priority=3000, deletion=mark("uid-dear"))
        await stack.pod("sneaky", cpu="1", priority=5000)
        await asyncio.sleep(0.5)
        assert "dear" not in await stack.bindings()
        await stack.status("cheaper", "n1", "Failed")
        await asyncio.sleep(0.5)
        assert sorted(await stack.bindings()) == ["cheap", "cheaper", "dear"]
        assert len(gate.asked) == 1
        assert service.debug_state()["nominated"] == 0
        assert await stack.record("dear") is None


@in_virtual_time
async def test_a_victim_that_the_gate_refuses_is_spared_and_another_is_asked_for():
    async with outranked("BudgetExceeded") as (gate, _):
        await asyncio.sleep(1)
        assert gate.victims == [["cheaper"], ["cheap"]]


@in_virtual_time
async def test_where_the_gate_refuses_everybody_the_pod_says_why_it_waits_and_asks_again_later():
    async with outranked("BudgetExceeded", "NotEvictable") as (gate, _):
        stack = gate.stack
        await asyncio.sleep(1)
        assert len(gate.asked) == 2
        told = await stack.explain("dear")
        assert told.state == "Unschedulable"
        assert "the eviction gate said no" in told.message
        assert [line["reason"] for line in told.timeline if line["what"] == "preemption"] == [
            "BudgetExceeded",
            "NotEvictable",
        ]


@in_virtual_time
async def test_what_was_refused_once_is_asked_anew_and_not_by_the_same_command():
    async with outranked("Frozen") as (gate, _):
        await asyncio.sleep(12)
        assert gate.victims == [["cheaper"], ["cheaper"]]
        assert len({request.id for request in gate.asked}) == 2


@in_virtual_time
async def test_after_a_restart_nobody_is_asked_for_twice():
    async with outranked() as (gate, _):
        stack = gate.stack
        await asyncio.sleep(0.5)
        await stack.pod("cheaper", cpu="1", priority=3000, deletion=mark("uid-dear"))
        await asyncio.sleep(0.2)
    await asyncio.sleep(5)
    async with running(stack, "scheduler-2"):
        await asyncio.sleep(5)
        assert len(gate.asked) == 1
        assert (await stack.explain("dear")).state == "Nominated"
        await stack.status("cheaper", "n1", "Failed")
        await asyncio.sleep(0.5)
        assert "dear" in await stack.bindings()
        assert len(gate.asked) == 1


@in_virtual_time
async def test_a_gate_that_does_not_answer_is_asked_again():
    stack = Stack()
    async with running(stack) as service:
        await full(stack)
        await stack.pod("dear", cpu="1", priority=9500)
        await asyncio.sleep(20)
        assert service.debug_state()["waiting"] == 1
        gate = Gate(stack)
        await gate.serve(stack.bus)
        await asyncio.sleep(20)
        assert gate.victims[0] == ["cheaper"]
        assert len({request.id for request in gate.asked}) == 1


@in_virtual_time
async def test_room_that_was_reclaimed_for_a_quota_is_kept_over_a_restart():
    stack = Stack()
    await stack.node("n1", cpu="1")
    covers = await stack.pod("borrowed", cpu="1", priority=9000)
    await stack.quota("a", 1000, covers=covers + 1000)
    async with running(stack):
        await asyncio.sleep(0.2)
        await stack.pod("borrowed", cpu="1", priority=9000, deletion=mark("ElasticQuota/-/a"))
        await asyncio.sleep(0.2)
        await stack.status("borrowed", "n1", "Failed")
        await asyncio.sleep(0.2)
        await stack.pod("stranger", cpu="1", priority=9000)
        await asyncio.sleep(0.5)
        assert "stranger" not in await stack.bindings()
        await stack.pod("owner", cpu="1", quota="a")
        await asyncio.sleep(0.5)
        assert "owner" in await stack.bindings()


@in_virtual_time
async def test_of_a_spent_budget_one_pod_is_asked_for_and_the_others_are_spared_too():
    stack = Stack()
    gate = Gate(stack, "BudgetExceeded")
    gate.numbers = {"budget": "default/db", "victims": 1}
    await gate.serve(stack.bus)
    await stack.put(
        SPECS,
        "PodDisruptionBudget.default.db",
        SpecRecord(
            uid="uid-db",
            kind="PodDisruptionBudget",
            namespace="default",
            name="db",
            manifest={"spec": {"maxUnavailable": 0, "selector": {}}},
            created_ms=EPOCH_MS,
        ),
    )
    async with running(stack):
        await full(stack)
        await stack.pod("dear", cpu="1", priority=9500)
        await asyncio.sleep(5)
        assert gate.victims == [["cheaper"]]
        await asyncio.sleep(6)
        assert gate.victims == [["cheaper"], ["cheaper"]]
