"""Who leads. The lease lives in the bucket that it fences, so that one batch can both write and prove leadership.

Three keys per service: ``lease.<service>`` lives ``ttl_s`` and is renewed; ``lease.<service>.epoch`` changes only when
the leader does; ``lease.<service>.fence`` is the message that a batch adds to expect the epoch's revision. Renewals
leave the epoch alone, so a batch in flight and a renewal never refuse each other.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from cotenant_common.bus.protocol import Bucket, BusError, BusUnavailableError, ConflictError, Put
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import LeaseRecord
from cotenant_common.runtime.clock import Clock
from cotenant_common.telemetry.logging import get_logger

DEFAULT_TTL_S: Final = 4
# The holder stops a second before the server lets go: their clocks may run apart by that much within one ttl.
_MARGIN_S: Final = 1.0
_RENEWALS_PER_TTL: Final = 3
_STANDBY_POLL_S: Final = 0.5
_RELEASE_TIMEOUT_S: Final = 1.0
_RESOLUTION_S: Final = 0.001
_log = get_logger("lease")


class NotHeldError(BusError):
    """This instance does not lead (any more), so it may not write."""


class Lease:
    def __init__(
        self,
        bucket: Bucket,
        service: str,
        instance: str,
        clock: Clock,
        ttl_s: int = DEFAULT_TTL_S,
        discovery: Bucket | None = None,
    ) -> None:
        self.epoch = 0
        self.revision = 0
        """Revision of the epoch key: what a guard expects."""
        self._bucket = bucket
        self._service = service
        self._instance = instance
        self._clock = clock
        self._ttl_s = ttl_s
        self._discovery = discovery
        self._key = f"lease.{service}"
        self._lease_revision = 0
        self._renewed_at: float | None = None
        self._told: tuple[bytes, float] | None = None
        """What discovery was told last, and when."""
        self._inherited = False
        self._acquired = asyncio.Event()
        self._lost = asyncio.Event()

    @property
    def held(self) -> bool:
        """True until the last acknowledged renewal + ttl − 1 s, counted from when that renewal was sent."""
        return self._left_s > 0

    @property
    def _left_s(self) -> float:
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._ttl_s - _MARGIN_S - self._clock.monotonic()

    def guard(self) -> Put:
        """Append this to a batch: the whole batch is refused once somebody else has led. Raise NotHeldError."""
        if not self.held:
            raise NotHeldError(f"{self._instance} does not hold the lease of {self._service}")
        return Put(f"{self._key}.fence", b"", expect=self.revision, expect_filter=f"{self._key}.epoch")

    async def wait_held(self) -> None:
        while not self.held:
            self._acquired.clear()
            await self._acquired.wait()

    async def wait_lost(self) -> None:
        """Until it is not held any more; a lease that nobody can renew is lost by time alone."""
        while (left_s := self._left_s) > 0:
            self._lost.clear()
            with suppress(TimeoutError):
                # Sums of floats never meet exactly: what is left must not become a wait of no time.
                async with asyncio.timeout(max(left_s, _RESOLUTION_S)):
                    await self._lost.wait()

    async def run(self, on_lost: Callable[[], None] | None = None) -> None:
        """Acquire, renew, and acquire again when lost; release when cancelled."""
        try:
            while True:
                await self._acquire()
                await self._keep()
                _log.warning("lease_lost", service=self._service, instance=self._instance, epoch=self.epoch)
                if on_lost is not None:
                    on_lost()
        finally:
            await self._release()

    @asynccontextmanager
    async def hold(self, on_lost: Callable[[], None] | None = None) -> AsyncIterator["Lease"]:
        """Lead inside the block; entering waits for the lease."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.run(on_lost), name=f"lease {self._service}")
            await self.wait_held()
            try:
                yield self
            finally:
                running.cancel()

    async def _acquire(self) -> None:
        while True:
            try:
                await self._inherit()
                if await self._bucket.get(self._key) is None and await self._take():
                    return
            except BusUnavailableError as error:
                _log.info("lease_waits_for_bus", service=self._service, error=str(error))
            await asyncio.sleep(_STANDBY_POLL_S)

    async def _inherit(self) -> None:
        """Once, at the start: a lease under our own name is that of our process before this one, and it is dead.

        Only names that last make this happen, such as a unit's; those with a process id wait for the lease to run out.
        Later on it could only be a second process of the same name, and the two would take it from each other for ever.
        """
        if self._inherited:
            return
        entry = await self._bucket.get(self._key)
        self._inherited = True
        if entry is None or entry.value is None:
            return
        try:
            holder = codec.decode(LeaseRecord, entry.value).holder
        except codec.DecodeError:
            return
        if holder == self._instance:
            with suppress(ConflictError):
                await self._bucket.delete(self._key, revision=entry.revision)

    async def _take(self) -> bool:
        sent_at = self._clock.monotonic()
        epoch_key = f"{self._key}.epoch"
        last = await self._bucket.get(epoch_key)
        previous = codec.decode(LeaseRecord, last.value).epoch if last and last.value else 0
        record = LeaseRecord(
            service=self._service,
            holder=self._instance,
            epoch=previous + 1,
            acquired_ms=self._clock.now_ms(),
            ttl_s=self._ttl_s,
        )
        value = codec.encode(record)
        try:
            # The epoch key is last, so its revision is the batch's; the lease key stands right before it.
            revision = await self._bucket.batch(
                [
                    Put(self._key, value, expect=0, ttl_s=self._ttl_s),
                    Put(epoch_key, value, expect=last.revision if last else 0),
                ]
            )
        except ConflictError:
            return False
        self.epoch, self.revision, self._lease_revision = record.epoch, revision, revision - 1
        self._renewed_at = sent_at
        self._acquired.set()
        _log.info("lease_acquired", service=self._service, instance=self._instance, epoch=self.epoch)
        await self._announce(value)
        return True

    async def _keep(self) -> None:
        """Renew until lost."""
        value = await self._current_value()
        while value is not None:
            await asyncio.sleep(self._ttl_s / _RENEWALS_PER_TTL if self.held else 0)
            if not await self._renew(value):
                break
        self._let_go()

    def _let_go(self) -> None:
        self._renewed_at = None
        self._lost.set()

    async def _current_value(self) -> bytes | None:
        while self.held:
            try:
                entry = await self._bucket.get(self._key)
            except BusUnavailableError:
                await asyncio.sleep(_STANDBY_POLL_S)
                continue
            return entry.value if entry is not None else None
        return None

    async def _renew(self, value: bytes) -> bool:
        """False when the lease is somebody else's, or can no longer be proven to be ours."""
        sent_at = self._clock.monotonic()
        revision = self._lease_revision
        try:
            # The bus would try for longer than the lease lives; whoever waits for ``on_lost`` must not.
            async with asyncio.timeout(max(0.0, self._left_s)):
                self._lease_revision = await self._bucket.update(self._key, value, revision, ttl_s=self._ttl_s)
        except ConflictError:
            return False
        except (BusUnavailableError, TimeoutError):
            return self.held
        self._renewed_at = sent_at
        await self._announce(value)
        return True

    async def _announce(self, value: bytes) -> None:
        """For those who ask who leads. It lives for two ttl, so it need not be said again with each renewal."""
        now = self._clock.monotonic()
        said = self._told is not None and self._told[0] == value and now - self._told[1] < self._ttl_s
        if self._discovery is not None and not said:
            with suppress(BusError):
                await self._discovery.put(self._service, value, ttl_s=self._ttl_s * 2)
                self._told = value, now

    async def _release(self) -> None:
        if self._renewed_at is None:
            return
        self._let_go()
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await self._bucket.delete(self._key, revision=self._lease_revision)
