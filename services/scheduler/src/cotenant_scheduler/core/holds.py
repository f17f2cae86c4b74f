"""Room that was freed, or is being freed, for somebody: nobody else takes it, but who is more important."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.estimate import Estimate, PlacedLoad
from cotenant_scheduler.core.ledger import Ledger, Released
from cotenant_scheduler.core.request import PodRequest

_QUOTA: Final = "ElasticQuota/"


@dataclass(frozen=True, slots=True)
class Hold:
    """``charge`` has a uid of its own and the beneficiary's priority. ``until_ms`` None: until it is dropped."""

    charge: Charge
    beneficiary: str
    until_ms: int | None


def is_quota(beneficiary: str) -> bool:
    return beneficiary.startswith(_QUOTA)


def is_for(beneficiary: str, uid: str, key: str, chain: Sequence[str]) -> bool:
    """A beneficiary is a pod, by uid or by name, or a quota: then every pod of it and of those below it."""
    if is_quota(beneficiary):
        return beneficiary.rpartition("/")[2] in chain
    return beneficiary in (uid, key, f"Pod/{key}")


def held_charge(
    uid: str,
    key: tuple[str, str],
    node: str,
    requests: Mapping[str, int],
    priority: int,
    quota_label: str | None = None,
    *,
    counted: bool = False,
) -> Charge:
    """Carries no load and no labels: nothing runs there yet."""
    load = PlacedLoad(uid, Estimate((0, 0)), is_prod=False, placed_ms=0)
    return Charge(
        uid, *key, node, requests, load, quota_label=quota_label, priority=priority, evictable=True, counted=counted
    )


class Holds:
    """Each is a charge in the ledger; whom it is for looks at the cluster without it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._holds: dict[str, Hold] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._holds

    def __len__(self) -> int:
        return len(self._holds)

    def __getitem__(self, uid: str) -> Hold:
        return self._holds[uid]

    def uids(self) -> list[str]:
        return list(self._holds)

    def put(self, hold: Hold) -> None:
        self._holds[hold.charge.uid] = hold
        self._ledger.put(hold.charge)

    def drop(self, uid: str) -> Released | None:
        return self._ledger.release(uid) if self._holds.pop(uid, None) is not None else None

    def of(self, pod: PodRequest, chain: Sequence[str]) -> list[str]:
        return [uid for uid, hold in self._holds.items() if is_for(hold.beneficiary, pod.uid, pod.key, chain)]

    def beneath(self, priority: int) -> list[str]:
        return [uid for uid, hold in self._holds.items() if hold.charge.priority < priority]

    def names(self, pod: PodRequest) -> bool:
        """Whether one is for this very pod."""
        return bool(self._holds) and bool(self.of(pod, ()))

    def due(self, now_ms: int) -> list[str]:
        return [uid for uid, hold in self._holds.items() if hold.until_ms is not None and hold.until_ms <= now_ms]

    def next_ms(self) -> int | None:
        return min((hold.until_ms for hold in self._holds.values() if hold.until_ms is not None), default=None)

    def consume(self, uid: str, taken: Mapping[str, int]) -> Mapping[str, int]:
        """A pod of the beneficiary took this much: the rest stays held; return what the hold did not cover."""
        hold = self._holds[uid]
        held = hold.charge.requests
        rest = {name: max(0, amount - taken.get(name, 0)) for name, amount in held.items()}
        self.drop(uid)
        if any(rest.values()):
            charge = held_charge(
                uid, (hold.charge.namespace, hold.charge.name), hold.charge.node, rest, hold.charge.priority
            )
            self.put(Hold(charge, hold.beneficiary, hold.until_ms))
        return {name: max(0, amount - held.get(name, 0)) for name, amount in taken.items()}
