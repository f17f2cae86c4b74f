"""A small cluster to decide on: objects in, placements and reasons out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cotenant_common.model import quantity, resources
from cotenant_common.testing import builders
from cotenant_scheduler.core.decisions import Decision, Placement, Refused
from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.estimate import LoadPolicy, NodeMetric
from cotenant_scheduler.core.plugins.interface import Plugin
from cotenant_scheduler.core.plugins.registry import default_plugins
from cotenant_scheduler.core.profile import PluginChoice
from cotenant_scheduler.core.quota import QuotaObject, QuotaShare, QuotaTree
from cotenant_scheduler.core.request import PodRequest, read_request
from cotenant_scheduler.core.snapshot import NodeFacts, Sold
from cotenant_scheduler.core.taints import parse_taints
from cotenant_scheduler.core.verdict import Verdict


class World:
    """Remembers every decision; fails a test that overfills a node."""

    def __init__(
        self,
        policy: LoadPolicy | None = None,
        seed: int = 0,
        *,
        choice: PluginChoice | None = None,
        outside: Sequence[Plugin] = (),
        fused: bool = False,
    ) -> None:
        self.policy = policy or LoadPolicy()
        self.engine = Engine(default_plugins(choice, outside), self.policy, seed=seed, fused=fused)
        self.now_ms = 1_000_000
        self.decisions: list[Decision] = []
        self.pods: dict[str, PodRequest] = {}
        self.revision = 0

    def node(
        self,
        name: str,
        *,
        cpu: str | int = "4",
        memory: str | int = "8Gi",
        pods: int = 110,
        extra: Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        sold: Sold | Mapping[str, int] | None = None,
        **fields: Any,
    ) -> None:
        allocatable = {
            "cpu": quantity.cpu_milli(cpu),
            "memory": quantity.whole(memory),
            "pods": pods,
            **(extra or {}),
        }
        self.engine.set_node(
            NodeFacts(
                name,
                allocatable=fields.pop("allocatable", allocatable),
                labels={"kubernetes.io/hostname": name, **(labels or {})},
                taints=parse_taints(taints),
                sold=sold if isinstance(sold, Sold) or sold is None else Sold(sold),
                **fields,
            )
        )

    def metric(self, node: str, cpu: str | int, memory: str | int, **fields: Any) -> None:
        fields.setdefault("update_ms", self.now_ms)
        fields.setdefault("interval_ms", 60_000)
        usage = (quantity.cpu_milli(cpu), quantity.whole(memory))
        self.engine.set_metric(node, NodeMetric(usage=usage, **fields))

    def request(self, name: str, **fields: Any) -> PodRequest:
        owner = fields.pop("owner_kind", None)
        created_ms, revision = fields.pop("created_ms", self.revision), fields.pop("revision", 0)
        manifest = builders.pod_manifest(name, **fields)
        if owner:
            manifest["metadata"]["ownerReferences"] = [{"kind": owner, "name": "own", "controller": True}]
        pod = builders.parse_pod(manifest, uid=f"uid-{name}", created_ms=created_ms)
        return read_request(pod, self.policy, revision, self.engine.annotations)

    def submit(self, name: str, **fields: Any) -> PodRequest:
        self.revision += 1
        pod = self.request(name, **fields)
        self.pods[name] = pod
        self.engine.submit(pod)
        return pod

    def end(self, name: str) -> None:
        self.engine.release(f"uid-{name}")

    def run(self, limit: int = 100_000) -> list[Decision]:
        made: list[Decision] = []
        while (decision := self.engine.decide(self.now_ms)) is not None:
            made.append(decision)
            assert len(made) < limit, "the engine never gets quiet"
        self.decisions += made
        self.check()
        return made

    def later(self, ms: int) -> list[Decision]:
        self.now_ms += ms
        return self.run()

    def where(self, name: str) -> str | None:
        charge = self.engine.ledger.get(f"uid-{name}")
        return charge.node if charge else None

    def placed(self, decisions: list[Decision]) -> list[str]:
        return [each.pod.name for each in decisions if isinstance(each, Placement)]

    def refused(self, decisions: list[Decision]) -> list[str]:
        return [pod.name for each in decisions if isinstance(each, Refused) for pod in each.pods]

    def verdict(self, name: str) -> Verdict:
        found = self.engine.verdict(f"uid-{name}")
        assert found is not None, f"{name} has no verdict"
        return found

    def quota(
        self,
        shares: Mapping[str, QuotaShare],
        *,
        generation: int = 1,
        specs_revision: int = 1_000_000,
        namespaces: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.engine.set_quota_tree(QuotaTree("tree", generation, specs_revision, shares))
        self.engine.set_quota_objects(
            [QuotaObject(name, "default", (namespaces or {}).get(name, ())) for name in shares]
        )

    def check(self) -> None:
        cluster = self.engine.cluster
        for node, row in cluster.rows.items():
            allocatable, requested = cluster.allocatable_of(row), cluster.requested_of(row)
            held: dict[str, int] = {}
            for charge in cluster.placed[row].values():
                held = resources.add(held, charge.requests)
            assert {k: v for k, v in held.items() if v} == requested, f"sums of {node}"
            holds = [charge for uid, charge in cluster.placed[row].items() if uid in self.engine.room.holds]
            for name, total in requested.items():
                # What is held for a nominee comes on top of what its victims hold until they are gone.
                value = total - sum(charge.requests.get(name, 0) for charge in holds)
                assert value >= 0
                if name in allocatable and cluster.node(row).registered:
                    assert value <= allocatable[name] or name in self.cut, f"{node} is overfilled with {name}"

    cut: set[str] = set()  # noqa: RUF012 - resources that a test took away under running pods


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    return World
