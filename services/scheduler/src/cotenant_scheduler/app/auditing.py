"""Charges against bindings, now and then: drift is repaired, counted and told."""

import asyncio
from collections.abc import Mapping
from typing import Any

from cotenant_common.model.ids import object_key
from cotenant_common.runtime.audit import Auditor, Drift
from cotenant_scheduler.app.binding import BindingDesk
from cotenant_scheduler.app.leader import Leader
from cotenant_scheduler.core import ledger
from cotenant_scheduler.core.charge import Charge

_LEDGER = "charges"


class Auditing:
    def __init__(self, leader: Leader, desk: BindingDesk) -> None:
        self._leader = leader
        self._desk = desk
        self._auditor = Auditor(leader.context, leader.announcer.announce)
        self.repaired = 0

    async def run(self) -> None:
        leader = self._leader
        while True:
            await asyncio.sleep(leader.settings.audit_interval_s)
            self._desk.restore_lost()
            found = [_drift(each) for each in leader.state.audit()]
            self.repaired += len(found)
            await self._auditor.repaired(found)


def _drift(drift: ledger.Drift) -> Drift:
    charge = drift.believed or drift.actual
    name = (
        object_key("Pod", charge.namespace, charge.name) if charge is not None else object_key("Pod", None, drift.uid)
    )
    return Drift(_LEDGER, name, _entry(drift.believed), _entry(drift.actual), drift.uid)


def _entry(charge: Charge | None) -> Mapping[str, Any] | None:
    if charge is None:
        return None
    return {"node": charge.node, "quota": charge.quota_label, **charge.requests}
