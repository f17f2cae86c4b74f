"""Deciding and writing, one at a time, while this instance leads."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from cotenant_common.bus.protocol import BusUnavailableError, ConflictError
from cotenant_common.runtime.lease import NotHeldError
from cotenant_gateway.app.world import World
from cotenant_gateway.app.writer import Writer
from cotenant_gateway.core.errors import ApiError, unavailable
from cotenant_gateway.core.records import Change

_ATTEMPTS: Final = 5
_CATCH_UP_S: Final = 5.0


class HasChanges(Protocol):
    @property
    def changes(self) -> Sequence[Change]: ...


R = TypeVar("R", bound=HasChanges)


class Leadership:
    """``writer`` is set while this instance holds the lease."""

    def __init__(self, world: World, instance: str) -> None:
        self.writer: Writer | None = None
        self.writes = 0
        self._world = world
        self._instance = instance
        self._lock = asyncio.Lock()
        self._in_doubt = False
        self._must_see = 0
        self._seen_world = 0

    async def carry_out(self, decide: Callable[[], R], *, dry_run: bool = False) -> R:
        """Decide on the newest state and write it; decide again when somebody was faster. Raise ApiError.

        The lock and the wait for our own write make each decision see the one before it: two evictions that each fit
        a budget alone must not both pass.
        """
        async with self._lock:
            if not dry_run:
                # Before deciding: "not found" and "unchanged" are answers too, and a standby, or a leader that slept
                # through its lease, would give them about a world that has moved on.
                self._writer()
            await self._settle()
            for _ in range(_ATTEMPTS):
                decided = decide()
                if dry_run or not decided.changes:
                    return decided
                if await self._write(decided.changes):
                    return decided
            raise ApiError(409, "Conflict", "the objects changed under the request five times in a row; try again")

    async def _settle(self) -> None:
        """Deciding on less than was written could undo it, and a write that nobody told of would stay untold."""
        if self._in_doubt and self.writer is not None:
            await self._catch_up()
            try:
                await self.writer.settle()
            except BusUnavailableError as error:
                raise unavailable(f"the bus does not answer: {error}") from error
            self._in_doubt = False
        if self._world.specs.worlds != self._seen_world:
            # What was written before went with the old store, and the new one counts from the start.
            self._seen_world, self._must_see = self._world.specs.worlds, 0
        if not await self._world.specs.wait_revision(self._must_see, _CATCH_UP_S):
            raise unavailable(f"the bus has not shown revision {self._must_see} yet, which was written before")

    async def _write(self, changes: Sequence[Change]) -> bool:
        """False after a conflict, when the world has caught up with whoever won."""
        writer = self._writer()
        specs = self._world.specs
        try:
            revision = await writer.commit(changes, specs)
        except NotHeldError as error:
            raise self._not_leading() from error
        except ConflictError:
            await self._catch_up()
            return False
        except BusUnavailableError as error:
            self._in_doubt = True
            raise unavailable(
                f"the bus did not confirm the write; it may have happened, apply again: {error}"
            ) from error
        self.writes += len(changes)
        self._must_see = revision
        if not await specs.wait_revision(revision, _CATCH_UP_S):
            raise unavailable(f"written as revision {revision}, but the bus has not shown it yet")
        return True

    async def _catch_up(self) -> None:
        try:
            last = await self._world.specs_bucket.last_revision()
        except BusUnavailableError as error:
            raise unavailable(f"the bus does not answer: {error}") from error
        if not await self._world.specs.wait_revision(last, _CATCH_UP_S):
            raise unavailable(f"the bus has not shown revision {last} yet")

    def lead(self, writer: Writer | None) -> None:
        """Begin with what ``writer`` may write, or end with None. A new leader has just caught up with everything."""
        self.writer = writer
        self._seen_world = self._world.specs.worlds
        self._in_doubt = False
        self._must_see = 0

    def _writer(self) -> Writer:
        if self.writer is None or not self.writer.leads:
            raise self._not_leading()
        return self.writer

    def _not_leading(self) -> ApiError:
        holder = next((r for r in self._world.leases.items.values() if r.service == "gateway"), None)
        if holder is not None and holder.holder != self._instance:
            where = f"{holder.holder} does" + (f" at {holder.address}" if holder.address else "")
            return unavailable(f"this gateway only reads, because it does not hold the lease; {where}")
        return unavailable("this gateway does not hold the lease yet; try again in a moment")
