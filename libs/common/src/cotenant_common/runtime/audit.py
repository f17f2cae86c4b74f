"""Belief against reality: what a ledger has drifted from is repaired by its owner, counted and told of here."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant_common.contracts.messages.events import Event
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.service import ServiceContext


@dataclass(frozen=True, slots=True)
class Drift:
    """One entry of a ledger that was not what it should be. None: there was, or should have been, no entry.

    ``ledger`` is a metric label: one of a few fixed words per service.
    """

    ledger: str
    object: str
    believed: Mapping[str, Any] | None
    actual: Mapping[str, Any] | None
    uid: str | None = None

    @property
    def message(self) -> str:
        return f"{self.ledger} of {self.object}: believed {_shown(self.believed)}, is {_shown(self.actual)}"


def _shown(entry: Mapping[str, Any] | None) -> str:
    return "nothing" if entry is None else ", ".join(f"{key} {value}" for key, value in entry.items())


class Auditor:
    """``say`` publishes; drift is found and repaired by the ledger's owner, who hands in what it repaired."""

    def __init__(self, context: ServiceContext, say: Callable[[Event], Awaitable[None]]) -> None:
        self._context = context
        self._say = say
        self._told = 0
        self._repairs = context.metrics.counter(
            "cotenant_ledger_repairs_total", "Entries of a ledger that an audit had to repair"
        )

    async def repaired(self, drifts: Sequence[Drift]) -> None:
        now_ms = self._context.clock.now_ms()
        for drift in drifts:
            self._told += 1
            self._repairs.add(1, {"ledger": drift.ledger})
            self._context.log.warning(
                "ledger_repaired", ledger=drift.ledger, object=drift.object, message=drift.message
            )
            await self._say(
                Event(
                    id=f"audit/{self._context.instance}/{now_ms}/{self._told}",
                    type="ledger.repaired",
                    at_ms=now_ms,
                    source=self._context.name,
                    object=drift.object,
                    uid=drift.uid,
                    reason=ReasonCode.LEDGER_DRIFT,
                    message=drift.message,
                    data={
                        "ledger": drift.ledger,
                        "believed": None if drift.believed is None else dict(drift.believed),
                        "actual": None if drift.actual is None else dict(drift.actual),
                    },
                )
            )
