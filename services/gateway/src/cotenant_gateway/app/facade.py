"""Operations and readings in the shape that HTTP gives away."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cotenant_common.contracts.messages.base import PodRef
from cotenant_common.contracts.messages.commands import EvictRequest
from cotenant_common.model.ids import is_dns_subdomain, object_key
from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.adapters.events import EventFilter, Item, Start, follow
from cotenant_gateway.adapters.records import to_evict_reply, to_gate_request
from cotenant_gateway.app import observing
from cotenant_gateway.app.brakes import Brakes
from cotenant_gateway.app.evictions import Evictions, NodeDrain
from cotenant_gateway.app.operations import Operations, Outcome
from cotenant_gateway.app.reading import Reading
from cotenant_gateway.app.snapshot import Snapshots
from cotenant_gateway.app.wire import apply_results
from cotenant_gateway.app.world import World
from cotenant_gateway.core import observe
from cotenant_gateway.core.errors import ApiError, bad_request, not_found
from cotenant_gateway.core.observe import Observing
from cotenant_gateway.core.records import Spec
from cotenant_gateway.core.removal import Request
from cotenant_gateway.core.validate.kinds import Kind
from cotenant_gateway.core.validate.schema import did_you_mean
from cotenant_gateway.core.yaml_source import Document

Json = dict[str, Any]

_SPAN: Final = re.compile(r"^(\d{1,9})(ms|s|m|h|d)$")
_SEQUENCE_DIGITS: Final = 18
_SPAN_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WATCH_QUEUE: Final = 10_000
_EVICT_FIELDS: Final = (
    "id", "kind", "namespace", "name", "victims", "reason", "message", "beneficiary", "landing_node",
    "landing_reservation", "grace_s", "deadline_ms", "numbers", "dryRun", "dry_run",
)  # fmt: skip
_EVICT_KINDS: Final = ("move", "preempt", "reclaim", "emergency", "drain")
_LARGEST: Final = 10**15
"""Milliseconds of 30,000 years."""
_SHOWN_FAULTS: Final = 3


class Facade:
    """Keeps the promises of ``adapters.http.port.Api``."""

    def __init__(
        self,
        context: ServiceContext,
        world: World,
        operations: Operations,
        reading: Reading,
        snapshots: Snapshots,
        evictions: Evictions,
        brakes: Brakes,
    ) -> None:
        self._context = context
        self._world = world
        self._operations = operations
        self._reading = reading
        self._evictions = evictions
        self._brakes = brakes
        self.objects = reading.objects
        self.object = reading.object
        self.pods = reading.pods
        self.nodes = reading.nodes
        self.top = reading.top
        self.policy = reading.policy
        self.status = reading.status
        self.quota_tree = reading.quota_tree
        self.explain = reading.explain
        self.why_not = reading.why_not
        self.logs = reading.logs
        self.snapshot = snapshots.take
        self._evict_count = 0

    async def apply(self, documents: Sequence[Document], *, dry_run: bool) -> tuple[int, Json]:
        planned = await self._operations.apply(documents, dry_run=dry_run)
        results = [result.model_dump() for result in apply_results(planned)]
        faults = planned.faults
        if not faults:
            return 200, {"results": results, "dry_run": dry_run}
        shown = "; ".join(str(fault) for fault in faults[:_SHOWN_FAULTS])
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        details = {
            "errors": [{"document": f.document, "line": f.line, "field": f.field, "message": f.message} for f in faults]
        }
        error = ApiError(400, "Invalid", f"nothing was changed: {shown}{more}", faults[0].field or None, details)
        return 400, {**error.body(), "message": error.message, "results": results}

    async def delete(
        self, kind: str, namespace: str | None, name: str, *, force: bool, grace_s: int | None, dry_run: bool
    ) -> Json:
        outcome = await self._operations.delete(kind, namespace, name, force=force, grace_s=grace_s, dry_run=dry_run)
        found = self._operations.kind(kind)
        return _outcome(object_key(found.name, namespace if found.namespaced else None, name), outcome, dry_run)

    def node(self, name: str) -> Json:
        if name not in self._world.node_names():
            raise not_found(f"node {name}")
        return self._reading.node(name)

    def healthy(self) -> tuple[bool, Json]:
        snapshot = self._context.health.snapshot()
        body = {"service": "gateway", "alive": snapshot.alive, "ready": snapshot.ready, "reason": snapshot.reason}
        return snapshot.alive, body

    async def evict(self, body: Mapping[str, Any], *, dry_run: bool) -> tuple[int, Json]:
        message = self._evict_request(
            body, dry_run=dry_run or body.get("dryRun") is True or body.get("dry_run") is True
        )
        request = to_gate_request(message)
        decision = await self._evictions.evict(request, dry_run=message.dry_run)
        reply = to_evict_reply(message.id, decision).model_dump() | {"dry_run": message.dry_run}
        if decision.granted:
            return 200, reply
        status = 404 if decision.reason is ReasonCode.NOT_FOUND else 409
        error = ApiError(status, str(decision.reason), decision.message)
        return status, {**reply, **error.body()}

    def _evict_request(self, body: Mapping[str, Any], *, dry_run: bool) -> EvictRequest:
        for name in body:
            if name not in _EVICT_FIELDS:
                raise bad_request(f"unknown field{did_you_mean(name, _EVICT_FIELDS)}", name)
        kind = body.get("kind", "drain")
        if kind not in _EVICT_KINDS:
            raise bad_request(f"expected {' or '.join(_EVICT_KINDS)}, got {kind!r}", "kind")
        victims = body.get("victims", [{"namespace": body.get("namespace", "default"), "name": body.get("name")}])
        if not isinstance(victims, list) or not victims:
            raise bad_request("expected a list of {namespace, name}", "victims")
        for name in ("id", "reason", "message", "beneficiary", "landing_node", "landing_reservation"):
            if not isinstance(body.get(name, ""), str):
                raise bad_request(f"expected a string, got {body[name]!r}", name)
        grace_s, deadline_ms = _whole(body, "grace_s"), _whole(body, "deadline_ms")
        numbers = body.get("numbers") or {}
        if not isinstance(numbers, dict):
            raise bad_request("expected an object", "numbers")
        return EvictRequest(
            id=body.get("id") or self._command_id(),
            kind=kind,
            victims=[self._victim(entry, at) for at, entry in enumerate(victims)],
            requested_by="user",
            reason=body.get("reason") or ReasonCode.DRAINED,
            message=body.get("message") or "asked for by a user",
            numbers=numbers,
            beneficiary=body.get("beneficiary"),
            landing_node=body.get("landing_node"),
            landing_reservation=body.get("landing_reservation"),
            grace_ms=None if grace_s is None else 1000 * grace_s,
            deadline_ms=deadline_ms,
            dry_run=dry_run,
        )

    def _victim(self, entry: Any, at: int) -> PodRef:
        """By name, or by uid where the caller means one incarnation."""
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise bad_request("required: the name of the pod", "name" if at == 0 else f"victims[{at}].name")
        namespace = str(entry.get("namespace") or "default")
        spec = self._operations.spec("Pod", namespace, entry["name"])
        uid = str(entry.get("uid") or spec.uid)
        return PodRef(uid=uid, namespace=namespace, name=spec.name, node=self._world.pod(spec).node)

    def _command_id(self) -> str:
        self._evict_count += 1
        return f"http/{self._context.instance}/{self._context.clock.now_ms()}/{self._evict_count}"

    async def cordon(self, node: str, *, unschedulable: bool, dry_run: bool) -> Json:
        outcome = await self._operations.cordon(node, unschedulable=unschedulable, dry_run=dry_run)
        return _outcome(object_key("Node", None, node), outcome, dry_run)

    async def drain(self, node: str, *, message: str, grace_s: int | None, dry_run: bool) -> Json:
        if node not in self._world.node_names():
            raise not_found(f"node {node}")
        asked = Request(
            id=self._command_id(),
            kind="drain",
            victims=(),
            requested_by="user",
            reason=ReasonCode.DRAINED,
            message=message,
            grace_ms=None if grace_s is None else 1000 * grace_s,
        )
        return _drained(node, await self._evictions.drain(node, asked, dry_run=dry_run), dry_run)

    async def freeze(self, reason: str, by: str, *, dry_run: bool) -> Json:
        return _outcome("", await self._brakes.freeze(reason, by, dry_run=dry_run), dry_run)

    async def unfreeze(self, by: str, *, dry_run: bool) -> Json:
        return _outcome("", await self._brakes.unfreeze(by, dry_run=dry_run), dry_run)

    async def observe(self, body: Mapping[str, Any], *, stop: bool, dry_run: bool) -> Json:
        return _outcome("", await self._brakes.observe(_scope(body), stop=stop, dry_run=dry_run), dry_run)

    def observed(self) -> Json:
        return observing.report(self._world, self._evictions)

    # Streams

    def watch(self, kind: str, namespace: str | None) -> AsyncIterator[Json]:
        """What there is, a mark, then every change. A reader that is too slow is told and let go."""
        return self._watch(self._operations.kind(kind), namespace)  # an unknown kind still gets a status

    async def _watch(self, found: Kind, namespace: str | None) -> AsyncIterator[Json]:
        queue: asyncio.Queue[tuple[str, Spec]] = asyncio.Queue(_WATCH_QUEUE)
        missed = False

        def on_change(_key: str, before: Spec | None, after: Spec | None) -> None:
            nonlocal missed
            spec = after or before
            if spec is None or spec.kind != found.name or (namespace is not None and spec.namespace != namespace):
                return
            change = "DELETED" if after is None else "ADDED" if before is None else "MODIFIED"
            if queue.full():
                missed = True
            else:
                queue.put_nowait((change, spec))  # rendered by the reader's own task, at the reader's pace

        self._world.listeners.append(on_change)
        try:
            for item in self._reading.objects(found.name, namespace, None):
                yield {"type": "ADDED", "object": item}
            yield {"type": "SYNCED", "revision": self._world.specs.revision}
            while not missed:
                change, spec = await queue.get()
                yield {"type": change, "object": self._reading.object_json(spec)}
            yield {"type": "ERROR", "message": "this reader is too slow and has missed changes; watch again"}
        finally:
            self._world.listeners.remove(on_change)

    def start_of(self, since: str | None, last_event_id: str | None) -> Start:
        """``Last-Event-ID`` wins: a browser sends the address it began with again after every break."""
        text = last_event_id or since
        if not text:
            return Start()
        if text.isascii() and text.isdigit() and len(text) <= _SEQUENCE_DIGITS:
            return Start(after_sequence=int(text))
        if last_event_id:
            raise bad_request(f"expected the id of an event, got {text!r}", "Last-Event-ID")
        span = _SPAN.match(text)
        if span is not None:
            return Start(since_ms=max(0, self._context.clock.now_ms() - int(span[1]) * _SPAN_MS[span[2]]))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise bad_request(
                f"expected a sequence, a span such as 10m, or an RFC 3339 time, got {text!r}", "since"
            ) from error
        if moment.tzinfo is None:
            raise bad_request(f"expected a time with its zone, such as {text}Z", "since")
        return Start(since_ms=max(0, round(moment.timestamp() * 1000)))

    def events(self, start: Start, wanted: EventFilter, *, forever: bool) -> AsyncIterator[Item]:
        return follow(self._context.bus, start, wanted, forever=forever)


def _outcome(name: str, outcome: Outcome, dry_run: bool) -> Json:
    place = {"object": name} if name else {}
    return {**place, "action": outcome.action, "message": outcome.message, "dry_run": dry_run}


def _drained(node: str, done: NodeDrain, dry_run: bool) -> Json:
    pods = [
        {
            "pod": f"{verdict.victim.namespace}/{verdict.victim.name}",
            "granted": verdict.refusal is None,
            "reason": verdict.refusal.reason if verdict.refusal else None,
            "message": verdict.refusal.message if verdict.refusal else verdict.message,
            "numbers": dict(decision.numbers),
            "retry_after_ms": verdict.refusal.retry_ms if verdict.refusal else None,
        }
        for decision in done.decisions
        for verdict in decision.verdicts
    ]
    return {"object": object_key("Node", None, node), "remaining": done.remaining, "pods": pods, "dry_run": dry_run}


def _scope(body: Mapping[str, Any]) -> Observing:
    """Raise ApiError for anything but lists of names that can exist; nothing named is everything."""
    for field in body:
        if field not in (observe.NODES, observe.NAMESPACES):
            raise bad_request(f"unknown field{did_you_mean(field, (observe.NODES, observe.NAMESPACES))}", field)
    lists = {field: body.get(field) or [] for field in (observe.NODES, observe.NAMESPACES)}
    for field, names in lists.items():
        if not isinstance(names, list) or not all(isinstance(n, str) and is_dns_subdomain(n) for n in names):
            raise bad_request(f"expected a list of names, got {names!r}", field)
    everything = not any(lists.values())
    return Observing(everything, tuple(sorted(lists[observe.NODES])), tuple(sorted(lists[observe.NAMESPACES])))


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST):
        raise bad_request(f"expected a whole number from 0 to {_LARGEST}, got {value!r}", name)
    return value
