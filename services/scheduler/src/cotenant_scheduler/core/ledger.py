"""Who holds what: one charge per uid, on its node and in its quota, taken off by one idempotent release."""

from collections.abc import Mapping
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

    @property
    def message(self) -> str:
        if self.believed is None and self.actual is not None:
            return f"{self.actual.key} holds room on {self.actual.node} but was not charged"
        if self.actual is None and self.believed is not None:
            return f"{self.believed.key} was charged on {self.believed.node} but holds nothing"
        return f"the charge of pod {self.uid} differed from its binding"


class Ledger:
    def __init__(self, cluster: Snapshot, quotas: QuotaBook) -> None:
        self._cluster = cluster
        self._quotas = quotas
        self._charges: dict[str, Charge] = {}

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
        self._cluster.charge(charge)
        self._quotas.charge(charge)
        return released

    def release(self, uid: str) -> Released | None:
        """The second time there is nothing to take off."""
        charge = self._charges.pop(uid, None)
        if charge is None:
            return None
        row = self._cluster.discharge(charge)
        quota = self._quotas.discharge(charge)
        return Released(charge, row if self._cluster.alive[row] else None, quota)

    def audit(self, actual: Mapping[str, Charge]) -> tuple[Drift, ...]:
        """Where the ledger is wrong; nothing is changed here."""
        return tuple(
            Drift(uid, self._charges.get(uid), actual.get(uid))
            for uid in sorted({*self._charges, *actual})
            if self._charges.get(uid) != actual.get(uid)
        )
