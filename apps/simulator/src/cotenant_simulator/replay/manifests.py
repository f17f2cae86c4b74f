"""Machines, services and jobs as the objects that a user would apply."""

from collections.abc import Mapping
from typing import Any, Final

from cotenant_common.model import labels, resources
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.core import durations
from cotenant_simulator.replay.model import Band, Job, Machine, Service

Manifest = dict[str, Any]
_QOS: Final[Mapping[Band, str]] = {"prod": "LS", "mid": "LS", "batch": "BE"}


def node(machine: Machine) -> Manifest:
    named = {"labels": dict(machine.labels)} if machine.labels else {}
    capacity = {name: resources.render(name, amount) for name, amount in machine.capacity.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, **named},
        "status": {"capacity": capacity},
    }


def service(one: Service, sim_usage: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": one.name,
            "labels": _labels(one.band),
            "annotations": {labels.SIM_USAGE: sim_usage},
        },
        "spec": _pod_spec(one.band, one.requests, {}),
    }


def job(one: Job, duration_ms: int | None) -> Manifest:
    annotations = {} if duration_ms is None else {labels.SIM_DURATION: durations.show(duration_ms)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": one.name},
        "spec": {
            "completions": one.members,
            "parallelism": one.members,
            "template": {
                "metadata": {"labels": _labels(one.band), **({"annotations": annotations} if annotations else {})},
                "spec": {"restartPolicy": "OnFailure", **_pod_spec(one.band, one.requests, _affinity(one))},
            },
        },
    }


def backlog(unit: Job, completions: int, parallelism: int, duration_ms: int) -> Manifest:
    """Batch work that never runs out."""
    work = job(unit, duration_ms)
    work["spec"] |= {"completions": completions, "parallelism": parallelism}
    return work


def _labels(band: Band) -> dict[str, str]:
    return {labels.QOS_CLASS: _QOS[band]}


def _pod_spec(band: Band, requests: Mapping[str, int], affinity: Mapping[str, Any]) -> Manifest:
    sold = resources.RESOURCES_BY_BAND.get(band, {})
    named = {sold.get(name, name): amount for name, amount in requests.items() if amount}
    # GPUs take no overcommit, and the API wants their limit to equal the request.
    fixed = {name: amount for name, amount in named.items() if name in requests and name not in (CPU, MEMORY)}
    limits = {"limits": _rendered(fixed)} if fixed else {}
    return {
        "priorityClassName": f"koord-{band}",
        "containers": [{"name": "main", "resources": {"requests": _rendered(named), **limits}}],
        **affinity,
    }


def _rendered(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: resources.render(name, amount) for name, amount in amounts.items()}


def _affinity(one: Job) -> Manifest:
    if one.one_of_labels is None:
        return {}
    key, values = one.one_of_labels
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}
