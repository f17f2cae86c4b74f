"""The leader's loop: what changed is decided again, and what time alone changes is looked at once a second."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from cotenant_common.bus.protocol import BusUnavailableError, ConflictError
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
from cotenant_gateway.core.demand import Demand
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.plan import new_uid
from cotenant_gateway.core.records import Change, PodState, Put, Spec
from cotenant_gateway.core.validate.schema import Report

Decide = Callable[[str], Sequence[Change]]

TICK_S: Final = 1.0
_RESOLUTION_S: Final = 0.001
"""What is due within it is due: sums of floats never meet exactly, and waiting for the rest would not end."""
_SWEEP_EVERY: Final = 60
"""Ticks between looks at everything: what an event failed to tell, a sweep finds."""
_RETRY_S: Final = 1.0
_LOOP: Final = "reconcile"
_HOPELESS: Final = (409, 413)
"""Answers that asking again will not change, unless the object does."""


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
        self._tick_due = 0.0
        self._was_connected = True
        self._policies_made: dict[str, tuple[tuple[Spec, bool, slo_config.SloConfig], slo_config.Policy]] = {}
        self._stuck: dict[str, str] = {}
        """Objects that cannot be decided on or written, with the problem: told once, not each second."""
        self._timed: dict[str, None] = {}
        """Owners on which time alone can decide otherwise than the last look did. A sweep looks at all of them."""

    async def run(self) -> None:
        """Until cancelled."""
        self._world.dirty.everything = True
        self._tick_due = self._context.clock.monotonic() + TICK_S
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
        """For news or the next tick, which has its own time: steady news must not put off what time alone decides."""
        left_s = self._tick_due - self._context.clock.monotonic()
        if left_s > _RESOLUTION_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._world.wake.wait()
        now = self._context.clock.monotonic()
        if now + _RESOLUTION_S >= self._tick_due:
            self._tick_due = max(self._tick_due + TICK_S, now)
            self._tick()

    def _tick(self) -> None:
        self._ticks += 1
        world = self._world
        if self._context.bus.connected and not self._was_connected:
            world.listen_again()
        self._was_connected = self._context.bus.connected
        world.dirty.nodes.update(dict.fromkeys(world.silent_nodes()))
        if self._timed:
            owners = [spec.object for kind in ("Job", "Deployment") for spec in world.of_kind(kind)]
            world.dirty.owners.update({owner: None for owner in owners if owner in self._timed})
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
        await self._restore()
        await self._nodes(list(dirty.nodes))
        if dirty.policies:
            await self._policies()
        await self._write(list(dirty.pods), self._pod)
        for owner in dirty.owners:
            await self._write([owner], self._owner)
        if dirty.everything:
            await self._write(["expired pods"], self._expired)

    async def _restore(self) -> None:
        """A store that was made anew deletes nothing: what we hold of the old one is written back."""
        lost, writer = self._world.specs.orphans, self._lead.writer
        if not lost or writer is None:
            return
        try:
            count = await writer.restore(dict(lost))
        except ConflictError:
            # Somebody wrote one of them first; the mirror shows it in a moment, and then it is no orphan.
            return
        self._context.log.warning("store_recreated_specs_written_back", count=count)

    async def _write(self, names: Sequence[str], decide: Decide) -> None:
        """In batches; what is left over or new is decided on the next turn, on what the first batch made.

        One object that cannot be written does not hold up the others: halves are tried until it stands alone.
        """
        failed: dict[str, None] = {}
        try:
            done = await self._lead.carry_out(partial(self._decide, names, decide, failed))
        except ApiError as error:
            if error.status not in _HOPELESS:
                raise
            if len(names) == 1:
                self._is_stuck(names[0], error)
                return
            middle = len(names) // 2
            await self._write(names[:middle], decide)
            await self._write(names[middle:], decide)
            return
        for name in names:
            if name not in failed:
                self._stuck.pop(name, None)
        if len(done.changes) == BATCH:
            self._world.dirty.everything = True
            self._world.wake.set()

    def _decide(self, names: Sequence[str], decide: Decide, failed: dict[str, None]) -> Outcome:
        distinct: dict[str, Change] = {}
        for name in names:
            try:
                found = decide(name)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one object, the others go on
                failed[name] = None
                self._is_stuck(name, error)
                continue
            for change in found:
                distinct.setdefault(change.spec.key, change)
        return Outcome(list(distinct.values())[:BATCH])

    def _is_stuck(self, name: str, error: Exception) -> None:
        if self._stuck.get(name) != repr(error):
            self._stuck[name] = repr(error)
            self._context.log.error("object_stuck", object=name, exc_info=error)

    async def _nodes(self, names: Sequence[str]) -> None:
        await self._write(names, self._node)
        for name in names:
            if self._lost_reason(name) is not None:
                self._world.touch_pods(self._world.pods_on(name))

    def _node(self, name: str) -> list[Change]:
        uid = new_uid("Node", None, name, 0, self._operations.seed())
        now_ms, limits = self._context.clock.now_ms(), self._settings.node_limits()
        change = nodes.decide(self._world.watched(name), now_ms, uid, limits)
        return [change] if change is not None else []

    def _lost_reason(self, node: str | None) -> str | None:
        """Why pods of this node start again elsewhere; None while they may still run."""
        if node is None:
            return None
        spec = self._world.find_object("Node", None, node)
        if spec is not None:
            return ReasonCode.NODE_LOST if nodes.is_gone(spec) else None
        watched = self._world.watched(node)
        retired = watched.retired_agent is not None and (
            watched.inventory is None or watched.inventory.agent_id == watched.retired_agent
        )
        listened_ms = self._context.clock.now_ms() - self._world.listening_since_ms
        vanished = not watched.alive and listened_ms >= self._settings.node_limits().lost_ms
        return ReasonCode.NODE_LOST if retired or vanished else None

    def _pod(self, key: str) -> list[Change]:
        spec = self._world.find(key)
        if spec is None:
            return self._adopt(key)
        pod = self._world.pod(spec)
        change = lifecycle.decide(
            pod,
            lost_reason=self._lost_reason(pod.node),
            owner_exists=self._owner_exists(spec),
            now_ms=self._context.clock.now_ms(),
            seed=self._operations.seed(),
        )
        return [change] if change is not None else []

    def _adopt(self, key: str) -> list[Change]:
        """A pod that outlived its store is wanted again, once the one that made it is."""
        spec = self._world.survivor(key)
        if spec is None:
            return []
        if spec.owner is None:
            return [Put(spec)]
        owner = self._owner_spec(spec.owner)
        return [Put(lifecycle.owned_by(spec, owner))] if owner is not None else []

    def _owner_exists(self, spec: Spec) -> bool:
        if spec.owner is None:
            return True
        owner = self._owner_spec(spec.owner)
        return owner is not None and _made_by(owner, spec)

    def _owner_spec(self, owner: str) -> Spec | None:
        kind, namespace, name = owner.split("/", 2)
        found = self._world.find_object(kind, None if namespace == "-" else namespace, name)
        return found if found is not None and found.deletion is None else None

    def _owner(self, owner: str) -> list[Change]:
        self._timed.pop(owner, None)
        spec = self._owner_spec(owner)
        if spec is None or spec.kind not in ("Deployment", "Job"):
            return []
        now_ms, seed = self._context.clock.now_ms(), self._operations.seed()
        decide = workloads.reconcile_job if spec.kind == "Job" else workloads.reconcile_deployment
        adopted = [change for key in self._world.survivors_of(owner) for change in self._adopt(key)]
        if adopted:
            return adopted
        pods = workloads.by_ordinal(spec, self._own_pods(spec))
        changes = decide(spec, pods, partial(self._build, self._operations.demand()), now_ms, seed)
        if changes or workloads.waits_for_time(spec, pods):
            self._timed[owner] = None  # a write that is refused is tried again, too
        return changes

    def _build(self, demand: Demand, owner: Spec, ordinal: int) -> Spec | None:
        report = Report()
        now_ms, seed = self._context.clock.now_ms(), self._operations.seed()
        pod = workloads.build_pod(owner, ordinal, self._world.catalog, now_ms, seed, report, demand)
        if pod is None:
            problems = "; ".join(str(problem) for problem in report.errors)
            self._is_stuck(f"pod {ordinal} of {owner.object}", ApiError(400, "Invalid", problems))
        elif (taken := self._world.find(pod.key)) is not None and not self._owns(owner, taken):
            # Either a user's own pod, or one of an earlier owner of this name that is still leaving.
            message = f"{pod.object} belongs to {taken.owner or 'a user'}; {owner.object} waits for its name"
            self._is_stuck(pod.object, ApiError(409, "NameTaken", message))
            return None
        return pod

    def _own_pods(self, owner: Spec) -> list[PodState]:
        return [pod for pod in self._world.children(owner.object) if self._owns(owner, pod.spec)]

    @staticmethod
    def _owns(owner: Spec, spec: Spec) -> bool:
        return spec.owner == owner.object and _made_by(owner, spec)

    def _expired(self, _name: str) -> list[Change]:
        kept: list[PodState] = [pod for pod in self._world.pods() if pod.spec.terminal_ms and not self._needed(pod)]
        return list(lifecycle.expired(kept, self._context.clock.now_ms(), self._settings.retention()))

    def _needed(self, pod: PodState) -> bool:
        owner = self._owner_spec(pod.spec.owner) if pod.spec.owner is not None else None
        return owner is not None and workloads.needs_ended(owner, pod)

    async def _policies(self) -> None:
        for node in self._world.of_kind("Node"):
            await self._policy(node)
        wanted = {encode_token(node.name): None for node in self._world.of_kind("Node")}
        self._policies_made = {name: made for name, made in self._policies_made.items() if encode_token(name) in wanted}
        for key in sorted(self._world.policies.items):
            if key not in wanted:
                await self._world.policies_bucket.delete(key)
        problems = self._world.slo_problems
        if problems:
            self._context.log.error("slo_config_unreadable", problems=[f"{p.key}: {p.message}" for p in problems])

    async def _policy(self, node: Spec) -> None:
        key = encode_token(node.name)
        try:
            record = self._render(node)
            news = self._world.policies.items.get(key) != record
            value = codec.encode(record) if news else b""
        except Exception as error:  # noqa: BLE001 - one node's annotations must not cost the others their policy
            self._is_stuck(f"policy of {node.name}", error)
            return
        self._stuck.pop(f"policy of {node.name}", None)
        if news:
            revision = await self._world.policies_bucket.put(key, value)
            # The next pass may come before the mirror shows this write; it must not write and tell the same again.
            await self._world.policies.wait_revision(revision)
            await self._tell_policy(record, key, revision)

    def _render(self, node: Spec) -> PolicyRecord:
        inventory = self._world.inventory(node.name)
        facts = slo_config.NodeFacts(
            node.name, node.labels, node.annotations, idle_class=inventory is not None and inventory.idle_class
        )
        policy = self._slo_of(node, facts)
        return PolicyRecord(
            node=node.name,
            slo=policy.slo,
            colocation=policy.colocation,
            sources=policy.sources,
            observe=policy.observe or self._world.observing().node(node.name),
            frozen=self._world.frozen(),
            observe_namespaces=list(self._world.observing().namespaces),
        )

    def _slo_of(self, node: Spec, facts: slo_config.NodeFacts) -> slo_config.Policy:
        """Merged anew only when what it is made from was written anew; a sweep asks for every node."""
        made_from = (node, facts.idle_class, self._world.slo_config)
        known = self._policies_made.get(node.name)
        if known is None or not all(was is now for was, now in zip(known[0], made_from, strict=True)):
            policy = slo_config.render(facts, self._world.slo_config, self._settings.policy)
            known = self._policies_made[node.name] = (made_from, policy)
        return known[1]

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


def _made_by(owner: Spec, spec: Spec) -> bool:
    """An owner of the same name is another one: a new Job must not take the results of the one before it."""
    return spec.owner_uid in (None, owner.uid)
