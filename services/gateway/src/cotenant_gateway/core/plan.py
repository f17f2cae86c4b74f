"""What applying some manifests would do: all of it, or nothing and every reason why not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from cotenant_common.model.ids import InvalidNameError, object_key, pod_uid, spec_key
from cotenant_gateway.core import names, nodes, slo_config
from cotenant_gateway.core.admission import DEFAULT_NAMESPACE, admit_pod, check_pod_update
from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.demand import Demand
from cotenant_gateway.core.digest import digest
from cotenant_gateway.core.records import Put, Spec
from cotenant_gateway.core.validate.kinds import Kind
from cotenant_gateway.core.validate.objects import PROCESS, check_kind, check_object
from cotenant_gateway.core.validate.quota import NOTHING, Charged, check_quota
from cotenant_gateway.core.validate.schema import Report, prune, show
from cotenant_gateway.core.yaml_source import Document

Action = Literal["created", "configured", "unchanged", "refused"]

_JOB_MUTABLE: Final = frozenset({"parallelism", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"})
MAX_OBJECTS: Final = 900
"""One atomic batch holds 1,000 writes; the lease that fences it is one of them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One error with the place it stands at."""

    document: int
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        where = f", {self.field}" if self.field else ""
        return f"document {self.document}{line}{where}: {self.message}"


@dataclass(slots=True)
class Item:
    """One manifest on its way; ``change`` stays None when nothing has to be written."""

    document: Document
    report: Report = field(default_factory=Report)
    kind: Kind | None = None
    namespace: str | None = None
    name: str = ""
    action: Action = "refused"
    uid: str | None = None
    change: Put | None = None

    @property
    def object(self) -> str:
        return object_key(self.kind.name if self.kind else "?", self.namespace, self.name or "?")

    def faults(self) -> list[Fault]:
        return [
            Fault(self.document.index, self.document.line_of(p.path), show(p.path), p.message)
            for p in self.report.errors
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    items: tuple[Item, ...]

    @property
    def faults(self) -> list[Fault]:
        return [fault for item in self.items for fault in item.faults()]

    @property
    def changes(self) -> list[Put]:
        return [] if self.faults else [item.change for item in self.items if item.change is not None]


@dataclass(frozen=True, slots=True)
class Applying:
    """What a plan is made against. ``seed`` is new for every request, so that a name used again is a new identity."""

    find: Callable[[str], Spec | None]
    catalog: Catalog
    now_ms: int
    seed: str
    runtime: str = PROCESS
    charged: Callable[[str], Charged] = lambda _name: NOTHING
    """What runs under a quota, by its name."""
    demand: Demand = field(default_factory=Demand)


def plan(documents: Sequence[Document], context: Applying) -> Plan:
    catalog = context.catalog.overlay()
    items = [_read(document, context.runtime) for document in documents]
    if len(items) > MAX_OBJECTS:
        items[MAX_OBJECTS].report.error((), f"{len(items)} objects in one request; at most {MAX_OBJECTS}, split it")
    _check_twice(items)
    for item in items:
        if item.kind and not item.report.errors:
            catalog.add(item.kind.name, item.namespace, item.name, item.document.data)
    for item in items:
        if item.kind and not item.report.errors:
            _decide(item, item.kind, catalog, context)
    return Plan(tuple(items))


def _read(document: Document, runtime: str) -> Item:
    item = Item(replace(document, data=prune(document.data)))
    manifest = item.document.data
    item.kind = check_kind(manifest, item.report)
    metadata = manifest.get("metadata")
    if isinstance(metadata, Mapping):
        item.name = str(metadata.get("name") or "")
    if item.kind is None:
        return item
    if item.kind.namespaced and isinstance(metadata, Mapping):
        item.namespace = str(metadata.get("namespace") or DEFAULT_NAMESPACE)
    check_object(item.kind, manifest, item.report, runtime)
    if not item.report.errors:
        try:
            spec_key(item.kind.name, item.namespace, item.name)
        except InvalidNameError as problem:
            item.report.error(("metadata", "name"), str(problem))
    return item


def _check_twice(items: Sequence[Item]) -> None:
    first: dict[str, int] = {}
    for item in items:
        if item.kind and item.name:
            known = first.setdefault(item.object, item.document.index)
            if known != item.document.index:
                item.report.error(("metadata", "name"), f"{item.object} is already document {known} of this request")


def _decide(item: Item, kind: Kind, catalog: Catalog, context: Applying) -> None:
    old = context.find(spec_key(kind.name, item.namespace, item.name))
    if old is not None and old.deletion is not None:
        item.report.error(("metadata", "name"), f"{item.object} is being deleted; apply it again when it is gone")
        return
    wanted = _normal(item.document.data, kind, item.namespace)
    match kind.name:
        case "Pod":
            _decide_pod(item, wanted, old, catalog, context)
        case "Node":
            _settle(item, nodes.with_user_part(old, wanted), old, context, unchanged=nodes.same_user_part(old, wanted))
        case _:
            _check_others(item, kind.name, wanted, old, catalog, context)
            merged = _with_status(wanted, old)
            _settle(item, merged, old, context, unchanged=old is not None and old.manifest == merged)


def _normal(manifest: Mapping[str, Any], kind: Kind, namespace: str | None) -> dict[str, Any]:
    """As stored: the namespace is written out, what a server of another cluster wrote is gone."""
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key in ("name", "labels", "annotations") and value != {}
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    rest = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    if kind.name == "Node" and "status" in manifest:
        rest["status"] = manifest["status"]
    return {**rest, "metadata": metadata}


def _decide_pod(item: Item, wanted: dict[str, Any], old: Spec | None, catalog: Catalog, context: Applying) -> None:
    mark = digest(wanted)
    if old is not None and old.annotations.get(names.APPLIED_DIGEST) == mark:
        item.action, item.uid = "unchanged", old.uid
        if old.terminal_ms is not None:
            item.report.warn((), "this pod has finished; delete it to run it again")
        return
    if old is not None and old.owner is not None:
        item.report.error(("metadata", "name"), f"{item.object} belongs to {old.owner}; change that instead")
        return
    admitted = admit_pod(wanted, catalog, item.report, demand=context.demand if old is None else None)
    if admitted is None:
        return
    manifest = admitted.manifest
    manifest["metadata"].setdefault("annotations", {})[names.APPLIED_DIGEST] = mark
    if old is not None:
        check_pod_update(old.manifest, manifest, item.report)
    _settle(item, manifest, old, context, unchanged=False)


def _check_others(
    item: Item, kind: str, wanted: Mapping[str, Any], old: Spec | None, catalog: Catalog, context: Applying
) -> None:
    match kind:
        case "ElasticQuota":
            charged = context.charged(item.name) if old else NOTHING
            check_quota(wanted, catalog.quotas(), old.manifest if old else None, item.report, charged)
        case "Deployment" | "Job":
            template = wanted["spec"]["template"]
            metadata = {**(template.get("metadata") or {}), "name": f"{item.name}-0", "namespace": item.namespace}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            admit_pod(pod, catalog, item.report, ("spec", "template"))
            if old is not None and kind == "Job":
                _check_job_update(item, old, wanted)
        case "ConfigMap" if slo_config.is_slo_config(item.namespace, item.name):
            for problem in slo_config.check(wanted.get("data") or {}):
                (item.report.error if problem.fatal else item.report.warn)(("data", problem.key), problem.message)
        case _:
            return


def _check_job_update(item: Item, old: Spec, wanted: Mapping[str, Any]) -> None:
    before, after = old.body, wanted["spec"]
    for name in sorted({*before, *after} - _JOB_MUTABLE):
        if before.get(name) != after.get(name):
            item.report.error(("spec", name), "cannot change once the Job exists; delete it and apply it again")


def _with_status(wanted: dict[str, Any], old: Spec | None) -> dict[str, Any]:
    status = old.manifest.get("status") if old else None
    return {**wanted, "status": status} if status else wanted


def _settle(item: Item, manifest: dict[str, Any], old: Spec | None, context: Applying, *, unchanged: bool) -> None:
    if item.report.errors or item.kind is None:
        return
    if unchanged and old is not None:
        item.action, item.uid = "unchanged", old.uid
        return
    if old is not None:
        item.action, item.uid = "configured", old.uid
        item.change = Put(old.changed(manifest, "object.applied"), old)
        return
    kind = item.kind.name
    uid = new_uid(kind, item.namespace, item.name, 0, context.seed)
    tells = ("pod.queued",) if kind == "Pod" else ("object.applied",)
    spec = Spec(kind, item.namespace, item.name, uid, context.now_ms, manifest, tells=tells)
    item.action, item.uid, item.change = "created", uid, Put(spec)


def new_uid(kind: str, namespace: str | None, name: str, incarnation: int, seed: str) -> str:
    scope = namespace or "-"
    return str(pod_uid(scope if kind == "Pod" else f"{kind}/{scope}", name, incarnation, seed))
