"""Everything that only looks: a standby answers these as well as the leader."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from cotenant_common.bus.protocol import BusError, RemoteError
from cotenant_common.contracts import subjects
from cotenant_common.contracts.messages.commands import (
    ExplainReply,
    ExplainRequest,
    LogsReply,
    LogsRequest,
    QuotaTreeReply,
    QuotaTreeRequest,
    WhyNotReply,
    WhyNotRequest,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.model.ids import InvalidNameError, encode_token
from cotenant_common.runtime import requests
from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.adapters.quotas import to_quotas
from cotenant_gateway.app.leadership import Leadership
from cotenant_gateway.app.operations import Operations
from cotenant_gateway.app.world import World
from cotenant_gateway.core import names, quota_views, views
from cotenant_gateway.core.errors import ApiError, bad_request, not_found, unavailable
from cotenant_gateway.core.quota_views import Quotas
from cotenant_gateway.core.records import PodState, Spec
from cotenant_gateway.core.validate.meta import parse_selector, selector_matches

Json = dict[str, Any]

_ASK_S: Final = 2.0
_FOLLOW_PAUSE_S: Final = 0.5
_USAGE_FRESH_MS: Final = 15_000
SERVICES: Final = ("gateway", "scheduler", "quota", "descheduler", "profiler")
"""Those that lead by a lease; agents are the nodes' own list."""


class Reading:
    def __init__(self, context: ServiceContext, world: World, operations: Operations, lead: Leadership) -> None:
        self._context = context
        self._world = world
        self._operations = operations
        self._lead = lead
        self._quotas_seen: tuple[int, Quotas] | None = None

    # Objects

    def objects(self, kind_name: str, namespace: str | None, selector: str | None) -> list[Json]:
        kind = self._operations.kind(kind_name)
        wanted = _selector(selector)
        return [
            self.object_json(spec)
            for spec in self._world.of_kind(kind.name)
            if (namespace is None or spec.namespace == namespace) and selector_matches(wanted, spec.labels)
        ]

    def object(self, kind: str, namespace: str | None, name: str) -> Json:
        return self.object_json(self._operations.spec(kind, namespace, name))

    def object_json(self, spec: Spec) -> Json:
        if spec.kind == "Pod":
            pod = self._world.pod(spec)
            phase, reason, message = views.pod_state(pod, self._world.waiting(spec.uid))
            status = {"phase": phase, "reason": reason, "message": message, "node": pod.node, "ready": pod.ready}
            return views.object_view(spec, status)
        if spec.kind in ("Deployment", "Job"):
            return views.object_view(spec, views.workload_status(spec, self._world.children(spec.object)))
        if spec.kind == "ElasticQuota" and (state := self._quotas().states.get(spec.name)) is not None:
            return views.object_view(spec, quota_views.object_status(state))
        return views.object_view(spec)

    # Pods and nodes

    def pods(self, namespace: str | None = None, selector: str | None = None, node: str | None = None) -> list[Json]:
        wanted = _selector(selector)
        usage = self._pod_usage()
        return [
            self._pod_json(pod, usage)
            for pod in self._world.pods()
            if (namespace is None or pod.spec.namespace == namespace)
            and (node is None or pod.node == node)
            and selector_matches(wanted, pod.spec.labels)
        ]

    def _pod_json(self, pod: PodState, usage: Mapping[str, PodUsage]) -> Json:
        uid = pod.spec.uid
        binding = self._world.binding(uid)
        return views.pod_view(
            pod,
            self._world.waiting(uid),
            self._context.clock.now_ms(),
            _amounts(usage.get(uid)),
            binding.bound_ms if binding else None,
        )

    def nodes(self) -> list[Json]:
        return [self.node(name) for name in self._world.node_names()]

    def node(self, name: str) -> Json:
        now_ms = self._context.clock.now_ms()
        usage = self._world.usage.get(name)
        sold = self._world.overcommit.items.get(encode_token(name))
        facts = views.NodeFacts(
            spec=self._world.find_object("Node", None, name),
            inventory=self._world.inventory(name),
            usage=_amounts(usage.usage) if usage else None,
            system=_amounts(usage.system) if usage else None,
            batch=sold.batch if sold else None,
            mid=sold.mid if sold else None,
            sold_message=sold.message if sold else "",
            be_limit_milli=usage.be_limit_milli if usage else None,
            be_limit_message=usage.be_limit_message if usage else None,
            pods=self._world.pods_on(name),
            usage_age_ms=now_ms - usage.at_ms if usage else None,
            pressure=_pressure(usage),
        )
        return views.node_view(facts, name, now_ms)

    def top(self, what: str) -> list[Json]:
        match what:
            case "nodes":
                return sorted(self.nodes(), key=_by_use)
            case "pods":
                return sorted((pod for pod in self.pods() if pod["usage"] is not None), key=_by_use)
            case "quotas":
                return quota_views.rows(self._quotas())
        raise ApiError(404, "NotFound", f"expected nodes, pods or quotas, got {what!r}")

    def _pod_usage(self) -> dict[str, PodUsage]:
        oldest = self._context.clock.now_ms() - _USAGE_FRESH_MS
        return {pod.uid: pod for usage in self._world.usage.values() if usage.at_ms >= oldest for pod in usage.pods}

    def policy(self, node: str) -> Json:
        record = self._world.policies.items.get(_token(node))
        if record is None:
            raise not_found(f"a policy of node {node}")
        return record.model_dump()

    # What others know

    async def quota_tree(self, tree: str | None) -> Json:
        """All trees, or the one that is named. Raise ApiError when there is none of that name."""
        found = await self._quota_trees(tree)
        if tree is not None and not found["trees"]:
            raise not_found(f"a tree of quotas {tree}")
        return found

    async def _quota_trees(self, tree: str | None) -> Json:
        """From the quota service; while it is away, from what it last wrote."""
        try:
            reply = await requests.call(
                self._context.bus, subjects.QUOTA_TREE, QuotaTreeRequest(tree=tree), QuotaTreeReply, _ASK_S, retries=0
            )
        except BusError as error:
            trees = [t.model_dump() for _, t in sorted(self._world.quotas.items.items()) if tree in (None, t.tree)]
            return {"trees": trees, "source": "record", "note": f"the quota service does not answer ({error})"}
        return {"trees": reply.trees, "source": "quota"}

    async def explain(self, namespace: str, name: str) -> Json:
        pod = self._world.pod(self._operations.spec("Pod", namespace, name))
        view = self._pod_json(pod, self._pod_usage())
        scheduler, note = await self._ask_scheduler(namespace, name)
        return {
            "pod": view,
            "state": view["phase"],
            "reason": view["reason"],
            "message": view["message"],
            "scheduler": scheduler,
            "scheduler_note": note,
            "quota": self._quota_story(pod) if pod.node is None and not pod.finished else None,
            "node": self.node(pod.node) if pod.node else None,
            "story": views.story(pod),
        }

    def _quotas(self) -> Quotas:
        """Made once for each news of a tree: a list of all quotas asks for it as often as there are quotas."""
        revision = self._world.quotas.revision
        if self._quotas_seen is None or self._quotas_seen[0] != revision:
            made = to_quotas(tree for _, tree in sorted(self._world.quotas.items.items()))
            self._quotas_seen = (revision, made)
        return self._quotas_seen[1]

    def _quota_story(self, pod: PodState) -> Json | None:
        """What the quota of a waiting pod lacks, and who holds it."""
        quota = self._operations.quota_of(pod.spec)
        return None if quota is None else quota_views.what_it_lacks(self._quotas(), quota, pod.spec.pod().requests)

    async def _ask_scheduler(self, namespace: str, name: str) -> tuple[Json | None, str | None]:
        request = ExplainRequest(namespace=namespace, name=name)
        try:
            reply = await requests.call(
                self._context.bus, subjects.SCHEDULER_EXPLAIN, request, ExplainReply, _ASK_S, retries=0
            )
        except BusError as error:
            spec = self._operations.spec("Pod", namespace, name)
            record = self._world.sched.items.get(spec.uid)
            note = f"the scheduler does not answer ({error}); this is what it last wrote"
            return (record.model_dump() if record else None), note
        return reply.model_dump(), None

    async def why_not(self, node: str, namespace: str, name: str) -> Json:
        self._operations.spec("Pod", namespace, name)
        if node not in self._world.node_names():
            raise not_found(f"node {node}")
        request = WhyNotRequest(namespace=namespace, name=name, node=node)
        try:
            reply = await requests.call(
                self._context.bus, subjects.SCHEDULER_WHY_NOT, request, WhyNotReply, _ASK_S, retries=0
            )
        except RemoteError as error:
            raise ApiError(502, "SchedulerFailed", f"the scheduler could not say: {error}") from error
        except BusError as error:
            raise unavailable(f"the scheduler does not answer: {error}") from error
        return reply.model_dump()

    # Logs

    async def logs(
        self, namespace: str, name: str, *, container: str | None, tail: int | None, follow: bool
    ) -> AsyncIterator[str]:
        """Pieces as they come; the first answer is awaited here, so that an error still has a status."""
        pod = self._world.pod(self._operations.spec("Pod", namespace, name))
        if pod.node is None:
            _, _, message = views.pod_state(pod, self._world.waiting(pod.spec.uid))
            raise ApiError(409, "NotStarted", f"pod {namespace}/{name} has not started: {message}")
        first = await self._ask_logs(pod.node, LogsRequest(uid=pod.spec.uid, container=container, tail_lines=tail))
        if not first.found:
            raise ApiError(404, "NotFound", first.message or f"{pod.node} has no log of pod {namespace}/{name}")
        return self._follow(pod.node, pod.spec.uid, container, first, follow=follow)

    async def _follow(
        self, node: str, uid: str, container: str | None, reply: LogsReply, *, follow: bool
    ) -> AsyncIterator[str]:
        while True:
            if reply.text:
                yield reply.text
            more = bool(reply.text) and reply.cursor is not None
            if not reply.found or not (more or (follow and reply.running)):
                return
            if not more:
                await asyncio.sleep(_FOLLOW_PAUSE_S)
            reply = await self._ask_logs(node, LogsRequest(uid=uid, container=container, after=reply.cursor))

    async def _ask_logs(self, node: str, request: LogsRequest) -> LogsReply:
        try:
            return await requests.call(
                self._context.bus, subjects.AGENT_LOGS, request, LogsReply, _ASK_S, retries=1, node=node
            )
        except RemoteError as error:
            raise ApiError(502, "AgentFailed", f"the agent of {node} could not read the log: {error}") from error
        except BusError as error:
            raise unavailable(f"the agent of {node} does not answer: {error}") from error

    # The whole

    def status(self) -> Json:
        pods = [views.pod_state(pod, None)[0] for pod in self._world.pods()]
        phases = {phase: pods.count(phase) for phase in sorted(dict.fromkeys(pods))}
        node_list = self.nodes()
        return {
            "leader": self._lead.writer is not None,
            "instance": self._context.instance,
            "bus": {"connected": self._context.bus.connected, "specs_revision": self._world.specs.revision},
            "ready": self._context.health.ready,
            "reason": self._context.health.reason,
            "frozen": self._world.frozen(),
            "freeze": self._world.config_data(names.FREEZE),
            "observing": self._world.observing().to_data() or None,
            "services": self._services(),
            "nodes": {"total": len(node_list), "ready": sum(node["ready"] for node in node_list)},
            "pods": {"total": len(pods), **phases},
            "orphans": len(self._world.specs.orphans),
            "survivors": [
                {"pod": spec.object, "uid": spec.uid, "node": spec.body.get("nodeName"), "owner": spec.owner}
                for spec in self._world.survivors()
            ],
        }

    def _services(self) -> list[Json]:
        held = {lease.service: lease for lease in self._world.leases.items.values()}
        known = [*SERVICES, *sorted(name for name in held if name not in SERVICES)]
        return [_service_json(name, held[name].model_dump() if name in held else None) for name in known]


def _service_json(name: str, lease: Json | None) -> Json:
    if lease is None:
        return {"service": name, "holder": None, "state": "no holder of its lease is known"}
    return {"service": name, "holder": lease["holder"], "epoch": lease["epoch"], "state": "leads"}


def _selector(text: str | None) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        return parse_selector(text)
    except ValueError as error:
        raise bad_request(str(error), "selector") from error


def _token(name: str) -> str:
    try:
        return encode_token(name)
    except InvalidNameError as error:
        raise bad_request(str(error)) from error


def _amounts(usage: Usage | PodUsage | None) -> views.Amounts | None:
    return views.Amounts(usage.cpu_milli, usage.memory_bytes) if usage is not None else None


def _pressure(usage: NodeUsage | None) -> dict[str, float | None]:
    if usage is None:
        return {}
    return {
        "cpu": usage.cpu_pressure_some,
        "memory": usage.memory_pressure_some,
        "io": usage.io_pressure_some,
        "run_queue_wait_ms": usage.run_queue_wait_ms,
    }


def _by_use(view: Mapping[str, Any]) -> tuple[int, str]:
    usage = view.get("usage") or {}
    return -(usage.get("cpu") or 0), str(view["name"])
