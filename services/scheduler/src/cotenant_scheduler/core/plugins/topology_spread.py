"""topologySpreadConstraints: the difference between the fullest and the emptiest domain stays within maxSkew."""

from dataclasses import dataclass

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import ABSENT, Bools, Codes, Ints, Rows
from cotenant_scheduler.core.plugins.interface import PodFilter, PodScore
from cotenant_scheduler.core.plugins.node_affinity import NodeAffinity
from cotenant_scheduler.core.refusals import Refusal
from cotenant_scheduler.core.request import PodRequest, PodTerm, SpreadConstraint
from cotenant_scheduler.core.snapshot import Snapshot

_NODES = NodeAffinity()


@dataclass(frozen=True, slots=True)
class _Domains:
    """``counts`` by code of the topology label; ``least`` over the domains that have a node the pod may use."""

    counts: Ints
    least: int
    own: int


class PodTopologySpread(PodFilter, PodScore):
    name = "PodTopologySpread"

    def __init__(self, weight: int = 2) -> None:
        self.weight = weight

    def applies(self, pod: PodRequest, cluster: Snapshot) -> bool:  # noqa: ARG002 - the interface's
        return bool(pod.shape.spread)

    def passes(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Bools:
        found: Bools = np.ones(len(rows), dtype=np.bool_)
        for constraint in pod.shape.spread:
            if constraint.required:
                codes = cluster.labels.codes(constraint.topology_key, rows)
                found &= (codes != ABSENT) & (_skew(constraint, pod, cluster, codes) <= constraint.max_skew)
        return found

    def score(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Ints:
        """Emptier domains first; every node is as good as another when nothing matches yet."""
        wished = [constraint for constraint in pod.shape.spread if not constraint.required]
        total: Ints = np.zeros(len(rows), dtype=np.int64)
        for constraint in wished:
            counts = _domains(constraint, pod, cluster).counts
            fullest = max(1, int(counts.max()))
            codes = cluster.labels.codes(constraint.topology_key, rows)
            total += np.where(codes == ABSENT, 0, (fullest - counts[codes]) * 100 // fullest)
        return total // max(1, len(wished))

    def refuse(self, pod: PodRequest, cluster: Snapshot, row: int) -> Refusal:
        node = cluster.name(row)
        for constraint in pod.shape.spread:
            if not constraint.required:
                continue
            key = constraint.topology_key
            codes = cluster.labels.codes(key, np.array([row]))
            if codes[0] == ABSENT:
                return Refusal(
                    ReasonCode.TOPOLOGY_SPREAD_EXCEEDED,
                    f"topology spread needs the label {key}, which node {node} lacks",
                    {"topology_key": key},
                    f"label node {node} with {key}",
                )
            skew = int(_skew(constraint, pod, cluster, codes)[0])
            if skew > constraint.max_skew:
                place = cluster.labels.value(key, row)
                return Refusal(
                    ReasonCode.TOPOLOGY_SPREAD_EXCEEDED,
                    f"topology spread over {key}: skew would be {skew} with node {node} ({place}), "
                    f"at most {constraint.max_skew} is allowed",
                    {"topology_key": key, "skew": skew, "max_skew": constraint.max_skew},
                    f"room in another {key}",
                )
        raise LookupError(f"node {node} does not refuse {pod.key}")


def _skew(constraint: SpreadConstraint, pod: PodRequest, cluster: Snapshot, codes: Codes) -> Ints:
    domains = _domains(constraint, pod, cluster)
    return domains.counts[codes] + domains.own - domains.least


def _domains(constraint: SpreadConstraint, pod: PodRequest, cluster: Snapshot) -> _Domains:
    """Kubernetes' defaults: node affinity of the pod decides which domains count, taints do not."""
    key = constraint.topology_key
    term = PodTerm(constraint.selector, key, (pod.namespace,))
    counts: Ints = np.zeros(cluster.labels.code_count(key), dtype=np.int64)
    alive = cluster.alive_rows()
    eligible = alive[_NODES.passes(pod.shape, cluster, alive) & (cluster.labels.codes(key, alive) != ABSENT)]
    np.add.at(counts, cluster.labels.codes(key, eligible), cluster.neighbours.counts(term)[eligible])
    present = np.unique(cluster.labels.codes(key, eligible))
    least = int(counts[present].min()) if len(present) >= max(1, constraint.min_domains) else 0
    return _Domains(counts, least, int(term.matches(pod.namespace, dict(pod.labels))))
