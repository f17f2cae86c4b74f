"""The leader's loop: what changed is decided again, and what time alone changes is looked at once a second."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from cotenant_common.bus.protocol import BusUnavailableError
from cotenant_common.contracts import codec
from cotenant_common.contracts.buckets import POLICIES
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import PolicyRecord
from cotenant_common.model.ids import encode_token, object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.events import event_id
from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.app.leadership import Leadership
from cotenant_gateway.app.operations import Operations, Outcome
from cotenant_gateway.app.world import Dirty, World
from cotenant_gateway.app.writer import BATCH, SERVICE
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core import lifecycle, nodes, slo_config, workloads
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.plan import new_uid
from cotenant_gateway.core.records import Change, PodState, Spec
from cotenant_gateway.core.validate.schema import Report

Decide = Callable[[], Sequence[Change]]

TICK_S: Final = 1.0
_SWEEP_EVERY: Final = 10
"""Ticks between looks at everything: what an event failed to tell, a sweep finds."""
_RETRY_S: Final = 1.0
_LOOP: Final = "reconcile"


class Reconciler:
    def __init__(
        self,
        context: ServiceContext,
        settings: GatewaySettings,
        world: World,
        lead: Leadership,
        operations: Operations,
    ) -> None:
        self._context = context
        self._settings = settings
        self._world = world
        self._lead = lead
        self._operations = operations
        self._ticks = 0
        self._was_connected = True

    async def run(self) -> None:
        """Until cancelled."""
        self._world.dirty.everything = True
        try:
            while True:
                await self._turn()
                self._context.health.beat(_LOOP)
                await self._wait()
        finally:
            self._context.health.forget(_LOOP)  # a standby has no such loop and is healthy all the same

    async def _turn(self) -> None:
        dirty = self._world.take_dirty()
        try:
            await self._pass(dirty)
        except (ApiError, BusUnavailableError) as error:
            self._world.give_back(dirty)
            self._context.log.warning("reconcile_delayed", error=str(error))
            await asyncio.sleep(_RETRY_S)
        except Exception:
            self._context.log.exception("reconcile_failed")
            self._world.give_back(dirty)
            await asyncio.sleep(_RETRY_S)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(TICK_S):
                await self._world.wake.wait()
        except TimeoutError:
            self._tick()

    def _tick(self) -> None:
        self._ticks += 1
        world = self._world
        if self._context.bus.connected and not self._was_connected:
            world.listen_again()
        self._was_connected = self._context.bus.connected
        world.dirty.nodes.update(dict.fromkeys(world.node_names()))
        timed = [spec for spec in world.of_kind("Job") if _waits_for_time(spec)] + world.of_kind("Deployment")
        world.dirty.owners.update({spec.object: None for spec in timed})
        if self._ticks % _SWEEP_EVERY == 0:
            world.dirty.everything = True

    async def _pass(self, dirty: Dirty) -> None:
        world = self._world
        if dirty.everything:
            dirty.nodes.update(dict.fromkeys(world.node_names()))
            dirty.pods.update({spec.key: None for spec in world.of_kind("Pod")})
            dirty.owners.update({spec.object: None for spec in [*world.of_kind("Deployment"), *world.of_kind("Job")]})
            dirty.policies = True
        if not self._context.bus.connected:
            raise BusUnavailableError("not connected to the bus")
        await self._nodes(list(dirty.nodes))
        if dirty.policies:
            await self._policies()
        await self._write(lambda: self._pods(list(dirty.pods)))
        for owner in dirty.owners:
            await self._write(partial(self._owner, owner))
        if dirty.everything:
            await self._write(self._expired)

    async def _write(self, decide: Decide) -> None:
        """In batches; what is left over or new is decided on the next turn, on what the first batch made."""

        def once() -> Outcome:
            distinct = {change.spec.key: change for change in reversed(decide())}
            return Outcome(list(reversed(distinct.values()))[:BATCH])

        done = await self._lead.carry_out(once)
        if len(done.changes) == BATCH:
            self._world.dirty.everything = True
            self._world.wake.set()

    async def _nodes(self, names: Sequence[str]) -> None:
        def decide() -> list[Change]:
            now_ms, seed = self._context.clock.now_ms(), self._operations.seed()
            found = [
                nodes.decide(
                    self._world.watched(name),
                    now_ms,
                    new_uid("Node", None, name, 0, seed),
                    self._settings.node_limits(),
                )
                for name in names
            ]
            return [change for change in found if change is not None]

        await self._write(decide)
        for name in names:
            if self._lost_reason(name) is not None:
                self._world.touch_pods(self._world.pods_on(name))

    def _lost_reason(self, node: str | None) -> str | None:
        """Why pods of this node start again elsewhere; None while they may still run."""
        if node is None:
            return None
        watched = self._world.watched(node)
        if nodes.is_gone(watched.spec):
            return ReasonCode.NODE_LOST
        retired = watched.retired_agent is not None and (
            watched.inventory is None or watched.inventory.agent_id == watched.retired_agent
        )
        listened_ms = self._context.clock.now_ms() - self._world.listening_since_ms
        vanished = not watched.alive and listened_ms >= self._settings.node_limits().lost_ms
        return ReasonCode.NODE_LOST if watched.spec is None and (retired or vanished) else None

    def _pods(self, keys: Sequence[str]) -> list[Change]:
        now_ms, seed = self._context.clock.now_ms(), self._operations.seed()
        changes: list[Change] = []
        for key in keys:
            spec = self._world.find(key)
            if spec is None:
                continue
            pod = self._world.pod(spec)
            change = lifecycle.decide(
                pod,
                lost_reason=self._lost_reason(pod.node),
                owner_exists=self._owner_exists(spec),
                now_ms=now_ms,
                seed=seed,
            )
            if change is not None:
                changes.append(change)
        return changes

    def _owner_exists(self, spec: Spec) -> bool:
        return spec.owner is None or self._owner_spec(spec.owner) is not None

    def _owner_spec(self, owner: str) -> Spec | None:
        kind, namespace, name = owner.split("/", 2)
        found = self._world.find_object(kind, None if namespace == "-" else namespace, name)
        return found if found is not None and found.deletion is None else None

    def _owner(self, owner: str) -> list[Change]:
        spec = self._owner_spec(owner)
        if spec is None or spec.kind not in ("Deployment", "Job"):
            return []
        now_ms, seed = self._context.clock.now_ms(), self._operations.seed()
        decide = workloads.reconcile_job if spec.kind == "Job" else workloads.reconcile_deployment
        return decide(spec, workloads.by_ordinal(spec, self._world.children(owner)), self._build, now_ms, seed)

    def _build(self, owner: Spec, ordinal: int) -> Spec | None:
        report = Report()
        now_ms, seed = self._context.clock.now_ms(), self._operations.seed()
        pod = workloads.build_pod(owner, ordinal, self._world.catalog, now_ms, seed, report)
        if pod is None:
            problems = "; ".join(str(problem) for problem in report.errors)
            self._context.log.error("pod_refused", owner=owner.object, ordinal=ordinal, problems=problems)
        elif self._world.find(pod.key) is not None and pod.key not in self._own_keys(owner):
            self._context.log.error("pod_name_taken", owner=owner.object, pod=pod.object)
            return None
        return pod

    def _own_keys(self, owner: Spec) -> list[str]:
        return [pod.spec.key for pod in self._world.children(owner.object)]

    def _expired(self) -> list[Change]:
        kept: list[PodState] = [pod for pod in self._world.pods() if not self._replaced(pod)]
        return list(lifecycle.expired(kept, self._context.clock.now_ms(), self._settings.retention()))

    @staticmethod
    def _replaced(pod: PodState) -> bool:
        """A Deployment's ended pod is waiting for its turn to start again."""
        return pod.spec.owner is not None and pod.spec.owner.startswith("Deployment/")

    async def _policies(self) -> None:
        for node in self._world.of_kind("Node"):
            record = self._render(node)
            key = encode_token(node.name)
            if self._world.policies.items.get(key) == record:
                continue
            revision = await self._world.policies_bucket.put(key, codec.encode(record))
            await self._tell_policy(record, key, revision)
        wanted = [encode_token(node.name) for node in self._world.of_kind("Node")]
        for key in sorted(self._world.policies.items):
            if key not in wanted:
                await self._world.policies_bucket.delete(key)
        problems = self._world.slo_problems
        if problems:
            self._context.log.error("slo_config_unreadable", problems=[f"{p.key}: {p.message}" for p in problems])

    def _render(self, node: Spec) -> PolicyRecord:
        inventory = self._world.inventory(node.name)
        facts = slo_config.NodeFacts(
            node.name, node.labels, node.annotations, idle_class=inventory is not None and inventory.idle_class
        )
        policy = slo_config.render(facts, self._world.slo_config, self._settings.policy)
        return PolicyRecord(
            node=node.name,
            slo=policy.slo,
            colocation=policy.colocation,
            sources=policy.sources,
            observe=policy.observe,
            frozen=self._world.frozen(),
        )

    async def _tell_policy(self, record: PolicyRecord, key: str, revision: int) -> None:
        writer = self._lead.writer
        if writer is None:
            return
        problems = "; ".join(f"{p.key}: {p.message}" for p in self._world.slo_problems)
        event = Event(
            id=event_id(POLICIES, key, revision),
            type="policy.changed",
            at_ms=self._context.clock.now_ms(),
            source=SERVICE,
            object=object_key("Node", None, record.node),
            message=f"kept the last readable value of {problems}" if problems else "",
            data={"observe": record.observe, "frozen": record.frozen},
        )
        await writer.say(event)


def _waits_for_time(job: Spec) -> bool:
    """A running Job has retries and deadlines; a finished one only its end."""
    return workloads.job_condition(job) is None or "ttlSecondsAfterFinished" in job.body
