"""Pod affinity and anti-affinity by topology, the anti-affinity of those who are there already included."""

from collections.abc import Iterable

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.columns import ABSENT, Bools, Ints, Rows
from cotenant_scheduler.core.plugins.interface import PodFilter, PodScore
from cotenant_scheduler.core.refusals import Refusal
from cotenant_scheduler.core.request import PodRequest, PodTerm
from cotenant_scheduler.core.snapshot import Snapshot


class InterPodAffinity(PodFilter, PodScore):
    name = "InterPodAffinity"

    def __init__(self, weight: int = 2) -> None:
        self.weight = weight

    def applies(self, pod: PodRequest, cluster: Snapshot) -> bool:
        shape = pod.shape
        wishes = shape.affinity or shape.anti_affinity or shape.preferred_affinity
        return bool(wishes or cluster.neighbours.repelling)

    def passes(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Bools:
        found: Bools = np.ones(len(rows), dtype=np.bool_)
        for term in pod.shape.affinity:
            found &= _near(term, pod, cluster, rows)
        for term in pod.shape.anti_affinity:
            found &= np.logical_not(_with(cluster.neighbours.counts(term), term.topology_key, cluster, rows))
        for term in _repelled_by(pod, cluster):
            found &= np.logical_not(_with(cluster.neighbours.repelling[term][1], term.topology_key, cluster, rows))
        return found

    def score(self, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Ints:
        """Sum of weights of matching neighbours, stretched over the nodes to 0..100."""
        total: Ints = np.zeros(len(rows), dtype=np.int64)
        for term in pod.shape.preferred_affinity:
            codes = cluster.labels.codes(term.topology_key, rows)
            total += term.weight * _per_place(cluster.neighbours.counts(term), term.topology_key, cluster)[codes]
        spread = int(total.max() - total.min()) if len(total) else 0
        return (total - total.min()) * 100 // spread if spread else np.zeros(len(rows), dtype=np.int64)

    def refuse(self, pod: PodRequest, cluster: Snapshot, row: int) -> Refusal:
        single, node = np.array([row]), cluster.name(row)
        for term in pod.shape.affinity:
            if not _near(term, pod, cluster, single)[0]:
                return _refusal(f"pod affinity wants a neighbour with {term}; node {node} has none", term, None)
        for term in pod.shape.anti_affinity:
            if holder := _first_at(cluster.neighbours.matching(term), term.topology_key, cluster, row):
                return _refusal(f"pod anti-affinity forbids {term}; node {node} is near {holder}", term, holder)
        for term in _repelled_by(pod, cluster):
            holders, _ = cluster.neighbours.repelling[term]
            if holder := _first_at(holders.values(), term.topology_key, cluster, row):
                return _refusal(f"{holder}, near node {node}, forbids neighbours with {term}", term, holder)
        raise LookupError(f"node {node} does not refuse {pod.key}")


def _refusal(message: str, term: PodTerm, holder: str | None) -> Refusal:
    helps = (
        f"{holder} ending, or a node in another {term.topology_key}" if holder else f"a pod with {term} placed first"
    )
    return Refusal(
        ReasonCode.POD_AFFINITY_MISMATCH, message, {"topology_key": term.topology_key, "holder": holder}, helps
    )


def _near(term: PodTerm, pod: PodRequest, cluster: Snapshot, rows: Rows) -> Bools:
    """The first pod of a set that asks for its own kind may start anywhere the topology exists."""
    counts = cluster.neighbours.counts(term)
    if not counts.any() and term.matches(pod.namespace, dict(pod.labels)):
        anywhere: Bools = cluster.labels.codes(term.topology_key, rows) != ABSENT
        return anywhere
    return _with(counts, term.topology_key, cluster, rows)


def _repelled_by(pod: PodRequest, cluster: Snapshot) -> list[PodTerm]:
    labels = dict(pod.labels)
    return [term for term in cluster.neighbours.repelling if term.matches(pod.namespace, labels)]


def _per_place(counts: Ints, key: str, cluster: Snapshot) -> Ints:
    """Neighbours per topology value; nodes without the label are in no topology and count for nobody."""
    found: Ints = np.zeros(cluster.labels.code_count(key), dtype=np.int64)
    rows = np.flatnonzero(counts)
    np.add.at(found, cluster.labels.codes(key, rows), counts[rows])
    found[ABSENT] = 0
    return found


def _with(counts: Ints, key: str, cluster: Snapshot, rows: Rows) -> Bools:
    found: Bools = _per_place(counts, key, cluster)[cluster.labels.codes(key, rows)] > 0
    return found


def _first_at(charges: Iterable[Charge], key: str, cluster: Snapshot, row: int) -> str | None:
    place = cluster.labels.value(key, row)
    near = [
        charge.key
        for charge in charges
        if place is not None and cluster.labels.value(key, cluster.rows[charge.node]) == place
    ]
    return min(near, default=None)
