"""One pod of a hollow node: nothing runs, but its status goes the way of a real one."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from cotenant_agent.adapters.manifests import PodPlan
from cotenant_agent.app.status import PodView
from cotenant_agent.core.admission import Refusal
from cotenant_common.contracts.messages.state import Binding, Deletion, PodPhase
from cotenant_common.model import labels
from cotenant_common.model.reasons import ReasonCode
from cotenant_simulator.core import annotations
from cotenant_simulator.core.scenario import Demand
from cotenant_simulator.node.demands import own_demand
from cotenant_simulator.node.runtime import START_MS, STOP_MS

NO_DEMAND: Final = Demand()

Tell = Callable[[PodView, str | None], None]
"""The view to write, and the type of the event that goes with it."""


class HollowPod:
    def __init__(self, binding: Binding, now_ms: Callable[[], int], tell: Tell) -> None:
        self.binding = binding
        self.view = PodView(binding, "Pending")
        self.plan: PodPlan | None = None
        self.demand = NO_DEMAND
        self.stopping = False
        self._now_ms = now_ms
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    @property
    def holds_room(self) -> bool:
        return not self.view.terminal and not self.view.rejected

    @property
    def running(self) -> bool:
        return self.view.phase == "Running"

    def refuse(self, refusal: Refusal) -> None:
        self._show("pod.rejected", rejected=True, reason=refusal.reason.value, message=refusal.message)

    def start(self, plan: PodPlan) -> None:
        self.plan, self.demand = plan, own_demand(plan.pod)
        self._show(None, phase="Starting", warnings=plan.warnings)
        self._after(START_MS, self._started)

    def _started(self) -> None:
        reason = ReasonCode.STARTED.value
        self._show("pod.started", phase="Running", ready=True, started_ms=self._now_ms(), reason=reason)
        lasts_ms = self._duration(labels.SIM_DURATION)
        if lasts_ms is not None:
            self._after(lasts_ms, self._completed)

    def _completed(self) -> None:
        self._end("Succeeded", ReasonCode.COMPLETED.value, "all containers exited with 0", 0)

    def stop(self, order: Deletion) -> None:
        """Once; what never ran is gone at once."""
        if self.stopping or self.view.terminal:
            return
        self.stopping = True
        takes_ms = self._duration(labels.SIM_GRACE)
        takes_ms = min(STOP_MS if takes_ms is None else takes_ms, order.grace_ms) if self.running else 0
        self._show(None, ready=False, reason=order.reason, message=f"stopping: {order.message}")
        self._after(takes_ms, lambda: self._end("Deleted", order.reason, order.message))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _duration(self, name: str) -> int | None:
        return None if self.plan is None else annotations.read_duration_ms(self.plan.pod.annotations, name)

    def _after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, call)

    def _end(self, phase: PodPhase, reason: str, message: str, exit_code: int | None = None) -> None:
        self.demand = NO_DEMAND
        now_ms = self._now_ms()
        self._show(
            "pod.finished",
            phase=phase,
            rejected=False,
            ready=False,
            reason=reason,
            message=message,
            finished_ms=now_ms,
            exit_code=exit_code,
        )

    def _show(self, event: str | None, **fields: Any) -> None:
        self.view = self.view.changed(**fields)
        self._tell(self.view, event)
