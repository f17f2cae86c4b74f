import asyncio
from contextlib import asynccontextmanager

from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import PODSCHED
from cotenant_common.contracts.messages.state import PodSchedRecord
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.events import Announcer
from cotenant_common.testing.context import memory_server, quiet_log
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_scheduler.adapters.records import Records
from cotenant_scheduler.adapters.stories import Stories
from cotenant_scheduler.core.verdict import Verdict, Waiting
from cotenant_scheduler.core.words import nominated_verdict


def verdict(message="no room", reason=ReasonCode.INSUFFICIENT_RESOURCE) -> Verdict:
    return Verdict(Waiting.UNSCHEDULABLE, reason, message)


@asynccontextmanager
async def writing():
    bus = memory_server().connect("scheduler")
    bucket, clock = await bus.bucket(PODSCHED), LoopClock()
    announcer = Announcer(bus, bucket, "scheduler", clock)
    records = Records(bucket, announcer, clock, "one", quiet_log())
    records.bucket = bucket
    running = asyncio.create_task(records.run())
    try:
        yield records
    finally:
        running.cancel()
        await asyncio.wait([running])
        await announcer.close()


async def stored(records, uid) -> PodSchedRecord | None:
    await asyncio.sleep(0.01)
    entry = await records.bucket.get(uid)
    return codec.decode(PodSchedRecord, entry.value) if entry else None


@in_virtual_time
async def test_an_unchanged_answer_is_counted_and_not_written(world):
    pod = world.request("a")
    async with writing() as records:
        records.refused([pod], verdict())
        first = await records.bucket.last_revision()
        await stored(records, pod.uid)
        for _ in range(100):
            records.refused([pod], verdict())
        await asyncio.sleep(1)
        assert await records.bucket.last_revision() <= first + 2
        assert records.known(pod.uid).attempts == 101


@in_virtual_time
async def test_new_numbers_are_written_now_and_then(world):
    pod = world.request("a")
    async with writing() as records:
        records.refused([pod], verdict("1 left"))
        records.refused([pod], verdict("2 left"))
        assert (await stored(records, pod.uid)).message == "1 left"
        await asyncio.sleep(5)
        records.refused([pod], verdict("3 left"))
        record = await stored(records, pod.uid)
        assert (record.message, record.since_ms) == ("3 left", 0)


@in_virtual_time
async def test_a_new_reason_is_written_at_once(world):
    pod = world.request("a")
    async with writing() as records:
        records.refused([pod], verdict())
        await asyncio.sleep(1)
        records.refused([pod], verdict("hot", ReasonCode.LOAD_THRESHOLD_EXCEEDED))
        record = await stored(records, pod.uid)
        assert (record.reason, record.since_ms) == ("LoadThresholdExceeded", 1000)


@in_virtual_time
async def test_a_nomination_for_another_node_is_written_at_once(world):
    pod = world.request("a")
    async with writing() as records:
        for node in ("n1", "n2"):
            records.refused([pod], nominated_verdict(node, ("default/low",), None, 0))
            assert (await stored(records, pod.uid)).nominated_node == node


@in_virtual_time
async def test_a_pod_that_is_bound_before_its_record_was_written_leaves_none(world):
    pod = world.request("a")
    async with writing() as records:
        records.refused([pod], verdict())
        records.forget(pod.uid)
        assert await stored(records, pod.uid) is None


@in_virtual_time
async def test_a_restart_is_no_change_of_reasons(world):
    pod = world.request("a")
    async with writing() as records:
        records.refused([pod], verdict())
        record = await stored(records, pod.uid)
        records.load({pod.uid: record})
        await asyncio.sleep(1)
        records.refused([pod], verdict())
        assert await stored(records, pod.uid) == record


def test_stories_are_bounded():
    stories = Stories()
    for i in range(50):
        stories.tell("a", i, "refused", reason=str(i))
    assert len(stories.of("a").lines) == 20
    for i in range(10_001):
        stories.of(f"p{i}")
    assert not stories.of("a").lines


def test_repetition_is_a_count():
    stories = Stories()
    for i in range(5):
        stories.tell("a", i, "refused", reason="x")
    (line,) = stories.of("a").lines
    assert (line["at_ms"], line["times"]) == (0, 5)
