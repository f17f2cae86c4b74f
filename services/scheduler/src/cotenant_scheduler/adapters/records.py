"""``podsched``: why pods wait, written when it changes, many at a time, and told once per change of the reasons."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from cotenant_common.bus.protocol import Bucket, BusUnavailableError, Delete, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import PODSCHED
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import PodSchedRecord, RefusalCount
from cotenant_common.model.ids import object_key
from cotenant_common.runtime.clock import Clock
from cotenant_common.runtime.events import Announcer, event_id
from cotenant_common.telemetry.logging import Logger
from cotenant_scheduler.core.engine import TELL_AGAIN_MS
from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.verdict import Verdict, Waiting

_AT_ONCE: Final = 200
_RETRY_S: Final = 0.5
_REJECTIONS_KEPT: Final = 10


class Records:
    def __init__(self, bucket: Bucket, announcer: Announcer, clock: Clock, instance: str, log: Logger) -> None:
        self._bucket = bucket
        self._announcer = announcer
        self._clock = clock
        self._instance = instance
        self._log = log
        self._known: dict[str, PodSchedRecord] = {}
        self._signatures: dict[str, tuple[str, ...]] = {}
        self._dirty: dict[str, PodSchedRecord | None] = {}
        self._changed = asyncio.Event()
        self._written = asyncio.Condition()

    def load(self, existing: Mapping[str, PodSchedRecord]) -> None:
        """Continue what an earlier leader wrote: a restart is no change of reasons."""
        self._known = {record.uid: record for _, record in sorted(existing.items())}
        self._signatures = {uid: _signature_of(record) for uid, record in self._known.items()}
        self._dirty.clear()

    def known(self, uid: str) -> PodSchedRecord | None:
        return self._known.get(uid)

    def uids(self) -> list[str]:
        return list(self._known)

    def refused(self, pods: Iterable[PodRequest], verdict: Verdict) -> None:
        now_ms = self._clock.now_ms()
        for pod in pods:
            before = self._known.get(pod.uid)
            changed = before is None or self._signatures.get(pod.uid) != verdict.signature
            if before is not None and not changed and not _worth_writing(before, verdict, now_ms):
                self._known[pod.uid] = before.model_copy(update={"attempts": before.attempts + 1})
                continue
            self._signatures[pod.uid] = verdict.signature
            self._put(_record(pod, verdict, before, changed=changed, now_ms=now_ms))

    def knows_rejection(self, uid: str, node: str, reason: str) -> bool:
        """A bind takes the record away, so a refusal that is last in one is of the binding that stands."""
        known = self._known.get(uid)
        return known is not None and known.rejected_bindings[-1:] == [_rejection(node, reason)]

    def rejected(self, pod: PodRequest, node: str, reason: str, message: str) -> None:
        """A bind that the agent refused."""
        now_ms = self._clock.now_ms()
        before = self._known.get(pod.uid)
        rejections = [*(before.rejected_bindings if before else []), _rejection(node, reason)][-_REJECTIONS_KEPT:]
        self._signatures.pop(pod.uid, None)
        self._put(
            PodSchedRecord(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                state=Waiting.REJECTED.value,
                reason=reason,
                message=f"node {node} refused the binding: {message}",
                attempts=before.attempts if before else 0,
                since_ms=now_ms,
                updated_ms=now_ms,
                rejected_bindings=rejections,
            )
        )

    def forget(self, uid: str) -> None:
        """Bound or gone: nothing waits any more."""
        self._signatures.pop(uid, None)
        if self._known.pop(uid, None) is not None or uid in self._dirty:
            self._dirty[uid] = None
            self._changed.set()

    def _put(self, record: PodSchedRecord) -> None:
        self._known[record.uid] = self._dirty[record.uid] = record
        self._changed.set()

    async def flushed(self, uid: str) -> None:
        """Until what was noted about the pod is stored."""
        async with self._written:
            await self._written.wait_for(lambda: uid not in self._dirty)

    async def run(self) -> None:
        while True:
            while not self._dirty:
                self._changed.clear()
                await self._changed.wait()
            await self._flush()

    async def _flush(self) -> None:
        batch = {uid: self._dirty[uid] for uid in list(self._dirty)[:_AT_ONCE]}
        operations = [_operation(uid, record) for uid, record in batch.items()]
        try:
            last = await self._bucket.batch(operations)
        except BusUnavailableError as error:
            self._log.warning("records_delayed", records=len(batch), error=str(error))
            await asyncio.sleep(_RETRY_S)
            return
        first = last - len(operations) + 1
        for revision, (uid, record) in enumerate(batch.items(), first):
            if self._dirty.get(uid, record) is record:
                self._dirty.pop(uid, None)
            for event in unschedulable_events(record, uid, revision, self._instance):
                await self._announcer.announce(event)
        async with self._written:
            self._written.notify_all()


def _rejection(node: str, reason: str) -> str:
    return f"{node}: {reason}"


def _operation(uid: str, record: PodSchedRecord | None) -> Put | Delete:
    return Delete(uid) if record is None else Put(uid, codec.encode(record))


def unschedulable_events(record: PodSchedRecord | None, uid: str, revision: int, source: str) -> list[Event]:
    """One when the reasons are new; a record whose numbers alone moved keeps its ``since_ms``."""
    if record is None or record.state != Waiting.UNSCHEDULABLE.value or record.since_ms != record.updated_ms:
        return []
    return [
        Event(
            id=event_id(PODSCHED, uid, revision),
            type="pod.unschedulable",
            at_ms=record.updated_ms,
            source=source,
            object=object_key("Pod", record.namespace, record.name),
            uid=uid,
            reason=record.reason,
            message=record.message or "",
            data={
                "nodes_total": record.nodes_total,
                "refusals": [refusal.model_dump(exclude_none=True) for refusal in record.refusals],
                "attempts": record.attempts,
            },
        )
    ]


def _record(
    pod: PodRequest, verdict: Verdict, before: PodSchedRecord | None, *, changed: bool, now_ms: int
) -> PodSchedRecord:
    return PodSchedRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        state=verdict.state.value,
        reason=verdict.reason.value,
        message=verdict.message,
        refusals=refusal_counts(verdict),
        nodes_total=verdict.nodes_total,
        nominated_node=verdict.numbers.get("node") if verdict.state is Waiting.NOMINATED else None,
        attempts=(before.attempts if before else 0) + 1,
        since_ms=now_ms if before is None or changed else before.since_ms,
        updated_ms=now_ms,
        rejected_bindings=before.rejected_bindings if before else [],
    )


def refusal_counts(verdict: Verdict) -> list[RefusalCount]:
    return [
        RefusalCount(
            reason=group.code.value,
            nodes=group.nodes,
            message=group.message,
            example_node=group.example_node,
            helps=group.helps,
        )
        for group in verdict.groups
    ]


def _worth_writing(before: PodSchedRecord, verdict: Verdict, now_ms: int) -> bool:
    """Numbers alone are rewritten now and then: a busy node must not write a record a second.

    A nomination is always written: the gate is asked only after it is on record.
    """
    if before.message == verdict.message:
        return False
    return verdict.state is Waiting.NOMINATED or now_ms - before.updated_ms >= TELL_AGAIN_MS


def _signature_of(record: PodSchedRecord) -> tuple[str, ...]:
    """The verdict's own signature, as far as a record remembers it."""
    codes = sorted({refusal.reason for refusal in record.refusals})
    return (record.state, record.reason or "", *codes)
