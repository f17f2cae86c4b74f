"""spec.nodeName, nodeSelector and node affinity."""

from collections.abc import Hashable

import numpy as np

from cotenant_common.model.reasons import ReasonCode
from cotenant_scheduler.core.columns import Bools, Ints, Rows
from cotenant_scheduler.core.plugins.grouping import alike
from cotenant_scheduler.core.plugins.interface import Reads, ShapeFilter, ShapeScore, Wake
from cotenant_scheduler.core.refusals import Refusal, RefusalGroup
from cotenant_scheduler.core.request import Shape
from cotenant_scheduler.core.selectors import FIELD_NAME, NodeTerm, Requirement
from cotenant_scheduler.core.snapshot import Snapshot


class NodeAffinity(ShapeFilter, ShapeScore):
    name = "NodeAffinity"
    reads = Reads.FACTS
    wakes = Wake.NODE

    def __init__(self, weight: int = 2) -> None:
        self.weight = weight

    def part(self, shape: Shape) -> Hashable:
        return shape.node_name, shape.selector, shape.required_terms, shape.preferred_terms

    def applies(self, shape: Shape, cluster: Snapshot) -> bool:  # noqa: ARG002 - the interface's
        return self.part(shape) != (None, (), None, ())

    def passes(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        found = self._selected(shape, cluster, rows)
        if shape.required_terms is not None:
            found &= _any_term(shape.required_terms, cluster, rows)
        return found

    def _selected(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Bools:
        """By spec.nodeName and nodeSelector."""
        found: Bools = np.ones(len(rows), dtype=np.bool_)
        if shape.node_name is not None:
            found &= rows == cluster.rows.get(shape.node_name, -1)
        for requirement in shape.selector:
            found &= _matching(requirement, cluster, rows)
        return found

    def score(self, shape: Shape, cluster: Snapshot, rows: Rows) -> Ints:
        total: Ints = np.zeros(len(rows), dtype=np.int64)
        weights = sum(weight for weight, _ in shape.preferred_terms)
        if weights <= 0:
            return total
        for weight, term in shape.preferred_terms:
            total += weight * _term(term, cluster, rows)
        return total * 100 // weights

    def refuse(self, shape: Shape, cluster: Snapshot, row: int) -> Refusal:
        facts = cluster.node(row)
        if shape.node_name is not None and facts.name != shape.node_name:
            return Refusal(
                ReasonCode.NODE_SELECTOR_MISMATCH,
                f"spec.nodeName asks for {shape.node_name}, this is {facts.name}",
                helps=f"node {shape.node_name} joining, or no spec.nodeName",
            )
        for requirement in shape.selector:
            if not requirement.matches(facts.labels):
                have = facts.labels.get(requirement.key)
                return Refusal(
                    ReasonCode.NODE_SELECTOR_MISMATCH,
                    f"nodeSelector wants {requirement}; node {facts.name} has {_have(requirement.key, have)}",
                    {"key": requirement.key, "wanted": requirement.values[0], "has": have},
                    f"label a node {requirement}",
                )
        wanted = " or ".join(str(term) for term in shape.required_terms or ()) or "no node at all"
        return Refusal(
            ReasonCode.NODE_AFFINITY_MISMATCH,
            f"required node affinity wants {wanted}; node {facts.name} does not match",
            {"wanted": wanted},
            f"a node with {wanted}",
        )

    def summarise(self, shape: Shape, cluster: Snapshot, rows: Rows) -> tuple[RefusalGroup, ...]:
        selected = self._selected(shape, cluster, rows)
        return alike(cluster, rows[np.logical_not(selected)], lambda row: self.refuse(shape, cluster, row)) + alike(
            cluster, rows[selected], lambda row: self.refuse(shape, cluster, row)
        )


def _have(key: str, value: str | None) -> str:
    return f"no label {key}" if value is None else f"{key}={value}"


def _matching(requirement: Requirement, cluster: Snapshot, rows: Rows) -> Bools:
    absent = requirement.operator in ("NotIn", "DoesNotExist")
    return cluster.labels.matching(requirement.key, rows, requirement.accepts, absent=absent)


def _any_term(terms: tuple[NodeTerm, ...], cluster: Snapshot, rows: Rows) -> Bools:
    found: Bools = np.zeros(len(rows), dtype=np.bool_)
    for term in terms:
        found |= _term(term, cluster, rows)
    return found


def _term(term: NodeTerm, cluster: Snapshot, rows: Rows) -> Bools:
    if not (term.expressions or term.fields):
        return np.zeros(len(rows), dtype=np.bool_)
    found: Bools = np.ones(len(rows), dtype=np.bool_)
    for requirement in term.expressions:
        found &= _matching(requirement, cluster, rows)
    for requirement in term.fields:
        found &= _field(requirement, cluster, rows)
    return found


def _field(requirement: Requirement, cluster: Snapshot, rows: Rows) -> Bools:
    """``metadata.name`` is the only field Kubernetes allows here."""
    if requirement.key != FIELD_NAME:
        return np.zeros(len(rows), dtype=np.bool_)
    named = [cluster.rows[value] for value in requirement.values if value in cluster.rows]
    inside: Bools = np.isin(rows, named)
    return inside if requirement.operator == "In" else np.logical_not(inside)
