"""Everything that changes something, for HTTP, the bus and a simulation alike."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cotenant_common.model import labels, resources
from cotenant_common.model.ids import InvalidNameError, object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.app.leadership import Leadership
from cotenant_gateway.app.world import World
from cotenant_gateway.app.writer import BATCH
from cotenant_gateway.config import GatewaySettings
from cotenant_gateway.core import lifecycle, nodes
from cotenant_gateway.core.demand import Demand
from cotenant_gateway.core.errors import ApiError, bad_request, not_found
from cotenant_gateway.core.plan import Applying, Plan, plan
from cotenant_gateway.core.records import Change, PodState, Put, Remove, Spec
from cotenant_gateway.core.validate.kinds import KINDS, Kind, find_kind
from cotenant_gateway.core.validate.quota import Charged, check_delete
from cotenant_gateway.core.validate.schema import did_you_mean
from cotenant_gateway.core.yaml_source import Document, from_data


@dataclass(frozen=True, slots=True)
class Outcome:
    """Changes with the words for whoever asked."""

    changes: Sequence[Change]
    action: str = "unchanged"
    message: str = ""


class Operations:
    def __init__(self, context: ServiceContext, settings: GatewaySettings, world: World, lead: Leadership) -> None:
        self._context = context
        self._settings = settings
        self._world = world
        self._lead = lead

    # Objects

    async def apply_data(self, manifests: Sequence[dict[str, Any]], *, dry_run: bool = False) -> Plan:
        return await self.apply(from_data(manifests), dry_run=dry_run)

    async def apply(self, documents: Sequence[Document], *, dry_run: bool = False) -> Plan:
        """All or nothing; faults are in the plan."""
        return await self._lead.carry_out(lambda: plan(documents, self._applying()), dry_run=dry_run)

    def _applying(self) -> Applying:
        return Applying(
            self._world.find_or_survivor,
            self._world.catalog,
            self._context.clock.now_ms(),
            self.seed(),
            self._settings.runtime,
            self._charges(),
            self.demand(),
        )

    def demand(self) -> Demand:
        """New for every decision: it counts what the decision lets in."""

        def asked_of(quota: str) -> dict[str, int]:
            total: dict[str, int] = {}
            for pod in self._world.pods():
                if not pod.finished and self.quota_of(pod.spec) == quota:
                    total = resources.add(total, pod.spec.pod().requests)
            return total

        return Demand(asked_of)

    def _charges(self) -> Callable[[str], Charged]:
        """Counted once for all quotas of a request, and not at all for a request without any."""

        @cache
        def pods() -> Counter[str | None]:
            return Counter(self.quota_of(pod.spec) for pod in self._world.pods() if not pod.finished)

        return lambda quota: Charged(self._world.quota_used(quota), pods()[quota])

    def quota_of(self, spec: Spec) -> str | None:
        """The quota that a pod is charged to; None while it is the built-in default."""
        found = self._world.catalog.quota_of(spec.namespace or "", spec.labels.get(labels.QUOTA_NAME))
        return found.name if found is not None else None

    def seed(self) -> str:
        """New with every write that the world has seen: a name used again is a new identity, a replay is not."""
        return f"{self._settings.uid_seed}/{self._world.specs.revision}"

    def kind(self, name: str) -> Kind:
        found = find_kind(name)
        if found is None:
            raise ApiError(404, "UnknownKind", f"unknown kind {name!r}{did_you_mean(name, KINDS)}", "kind")
        return found

    def spec(self, kind_name: str, namespace: str | None, name: str) -> Spec:
        """Raise ApiError when there is none."""
        kind = self.kind(kind_name)
        scope = namespace if kind.namespaced else None
        try:
            found = self._world.find_object(kind.name, scope, name)
        except InvalidNameError as error:
            raise bad_request(str(error)) from error
        if found is None:
            raise not_found(object_key(kind.name, scope, name))
        return found

    async def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        force: bool = False,
        grace_s: int | None = None,
        dry_run: bool = False,
        requested_by: str = "user",
    ) -> Outcome:
        def decide() -> Outcome:
            return self._decide_delete(self.spec(kind, namespace, name), force, grace_s, requested_by)

        done = await self._lead.carry_out(decide, dry_run=dry_run)
        inventory = self._world.inventory(name) if self.kind(kind).name == "Node" and not dry_run else None
        if inventory is not None:
            self._world.retired[name] = inventory.agent_id
        return done

    def _decide_delete(self, spec: Spec, force: bool, grace_s: int | None, requested_by: str) -> Outcome:
        match spec.kind:
            case "Pod":
                return self._delete_pod(spec, force, grace_s, requested_by)
            case "Node":
                return self._delete_node(spec)
            case "ElasticQuota":
                self._check_quota_free(spec, force)
        message = "its pods follow" if spec.kind in ("Deployment", "Job") else ""
        return Outcome(
            [Remove(spec, reason=ReasonCode.DELETED, message=f"deleted by {requested_by}")], "deleted", message
        )

    def _delete_pod(self, spec: Spec, force: bool, grace_s: int | None, requested_by: str) -> Outcome:
        pod = self._world.pod(spec)
        change = lifecycle.stop(
            pod,
            f"deleted by {requested_by}",
            requested_by,
            self._context.clock.now_ms(),
            grace_ms=None if grace_s is None else 1000 * grace_s,
            force=force,
        )
        if change is None:
            return Outcome([], "deleting", f"is leaving {pod.node} already")
        if isinstance(change, Remove):
            return Outcome([change], "deleted")
        grace = (change.spec.deletion.grace_ms if change.spec.deletion else 0) // 1000
        return Outcome([change], "deleting", f"{pod.node} stops it within {grace} s")

    def _delete_node(self, spec: Spec) -> Outcome:
        """The machine ends: its pods start again elsewhere in the same write."""
        now_ms, seed = self._context.clock.now_ms(), self.seed()
        moved = [
            lifecycle.decide(pod, lost_reason=ReasonCode.NODE_LOST, owner_exists=True, now_ms=now_ms, seed=seed)
            for pod in self._world.pods_on(spec.name)
        ]
        removal = Remove(spec, ("node.lost",), ReasonCode.NODE_LOST, "deleted by a user")
        changes: list[Change] = [removal, *(change for change in moved if change is not None)]
        again = sum(isinstance(change, Put) and change.spec.deletion is None for change in changes)
        # The reconciler finds the pods beyond one batch: their node is gone.
        return Outcome(changes[:BATCH], "deleted", f"{again} pods start again elsewhere")

    def _check_quota_free(self, spec: Spec, force: bool) -> None:
        users = [] if force else [pod.spec for pod in self._world.pods() if self._uses(pod, spec.name)]
        problem = check_delete(spec.name, self._world.catalog.quotas(), len(users))
        if problem is not None:
            hint = f" (such as {users[0].object}), or use force" if users else ""
            raise ApiError(409, "InUse", f"{problem}{hint}")

    @staticmethod
    def _uses(pod: PodState, quota: str) -> bool:
        return not pod.finished and pod.spec.labels.get(labels.QUOTA_NAME) == quota

    # Nodes

    async def cordon(self, node: str, *, unschedulable: bool, dry_run: bool = False) -> Outcome:
        def decide() -> Outcome:
            change = nodes.cordon(self.spec("Node", None, node), unschedulable=unschedulable)
            word = "cordoned" if unschedulable else "uncordoned"
            return Outcome([], "unchanged", f"was {word} already") if change is None else Outcome([change], word)

        return await self._lead.carry_out(decide, dry_run=dry_run)
