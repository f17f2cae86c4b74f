"""The eviction gate as the others meet it: asked over the bus, over HTTP, by a drain, or told afterwards."""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cotenant_common.contracts.messages.commands import EmergencyUsed
from cotenant_common.contracts.messages.events import Event
from cotenant_common.model.ids import object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.audit import Drift
from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.adapters.events import EventFilter, Start, follow
from cotenant_gateway.app.book import RemovalBook
from cotenant_gateway.app.leadership import Leadership
from cotenant_gateway.app.world import World
from cotenant_gateway.app.writer import BATCH, SERVICE
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core import gate, nodes
from cotenant_gateway.core.budgets import Budget
from cotenant_gateway.core.drain import drain
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.records import Change, Manifest
from cotenant_gateway.core.removal import Decision, Held, Ledger, Place, Removal, Request, Verdict, Victim, Workload

_ANSWERS_KEPT: Final = 10_000
_OBSERVED_KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """``changes`` hold the cordon too; each pod that is still there after this pass has its decision."""

    changes: Sequence[Change]
    decisions: tuple[Decision, ...]

    @property
    def remaining(self) -> int:
        return len(self.decisions)


class Evictions:
    """One code path for the bus, HTTP, drains and dry runs."""

    def __init__(self, context: ServiceContext, settings: GatewaySettings, world: World, lead: Leadership) -> None:
        self._context = context
        self._world = world
        self._lead = lead
        self._gate = settings.gate()
        self._answers: OrderedDict[tuple[str, ...], Decision] = OrderedDict()
        self._book = RemovalBook(self._gate.memory_ms)
        world.listeners.append(self._book.on_spec)
        self._observed: deque[dict[str, Any]] = deque(maxlen=_OBSERVED_KEPT)
        self._evictions = context.metrics.counter(
            "cotenant_gateway_evictions_total", "forced removals by kind, answer and reason"
        )

    async def evict(self, request: Request, *, dry_run: bool = False) -> Decision:
        answered: list[Decision] = []

        def decide() -> Decision:
            # Looked up in here: of two deliveries at once the second one has to wait for the first one's answer.
            known = self._answers.get(_identity(request))
            if known is not None:
                answered.append(known)
                return replace(known, changes=())
            return gate.decide(request, self.ledger(), self._gate, self._context.clock.now_ms())

        decision = await self._lead.carry_out(decide, dry_run=dry_run)
        if answered:
            return answered[-1]
        if not dry_run:
            self._remember(_identity(request), decision)
            await self._account(request, decision)
        return decision

    async def drain(self, node: str, asked: Request, *, dry_run: bool = False) -> NodeDrain:
        """One pass: cordon, and every pod that may go now goes. Ask again until nothing remains. Raise ApiError."""

        def decide() -> NodeDrain:
            spec = self._world.find_object("Node", None, node)
            if spec is None:
                raise ApiError(404, "NotFound", f"there is no node {node}")
            cordon = nodes.cordon(spec, unschedulable=True)
            now_ms = self._context.clock.now_ms()
            decisions = drain(node, self._world.pods_on(node), asked, self.ledger(), self._gate, now_ms)
            changes: list[Change] = [] if cordon is None else [cordon]
            changes += [change for decision in decisions for change in decision.changes]
            return NodeDrain(changes[:BATCH], decisions)

        done = await self._lead.carry_out(decide, dry_run=dry_run)
        if not dry_run:
            for decision in done.decisions:
                if decision.changes:
                    await self._account(replace(asked, kind="drain", victims=_victims(decision)), decision)
        return done

    async def emergency(self, report: EmergencyUsed) -> Decision:
        """An agent already removed the pod, under its allowance; here it is booked and queued again."""
        victim = Victim(report.victim.uid, report.victim.namespace, report.victim.name, report.node)
        request = Request(
            report.id, "emergency", (victim,), f"agent {report.node}", report.reason, report.message, report.numbers
        )

        def decide() -> Decision:
            pod = self._world.pod_of_uid(report.victim.uid)
            change = gate.reported(pod, request, self._context.clock.now_ms()) if pod is not None else None
            verdicts = (Verdict(victim, None, "booked" if change else "was booked before"),)
            return Decision(True, "booked", verdicts, None, (change,) if change else (), replay=change is None)

        decision = await self._lead.carry_out(decide)
        await self._account(request, decision)
        return decision

    def ledger(self) -> Ledger:
        world = self._world
        budgets = [Budget(spec.namespace or "", spec.name, spec.body) for spec in world.of_kind("PodDisruptionBudget")]
        workloads = {
            spec.object: Workload(spec.object, int(spec.body.get(wanted, 1)))
            for kind, wanted in (("Deployment", "replicas"), ("Job", "parallelism"))
            for spec in world.of_kind(kind)
        }
        return Ledger(
            pods={pod.spec.uid: pod for pod in world.pods()},
            budgets=budgets,
            workloads=workloads,
            places={spec.name: Place(nodes.closed(spec)) for spec in world.of_kind("Node")},
            reservations={spec.name: _held(spec.manifest) for spec in world.of_kind("Reservation")},
            past=self._book.recent(self._context.clock.now_ms()),
            frozen=world.frozen(),
            observing=world.observing(),
        )

    async def recall(self) -> None:
        """Read back from the events what no spec holds any more, so that caps and cool-downs outlive a restart."""
        start = Start(since_ms=max(0, self._context.clock.now_ms() - self._gate.memory_ms))
        async for item in follow(self._context.bus, start, EventFilter(("pod.evicted",)), forever=False):
            if item.event is not None and (found := _removal_of(item.event)) is not None:
                self._book.add([found])

    def only_observed(self) -> list[dict[str, Any]]:
        """The newest removals that were refused because their pods are only looked at, newest last."""
        return list(self._observed)

    def audit(self) -> list[Drift]:
        return self._book.audit(self._world.pods(), self._context.clock.now_ms())

    def _remember(self, identity: tuple[str, ...], decision: Decision) -> None:
        self._answers[identity] = decision
        if len(self._answers) > _ANSWERS_KEPT:
            self._answers.popitem(last=False)

    async def _account(self, request: Request, decision: Decision) -> None:
        if decision.replay:
            return
        self._evictions.add(
            1, {"kind": request.kind, "granted": decision.granted, "reason": str(decision.reason or "Granted")}
        )
        self._context.log.info(
            "eviction_decided",
            id=request.id,
            kind=request.kind,
            granted=decision.granted,
            reason=decision.reason,
            message=decision.message,
            victims=[f"{victim.namespace}/{victim.name}" for victim in request.victims],
        )
        if decision.reason is ReasonCode.OBSERVE_ONLY:
            self._observed.append(
                {
                    "at_ms": self._context.clock.now_ms(),
                    "kind": request.kind,
                    "pods": [f"{victim.namespace}/{victim.name}" for victim in request.victims],
                    "requested_by": request.requested_by,
                    "reason": request.reason,
                    "message": decision.message,
                    "numbers": dict(decision.numbers),
                }
            )
        if not decision.granted and request.victims and self._lead.writer is not None:
            await self._lead.writer.say(self._refusal(request, decision))

    def _refusal(self, request: Request, decision: Decision) -> Event:
        first = request.victims[0]
        return Event(
            id=f"evict/{request.id}",
            type="eviction.refused",
            at_ms=self._context.clock.now_ms(),
            source=SERVICE,
            object=object_key("Pod", first.namespace, first.name),
            uid=first.uid,
            reason=decision.reason,
            message=decision.message,
            data={
                "kind": request.kind,
                "requested_by": request.requested_by,
                "victims": len(request.victims),
                "wanted_for": request.reason,
                "numbers": dict(decision.numbers),
            },
            cause_id=request.id,
        )


def _identity(request: Request) -> tuple[str, ...]:
    """An id used again for other victims is another command."""
    return (request.id, *(victim.uid for victim in request.victims))


def _victims(decision: Decision) -> tuple[Victim, ...]:
    return tuple(verdict.victim for verdict in decision.verdicts)


def _held(manifest: Manifest) -> Held:
    status = manifest.get("status") or {}
    return Held(str(status.get("phase") or "Pending"), status.get("nodeName"))


def _removal_of(event: Mapping[str, Any]) -> Removal | None:
    """None for an event of before the kind and the workload were told."""
    data = event.get("data") or {}
    namespace = event["object"].split("/", 2)[1]
    if not event.get("uid") or "kind" not in data or "workload" not in data:
        return None
    return Removal(
        event["uid"],
        data.get("command_id"),
        str(data["kind"]),
        str(data.get("node") or ""),
        namespace,
        str(data["workload"]),
        int(event["at_ms"]),
    )
