"""Placements become bindings: stored first, told after."""

from contextlib import suppress

from cotenant_common.bus.protocol import BusError, Entry
from cotenant_common.contracts.buckets import BINDINGS
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import Binding
from cotenant_common.model.ids import object_key
from cotenant_common.runtime.events import event_id
from cotenant_scheduler.adapters.binder import Bind, Binder, DeposedError, Unbind
from cotenant_scheduler.adapters.facts import binding_of
from cotenant_scheduler.app.entries import read
from cotenant_scheduler.app.leader import Leader
from cotenant_scheduler.core.decisions import Placement


class BindingDesk:
    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        context = leader.context
        self._seconds = context.metrics.histogram("cotenant_scheduler_bind_seconds", "Pod created to binding stored")
        self._total = context.metrics.counter("cotenant_scheduler_bindings_total", "Bindings stored")
        batch = leader.settings.bind_batch
        self._binder = Binder(leader.bindings, leader.lease, context.log, batch, self._on_bound, self._on_lost)

    @property
    def backlog(self) -> int:
        return self._binder.backlog

    @property
    def lags(self) -> bool:
        """The bus is slow: what is decided later is decided better."""
        return self._binder.backlog >= self._leader.settings.bind_backlog

    def clear(self) -> None:
        self._binder.clear()

    async def run(self) -> None:
        try:
            await self._binder.run()
        except DeposedError as error:
            self._leader.context.log.warning("deposed", error=str(error))
            self._leader.deposed.set()

    def place(self, placement: Placement) -> None:
        uid, state = placement.pod.uid, self._leader.state
        earlier = state.binding(uid)
        attempt = 1 if earlier is None else earlier.attempt + 1
        story = self._leader.stories.of(uid)
        story.scores, story.feasible = dict(placement.scores), placement.feasible
        state.in_flight[uid] = None
        self._binder.put(Bind(binding_of(placement, attempt, self._leader.lease.epoch), state.binding_key(uid)))

    def unbind(self, key: str, revision: int | None) -> None:
        self._binder.put(Unbind(key, revision))

    def restore_lost(self) -> None:
        """A store that was made anew lost them, their pods run on: the next start must find where."""
        state = self._leader.state
        for _, binding in sorted(state.bindings.orphans.items()):
            if state.record(binding.uid) is not None:
                self._binder.put(Bind(binding))

    async def _on_bound(self, bind: Bind, revision: int) -> None:
        binding, leader = bind.binding, self._leader
        now_ms = leader.now_ms()
        self._total.add(1)
        if binding.queued_ms is not None:
            self._seconds.record(max(0, now_ms - binding.queued_ms) / 1000)
        leader.records.forget(binding.uid)
        leader.stories.tell(binding.uid, now_ms, "bound", node=binding.node, attempt=binding.attempt)
        leader.context.log.info(
            "pod_bound",
            pod=f"{binding.namespace}/{binding.name}",
            uid=binding.uid,
            node=binding.node,
            attempt=binding.attempt,
            score=binding.score,
        )
        await leader.announcer.announce(bound_event(binding, bind.key, revision, leader.context.instance))
        leader.work.set()

    async def _on_lost(self, bind: Bind) -> None:
        """Another binding of this pod exists: believe the bucket, not the assumption."""
        state = self._leader.state
        with suppress(BusError):
            await state.bindings.wait_revision(await self._leader.bindings.last_revision())
        state.in_flight.pop(bind.binding.uid, None)
        state.refresh_pod(bind.binding.uid)

    def bound_again(self, entry: Entry) -> list[Event]:
        """What an earlier leader stored and may not have told."""
        binding = read(Binding, entry)
        return (
            [] if binding is None else [bound_event(binding, entry.key, entry.revision, self._leader.context.instance)]
        )


def bound_event(binding: Binding, key: str, revision: int, source: str) -> Event:
    return Event(
        id=event_id(BINDINGS, key, revision),
        type="pod.bound",
        at_ms=binding.bound_ms,
        source=source,
        object=object_key("Pod", binding.namespace, binding.name),
        uid=binding.uid,
        message=f"bound to {binding.node}",
        data={
            "node": binding.node,
            "attempt": binding.attempt,
            "score": binding.score,
            "quota": binding.quota,
            "requests": binding.requests,
        },
    )
