"""Bindings become durable in atomic batches that a deposed leader cannot write.

While one batch is on its way the next one fills, so the batch size follows the load by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant_common.bus.protocol import Bucket, BusUnavailableError, ConflictError, Delete, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.model.ids import encode_token
from cotenant_common.runtime.lease import Lease, NotHeldError
from cotenant_common.telemetry.logging import Logger

_BACK_OFF_S: Final = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Bind:
    """``replaces`` is the key and revision of the refused binding that this attempt follows."""

    binding: Binding
    replaces: tuple[str, int | None] | None = None

    @property
    def key(self) -> str:
        return f"{self.binding.uid}.{encode_token(self.binding.node)}"

    def operations(self) -> list[Put | Delete]:
        """One pod, one node: the first attempt expects nothing under ``uid.*``, a later one what it replaces."""
        value, everywhere = codec.encode(self.binding), f"{self.binding.uid}.*"
        if self.replaces is None:
            return [Put(self.key, value, expect=0, expect_filter=everywhere)]
        old, revision = self.replaces
        if old == self.key:
            return [Put(self.key, value, expect=revision, expect_filter=everywhere)]
        return [Delete(old, expect=revision, expect_filter=everywhere), Put(self.key, value)]


@dataclass(frozen=True, slots=True)
class Unbind:
    """The pod's spec is gone. The revision keeps a newer attempt from being removed by an old thought."""

    key: str
    revision: int | None

    def operations(self) -> list[Put | Delete]:
        return [Delete(self.key, expect=self.revision)]


Job = Bind | Unbind


class DeposedError(Exception):
    """Somebody else leads: nothing of this instance may be written any more."""


class Binder:
    def __init__(
        self,
        bucket: Bucket,
        lease: Lease,
        log: Logger,
        batch: int,
        on_bound: Callable[[Bind, int], Awaitable[None]],
        on_lost: Callable[[Bind], Awaitable[None]],
    ) -> None:
        """``on_lost``: another binding of the pod exists; nothing was written."""
        self._bucket = bucket
        self._lease = lease
        self._log = log
        self._batch = batch
        self._on_bound = on_bound
        self._on_lost = on_lost
        self._jobs: dict[str, Job] = {}
        self._changed = asyncio.Event()

    @property
    def backlog(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """A second wish for the same key replaces the first."""
        self._jobs[job.key] = job
        self._changed.set()

    def clear(self) -> None:
        self._jobs.clear()

    async def run(self) -> None:
        """For ever. Raise DeposedError when the lease is lost; what was queued is dropped then."""
        while True:
            while not self._jobs:
                self._changed.clear()
                await self._changed.wait()
            keys = list(self._jobs)[: self._batch]
            await self._write([self._jobs.pop(key) for key in keys])

    async def _write(self, jobs: Sequence[Job]) -> None:
        """All of them, or half by half until the one that meets a conflict stands alone."""
        try:
            revisions = await self._commit(jobs)
        except ConflictError as error:
            if len(jobs) == 1:
                await self._settle(jobs[0], error)
                return
            middle = len(jobs) // 2
            await self._write(jobs[:middle])
            await self._write(jobs[middle:])
            return
        for job, revision in zip(jobs, revisions, strict=True):
            if isinstance(job, Bind):
                await self._on_bound(job, revision)

    async def _commit(self, jobs: Sequence[Job]) -> list[int]:
        """Revisions of each job's last operation. Raise ConflictError, DeposedError."""
        groups = [job.operations() for job in jobs]
        operations = [operation for group in groups for operation in group]
        attempt = 0
        while True:
            try:
                last = await self._bucket.batch([*operations, self._lease.guard()])
                break
            except NotHeldError as error:
                raise DeposedError(str(error)) from error
            except BusUnavailableError as error:
                # The batch may have been stored: repeating it then conflicts, and reading back finds one's own value.
                self._log.warning("bind_delayed", jobs=len(jobs), attempt=attempt, error=str(error))
                await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
                attempt += 1
        first = last - len(operations)
        ends, position = [], first
        for group in groups:
            position += len(group)
            ends.append(position - 1)
        return ends

    async def _settle(self, job: Job, error: ConflictError) -> None:
        """Read back: one's own value is success, somebody else's is the truth."""
        if isinstance(job, Unbind):
            return
        entry = await self._read(job.key)
        if entry is not None and entry[0] == codec.encode(job.binding):
            await self._on_bound(job, entry[1])
            return
        binding = job.binding
        self._log.warning("bind_lost", pod=f"{binding.namespace}/{binding.name}", node=binding.node, error=str(error))
        await self._on_lost(job)

    async def _read(self, key: str) -> tuple[bytes, int] | None:
        attempt = 0
        while True:
            try:
                entry = await self._bucket.get(key)
            except BusUnavailableError:
                await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
                attempt += 1
            else:
                return None if entry is None or entry.value is None else (entry.value, entry.revision)
