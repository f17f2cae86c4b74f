"""A live system to plan on, without a stack: a simulated one whose gateway gives its snapshot."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from cotenant_common.testing import builders
from cotenant_gateway.app.service import GatewayService
from cotenant_gateway.core.yaml_source import Document, from_data
from cotenant_simulator import loop
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.core.scenario import Demand, SetUsage
from cotenant_simulator.node.host import read_shape
from cotenant_simulator.restore import Snapshot, read_snapshot

Json = dict[str, Any]

_SYSTEM: Final = Demand(cpu_milli=100, memory_bytes=256 * 1024 * 1024)
"""Without it nobody measures a node as a whole, and nothing of it is sold."""


def node(name: str, cpu: str = "4", memory: str = "8Gi") -> Json:
    status = {"capacity": {"cpu": cpu, "memory": memory}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, cpu: str = "1", *, usage: str | None = None, quota: str | None = None, **spec: Any) -> Json:
    labels = {"koordinator.sh/qosClass": "LS", "app": name}
    if quota:
        labels["quota.scheduling.koordinator.sh/name"] = quota
    annotations = {} if usage is None else {"cotenant.io/sim-usage": usage}
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "priorityClassName": "koord-prod",
            "containers": [{"name": "main", "command": ["sleep", "9"], "resources": {"requests": requests}}],
            **spec,
        },
    }


def batch_pod(name: str, cpu_milli: int) -> Json:
    amounts = {"kubernetes.io/batch-cpu": str(cpu_milli), "kubernetes.io/batch-memory": "64Mi"}
    made = pod(name)
    made["metadata"]["labels"]["koordinator.sh/qosClass"] = "BE"
    made["spec"]["priorityClassName"] = "koord-batch"
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": dict(amounts)}
    return made


def deployment(name: str, replicas: int, cpu: str = "1") -> Json:
    template = pod(name, cpu)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
        },
    }


def quota(name: str, cpu_min: str, cpu_max: str) -> Json:
    minimum, maximum = {"cpu": cpu_min, "memory": "4Gi"}, {"cpu": cpu_max, "memory": "8Gi"}
    return builders.quota_manifest(name, minimum=minimum, maximum=maximum)


def documents(*manifests: Json) -> Sequence[Document]:
    return from_data(manifests)


def body_of(
    *manifests: Json, seconds: int = 40, overrides: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> Json:
    """What ``GET /v1/snapshot`` says of a system in which these objects have lived for a while."""
    return loop.run(_body_of(manifests, seconds, overrides))


async def _body_of(manifests: Sequence[Json], seconds: int, overrides: Mapping[str, Mapping[str, Any]]) -> Json:
    cluster = Cluster(overrides, seed=1)
    cluster.start()
    await loop.current().quiet()
    for manifest in manifests:
        if manifest["kind"] == "Node":
            cluster.demands.begin(SetUsage(manifest["metadata"]["name"], _SYSTEM, {}))
    shapes = [read_shape(manifest) for manifest in manifests if manifest["kind"] == "Node"]
    await cluster.apply(documents(*manifests), shapes)
    await loop.current().sleep_until_ms(1_000 * seconds)
    await loop.current().quiet()
    gateway = cluster.hosts["gateway"].service
    assert isinstance(gateway, GatewayService)  # noqa: S101 - the host of that name makes no other
    body: Json = json.loads(json.dumps(await gateway.snapshots.take()))
    await cluster.stop()
    return body


def snapshot_of(*manifests: Json, seconds: int = 40) -> Snapshot:
    return read_snapshot(body_of(*manifests, seconds=seconds))
