"""What would happen to a live system: the production services decide on a copy of it, in virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.bus.protocol import BusError, Entry
from cotenant_common.contracts import buckets, subjects
from cotenant_common.contracts.buckets import is_bookkeeping
from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import EvictReply, EvictRequest
from cotenant_common.model.ids import object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime import requests
from cotenant_gateway.app.service import GatewayService
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.records import PodState
from cotenant_gateway.core.yaml_source import Document
from cotenant_simulator import loop
from cotenant_simulator.core.difference import Looks, difference
from cotenant_simulator.core.scenario import ObjectRef
from cotenant_simulator.errors import SimulationError
from cotenant_simulator.hosting import SERVICE_CRASHED
from cotenant_simulator.node.host import NodeShapeError, read_shape
from cotenant_simulator.recorder import Recorder
from cotenant_simulator.restore import Snapshot, fill, power_on, restore

Json = dict[str, Any]
Say = Callable[[str], None]

SETTLE_MS: Final = 45_000
"""The profiler's average and its hold of a rise, and one round of everybody after that."""
QUIET_MS: Final = 45_000
"""Longer than the descheduler looks at a hot node before it acts."""
AT_MOST_MS: Final = 300_000
_STEP_MS: Final = 1_000
_DRAIN_PAUSE_S: Final = 2.0
_WATCHED: Final = (
    buckets.SPECS, buckets.BINDINGS, buckets.PODSTATUS, buckets.MIGRATIONS, buckets.OVERCOMMIT, buckets.POLICIES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A change. ``for_ms`` None: until nothing happens any more, five minutes at most."""

    documents: Sequence[Document] = ()
    delete: Sequence[ObjectRef] = ()
    drain: Sequence[str] = ()
    for_ms: int | None = None


@dataclass(slots=True)
class Drain:
    """One node that is being emptied; ``refused`` by pod, as the gate put it last."""

    node: str
    asked: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def ask(snapshot: Snapshot, question: Question, say: Say = lambda _: None) -> Json:
    """The answer as data.

    Raise RefusedError or ApiError when the change itself is refused, SimulationError when a service of the copy died.
    """
    return loop.run(_WhatIf(snapshot, question, say).run())


class _WhatIf:
    def __init__(self, snapshot: Snapshot, question: Question, say: Say) -> None:
        self._snapshot = snapshot
        self._question = question
        self._say = say
        self._restored = restore(snapshot)
        self._cluster = self._restored.cluster
        self._changed_ms = 0
        self._drains = [Drain(node) for node in question.drain]

    async def run(self) -> Json:
        restored, cluster = self._restored, self._cluster
        with cluster.troubles.catching_all():
            recorder = Recorder(cluster)
            fill(restored, self._snapshot)
            for spec in _WATCHED:
                cluster.server.store(spec).listeners.append(self._on_change)
            power_on(restored, self._snapshot)
            cluster.start()
            found = recorder.outcome()
            await self._until(SETTLE_MS, "settling")
            before = recorder.outcome()
            asked_ms = self._now_ms()
            tasks = await self._change()
            ended = await self._run_out()
            self._check_alive()
            after = recorder.outcome()
            looks = Looks(before, after, asked_ms, self._named())
            answer = difference(looks)
            answer["does_not_fit"] = [await self._explained(row) for row in answer["does_not_fit"]]
            answer["drains"] = [self._drained(drain) for drain in self._drains]
            for task in tasks:
                task.cancel()
            await cluster.stop()
        return self._around(ended, asked_ms) | answer | {"settled": _settled(found, before)}

    def _check_alive(self) -> None:
        """Nothing fits where no scheduler runs: a copy that died has no answer to give."""
        for trouble in self._cluster.troubles.found:
            if trouble.event == SERVICE_CRASHED:
                raise SimulationError(f"the copy's {trouble.service} stopped, so there is no plan: {trouble.details}")

    # Time

    def _now_ms(self) -> int:
        return self._cluster.clock.now_ms() - self._snapshot.at_ms

    def _on_change(self, entry: Entry) -> None:
        if not is_bookkeeping(entry.key):
            self._changed_ms = self._now_ms()

    async def _until(self, at_ms: int, what: str) -> None:
        now = loop.current()
        while (now_ms := self._now_ms()) < at_ms:
            self._say(f"{what}: {now_ms / 1_000:.0f} of {at_ms / 1_000:.0f} virtual seconds")
            await now.sleep_until_ms(min(at_ms, now_ms + _STEP_MS))
            await now.quiet()
            self._cluster.settle()

    async def _run_out(self) -> str:
        """What ended it."""
        began_ms = self._now_ms()
        if self._question.for_ms is not None:
            await self._until(began_ms + self._question.for_ms, "trying")
            return "time"
        while self._now_ms() < began_ms + AT_MOST_MS:
            await self._until(self._now_ms() + _STEP_MS, "trying")
            if self._now_ms() - max(self._changed_ms, began_ms) >= QUIET_MS:
                return "quiet"
        return "time"

    # The change

    async def _change(self) -> list[asyncio.Task[None]]:
        question, cluster = self._question, self._cluster
        if question.documents:
            await cluster.apply(question.documents, _new_machines(question.documents, self._known_nodes()))
        if question.delete:
            await cluster.remove(question.delete)
        return [asyncio.create_task(self._empty(drain), name=f"drain {drain.node}") for drain in self._drains]

    def _known_nodes(self) -> set[str]:
        return set(self._gateway.world.node_names())

    @property
    def _gateway(self) -> GatewayService:
        service = self._cluster.hosts["gateway"].service
        if not isinstance(service, GatewayService):
            raise SimulationError("the copy's gateway does not run")
        return service

    async def _empty(self, drain: Drain) -> None:
        """As an operator does: no new pods, then every pod asked to leave, again while the gate refuses."""
        await self._gateway.operations.cordon(drain.node, unschedulable=True)
        bus = self._cluster.server.connect("operator")
        while left := _leaving(self._gateway.world.pods_on(drain.node)):
            for pod in left:
                drain.asked += 1
                request = _evict_request(pod, drain)
                try:
                    reply = await requests.call(bus, subjects.POD_EVICT, request, EvictReply)
                except BusError as error:
                    drain.refused[pod.spec.uid] = str(error)
                    continue
                if reply.granted:
                    drain.refused.pop(pod.spec.uid, None)
                else:
                    drain.refused[pod.spec.uid] = reply.message
            await asyncio.sleep(_DRAIN_PAUSE_S)

    def _drained(self, drain: Drain) -> Json:
        left = [pod for pod in self._gateway.world.pods_on(drain.node) if not pod.finished]
        rows = [
            {
                "pod": f"{pod.spec.namespace}/{pod.spec.name}",
                "message": drain.refused.get(pod.spec.uid) or "has not left yet",
            }
            for pod in left
        ]
        return {"node": drain.node, "empty": not rows, "left": rows}

    # The answer

    def _named(self) -> set[str]:
        """Pods of the files; what their Deployments and Jobs make are theirs too."""
        named = {
            (str(document.data.get("kind")), metadata.get("namespace") or "default", metadata.get("name"))
            for document in self._question.documents
            if (metadata := document.data.get("metadata") or {})
        }
        owners = {object_key(kind, namespace, str(name)) for kind, namespace, name in named}
        world = self._gateway.world
        return {
            f"{spec.namespace}/{spec.name}"
            for spec in world.of_kind("Pod")
            if ("Pod", spec.namespace, spec.name) in named or spec.owner in owners
        }

    async def _explained(self, row: Json) -> Json:
        """With what the scheduler says: which nodes refused and what would help."""
        namespace, _, name = row["pod"].partition("/")
        try:
            told = await self._gateway.reading.explain(namespace, name)
        except ApiError:
            told = {}
        scheduler = told.get("scheduler") or {}
        return row | {
            "reason": scheduler.get("reason") or row["reason"],
            "message": scheduler.get("message") or row["message"],
            "nodes_total": scheduler.get("nodes_total"),
            "refusals": scheduler.get("refusals") or [],
            "helps": scheduler.get("helps") or [],
        }

    def _around(self, ended: str, asked_ms: int) -> Json:
        snapshot, restored = self._snapshot, self._restored
        notes = []
        if snapshot.moved:
            moved = ", ".join(snapshot.moved)
            notes.append(f"the system changed while it was copied: {moved} may be up to {snapshot.skew_ms} ms apart")
        if restored.down:
            notes.append(f"no agent beats on {', '.join(restored.down)}; nothing runs there in the copy either")
        if restored.unknown:
            notes.append(f"{len(restored.unknown)} running pods are not measured; their request stands in")
        notes += [f"cannot be simulated: {one}" for one in restored.unreadable]
        notes += [f"{one.service} reports {one.event}: {one.details}" for one in self._cluster.troubles.found[:5]]
        return {
            "snapshot": {
                "at_ms": snapshot.at_ms,
                "consistent": snapshot.consistent,
                "skew_ms": snapshot.skew_ms,
                "revisions": dict(sorted(snapshot.revisions.items())),
                "nodes": len(self._known_nodes()),
                "nodes_down": list(restored.down),
                "pods_unmeasured": list(restored.unknown),
            },
            "virtual_ms": self._now_ms() - asked_ms,
            "ended": ended,
            "notes": notes,
        }


def _new_machines(documents: Sequence[Document], known: set[str]) -> list[Any]:
    """Nodes that do not exist yet and say what they have: the plan takes them for machines that are up."""
    shapes = []
    for document in documents:
        name = (document.data.get("metadata") or {}).get("name")
        if document.data.get("kind") == "Node" and name not in known:
            try:
                shapes.append(read_shape(document.data))
            except NodeShapeError:
                continue  # a name without a machine: it will look dead, as it would in life
    return shapes


def _leaving(pods: Sequence[PodState]) -> list[PodState]:
    return [pod for pod in pods if not pod.finished and pod.spec.deletion is None]


def _evict_request(pod: PodState, drain: Drain) -> EvictRequest:
    spec = pod.spec
    return EvictRequest(
        id=f"drain/{drain.node}/{spec.uid}/{drain.asked}",
        kind="drain",
        victims=[PodRef(uid=spec.uid, namespace=spec.namespace or "", name=spec.name, node=drain.node)],
        requested_by="user",
        reason=ReasonCode.DRAINED,
        message=f"{drain.node} is drained",
    )


def _settled(found: Json, before: Json) -> list[Json]:
    """What happens anyway, before any change: said apart, so that nobody takes it for the change's doing."""
    rows = []
    for name in sorted({*found["pods"], *before["pods"]}):
        was, is_now = found["pods"].get(name), before["pods"].get(name)
        old = None if was is None else (was["phase"], was["node"])
        new = None if is_now is None else (is_now["phase"], is_now["node"])
        if old != new:
            rows.append({"pod": name, "before": list(old or ()), "after": list(new or ())})
    return rows


def fits(answer: Json) -> bool:
    """Whether all that was asked for would run, and all that ran still does."""
    emptied = all(drain["empty"] for drain in answer["drains"])
    return emptied and not answer["does_not_fit"] and not answer["fails"]
