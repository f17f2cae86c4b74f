"""How each kind of thing looks in a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cotenant.cli import output, quota_views
from cotenant.cli.output import Column, Row, field
from cotenant.errors import NotFoundError

if TYPE_CHECKING:
    from cotenant.client import CotenantClient


def name_of(row: Row) -> str:
    """Views carry ``name``; manifests carry ``metadata.name``."""
    return str(row.get("name") or metadata(row).get("name") or "")


def metadata(row: Row) -> Mapping[str, Any]:
    found = row.get("metadata")
    return found if isinstance(found, Mapping) else {}


def object_name(row: Row) -> str:
    return f"{str(row.get('kind') or '?').lower()}/{name_of(row)}"


def resource_text(values: Mapping[str, int] | None) -> str:
    return output.resources(values) or output.MISSING


def _batch(row: Row, name: str) -> int | None:
    batch = row.get("batch")
    if not isinstance(batch, Mapping):
        return None
    value = batch.get(name, batch.get(f"kubernetes.io/batch-{name}"))
    return None if value is None else int(value)


def _status(row: Row) -> Mapping[str, Any]:
    return row.get("status") or {}


def _spec(row: Row) -> Mapping[str, Any]:
    return row.get("spec") or {}


def _created(row: Row) -> str | None:
    if row.get("created_ms") is not None:
        return output.age(row["created_ms"])
    stamp = metadata(row).get("creationTimestamp")
    return output.age(datetime.fromisoformat(str(stamp)).timestamp() * 1000) if stamp else None


_NAMESPACE: Final = Column("NAMESPACE", lambda row: row.get("namespace") or metadata(row).get("namespace"))
_NAME: Final = Column("NAME", name_of)

_POD: Final = (
    _NAME,
    field("PHASE", "phase"),
    field("READY", "ready"),
    Column("QOS", lambda row: row.get("qos")),
    Column("PRIORITY", lambda row: str(row.get("band") or "").removeprefix("koord-"), wide=True),
    field("NODE", "node"),
    field("RESTARTS", "restarts", wide=True),
    Column("REQUESTS", lambda row: output.resources(row.get("requests")), wide=True),
    Column("AGE", lambda row: output.age(row.get("created_ms"))),
    Column("REASON", lambda row: row.get("reason") if row.get("phase") != "Running" else None),
    field("MESSAGE", "message", wide=True),
    field("UID", "uid", wide=True),
)
_NODE: Final = (
    _NAME,
    Column(
        "STATE",
        lambda row: ("Ready" if row.get("ready") else "NotReady") + (",cordoned" if row.get("unschedulable") else ""),
    ),
    Column("CPU", lambda row: output.cpu((row.get("allocatable") or {}).get("cpu"))),
    Column("MEMORY", lambda row: output.memory((row.get("allocatable") or {}).get("memory"))),
    Column("BATCH-CPU", lambda row: output.cpu(_batch(row, "cpu"))),
    Column("BATCH-MEMORY", lambda row: output.memory(_batch(row, "memory"))),
    field("PODS", "pods"),
    Column("AGE", lambda row: output.age(row.get("created_ms"))),
    Column("BE-LIMIT", lambda row: output.cpu(row.get("be_limit_milli")), wide=True),
    Column("BATCH", lambda row: row.get("overcommit_message"), wide=True),
    Column("TAINTS", lambda row: ", ".join(str(taint.get("key")) for taint in row.get("taints") or ()), wide=True),
)
_DEPLOYMENT: Final = (
    _NAME,
    Column("READY", lambda row: f"{_status(row).get('readyReplicas') or 0}/{_spec(row).get('replicas', 1)}"),
    Column("AGE", _created),
)
_JOB: Final = (
    _NAME,
    Column("COMPLETIONS", lambda row: f"{_status(row).get('succeeded') or 0}/{_spec(row).get('completions', 1)}"),
    Column("ACTIVE", lambda row: _status(row).get("active") or 0),
    Column("FAILED", lambda row: _status(row).get("failed") or 0),
    Column("AGE", _created),
)
_QUOTA: Final = (_NAME, *quota_views.OBJECT_COLUMNS, Column("AGE", _created))
_OTHER: Final = (_NAME, Column("AGE", _created))


def columns(kind: str, *, namespaces: bool) -> Sequence[Column]:
    found = {"Pod": _POD, "Node": _NODE, "Deployment": _DEPLOYMENT, "Job": _JOB, "ElasticQuota": _QUOTA}.get(
        kind, _OTHER
    )
    return (_NAMESPACE, *found) if namespaces and kind != "Node" else found


def _usage(row: Row, name: str) -> Any:
    return (row.get("usage") or {}).get(name)


TOP_COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "nodes": (
        _NAME,
        Column("CPU", lambda row: output.cpu(_usage(row, "cpu"))),
        Column("CPU%", lambda row: _percent(_usage(row, "cpu"), (row.get("capacity") or {}).get("cpu"))),
        Column("MEMORY", lambda row: output.memory(_usage(row, "memory"))),
        Column("MEMORY%", lambda row: _percent(_usage(row, "memory"), (row.get("capacity") or {}).get("memory"))),
        Column("BATCH-CPU", lambda row: output.cpu(_batch(row, "cpu"))),
        Column("BATCH-MEMORY", lambda row: output.memory(_batch(row, "memory"))),
    ),
    "pods": (
        _NAMESPACE,
        _NAME,
        field("QOS", "qos"),
        Column("CPU", lambda row: output.cpu(_usage(row, "cpu"))),
        Column("MEMORY", lambda row: output.memory(_usage(row, "memory"))),
        field("NODE", "node"),
    ),
    "quotas": quota_views.TOP_COLUMNS,
}


def _percent(part: Any, whole: Any) -> str | None:
    return f"{100 * int(part) / int(whole):.0f}%" if part is not None and whole else None


def explain_lines(name: str, reply: Mapping[str, Any]) -> Iterable[str]:
    """The story of a pod: state, counts per reason, what would help, what happened before."""
    yield f"pod/{name}: {reply.get('state')}" + (f" ({reply['reason']})" if reply.get("reason") else "")
    node = reply.get("node") or {}
    if node:
        yield f"  node: {name_of(node)}"
    if reply.get("message"):
        yield f"  {reply['message']}"
    if reply.get("state") == "Running" and (reply.get("pod") or {}).get("ready") is False:
        yield "  not ready: a container is starting, or its readiness probe fails"
    if reply.get("scheduler_note"):
        yield f"  {reply['scheduler_note']}"
    yield from _scheduler_lines(reply.get("scheduler") or {}, placed=bool(node))
    for sentence in (reply.get("quota") or {}).get("sentences") or ():
        yield f"  {sentence}"
    for step in reply.get("story") or ():
        reason = f" {step['reason']}" if step.get("reason") else ""
        yield f"  {clock(step.get('at_ms'))}  {step.get('type')}{reason}: {step.get('message') or ''}"


def _scheduler_lines(reply: Mapping[str, Any], *, placed: bool) -> Iterable[str]:
    refusals = () if placed else reply.get("refusals") or ()
    if refusals:
        total = sum(int(entry.get("nodes") or 0) for entry in refusals)
        yield f"  refused by {total} of {reply.get('nodes_total')} nodes:"
    for entry in refusals:
        yield f"    {entry.get('nodes')} × {entry.get('reason')}: {entry.get('message')}"
    quota = reply.get("quota") or {}
    if quota.get("used") or quota.get("runtime"):
        used, runtime = resource_text(quota.get("used")), resource_text(quota.get("runtime"))
        yield f"  quota {quota.get('name')}: used {used}, runtime {runtime}"
    for text in () if placed else reply.get("helps") or ():
        yield f"  would help: {text}"
    scores = reply.get("scores") or {}
    if scores:
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:3]
        yield "  scores: " + ", ".join(f"{node} {score}" for node, score in best)


def why_not_lines(node: str, name: str, reply: Mapping[str, Any]) -> Iterable[str]:
    yield f"pod/{name} on node/{node}: {'fits' if reply.get('fits') else 'does not fit'}"
    if reply.get("message"):
        yield f"  {reply['message']}"
    for entry in reply.get("reasons") or ():
        yield f"  {entry.get('reason')}: {entry.get('message')}"


def clock(at_ms: Any) -> str:
    if at_ms is None:
        return output.MISSING
    return datetime.fromtimestamp(int(at_ms) / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]


def event_line(event: Mapping[str, Any]) -> str:
    reason = f"  {event['reason']}" if event.get("reason") else ""
    head = f"{clock(event.get('at_ms'))}  {event.get('type'):<22} {event.get('object')}"
    return f"{head}{reason}  {event.get('message') or ''}".rstrip()


async def describe(client: "CotenantClient", kind: str, name: str, namespace: str | None) -> dict[str, Any]:
    """The object as it was asked for, its view, its explanation and its events."""
    found: dict[str, Any] = {}
    if kind == "Node":
        found["status"] = next((row for row in await client.nodes() if name_of(row) == name), None)
        if found["status"] is None:
            raise NotFoundError(f"no node {name!r}")
        found["policy"] = await client.policy(name)
    else:
        found["object"] = await client.get(kind, name, namespace)
    if kind == "Pod":
        found["status"] = await client.pod(name, namespace or "default")
        found["explain"] = list(explain_lines(name, await client.explain(name, namespace or "default")))
    key = f"{kind}/{namespace or '-'}/{name}"
    found["events"] = [
        event_line(event) async for event in client.events(follow=False, since="24h") if event.get("object") == key
    ]
    return found
