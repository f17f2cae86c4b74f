"""Who holds what: one charge per uid, on its node and in its quota, taken off by one idempotent release."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.quota import QuotaBook
from cotenant_scheduler.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Released:
    """Where room appeared."""

    charge: Charge
    row: int | None
    quota: str | None


@dataclass(frozen=True, slots=True)
class Drift:
    """Belief and reality differ for one pod."""

    uid: str
    believed: Charge | None
    actual: Charge | None


class Ledger:
    def __init__(self, cluster: Snapshot, quotas: QuotaBook) -> None:
        self._cluster = cluster
        self._quotas = quotas
        self._charges: dict[str, Charge] = {}
        self._priorities: dict[int, int] = {}

    def charges(self) -> Mapping[str, Charge]:
        return self._charges

    def get(self, uid: str) -> Charge | None:
        return self._charges.get(uid)

    def put(self, charge: Charge) -> Released | None:
        """Charge, or move an existing charge; return what was released by the move."""
        before = self._charges.get(charge.uid)
        if before == charge:
            return None
        released = self.release(charge.uid)
        self._charges[charge.uid] = charge
        self._count(charge, +1)
        self._cluster.charge(charge)
        self._quotas.charge(charge)
        return released

    def release(self, uid: str) -> Released | None:
        """The second time there is nothing to take off."""
        charge = self._charges.pop(uid, None)
        if charge is None:
            return None
        self._count(charge, -1)
        row = self._cluster.discharge(charge)
        quota = self._quotas.discharge(charge)
        return Released(charge, row if self._cluster.alive[row] else None, quota)

    def _count(self, charge: Charge, sign: int) -> None:
        if charge.evictable:
            left = self._priorities.get(charge.priority, 0) + sign
            if left:
                self._priorities[charge.priority] = left
            else:
                del self._priorities[charge.priority]

    def priorities_beneath(self, priority: int) -> list[int]:
        """Of evictable pods, rising."""
        return sorted(each for each in self._priorities if each < priority)

    @contextmanager
    def without(self, uids: Iterable[str]) -> Iterator[None]:
        """As if these pods were gone, until the block ends. Charges undo exactly, so nothing stays of the thought."""
        charges = [self._charges[uid] for uid in uids if uid in self._charges]
        for charge in charges:
            self.release(charge.uid)
        try:
            yield
        finally:
            for charge in charges:
                self.put(charge)

    def audit(self, actual: Mapping[str, Charge]) -> tuple[Drift, ...]:
        """Where the ledger is wrong; nothing is changed here."""
        return tuple(
            Drift(uid, self._charges.get(uid), actual.get(uid))
            for uid in sorted({*self._charges, *actual})
            if self._charges.get(uid) != actual.get(uid)
        )
